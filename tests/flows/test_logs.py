"""The log: nothing lost, nothing twice, whatever happens to the stream."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.flows import collector, logs
from apps.flows.models import Attempt, LogChunk, Run
from tests.flows.conftest import attempt_of, look
from tests.flows.fakes import FakeKube


def stamped(lines: list[tuple[int, str]]) -> list[bytes]:
    """Lines as the cluster sends them; the number is the time in tenths of a second, and may repeat."""
    return [f"2026-03-01T12:00:{tenth // 10:02d}.{tenth % 10}00000000Z {text}\n".encode() for tenth, text in lines]


LINES = st.lists(st.tuples(st.integers(0, 3), st.text(alphabet="ab\t é", max_size=6)), max_size=25).map(
    lambda rows: [(sum(step for step, _ in rows[: index + 1]), text) for index, (_, text) in enumerate(rows)]
)


@settings(max_examples=150, deadline=None)
@given(lines=LINES, cuts=st.lists(st.integers(0, 2000), max_size=6), size=st.integers(1, 50))
def test_a_stream_cut_anywhere_and_begun_again_with_an_overlap_gives_each_line_once(
    lines: list[tuple[int, str]], cuts: list[int], size: int
) -> None:
    whole = stamped(lines)
    stored, mark = b"", None
    for cut in [*cuts, None]:
        cutter = logs.Cutter.at(mark)
        since = (cutter.since or "").rstrip("Z")
        raw = b"".join(line for line in whole if line.decode()[: len(since)] >= since)
        raw = raw if cut is None else raw[:cut]
        for start in range(0, len(raw), size):
            stored += cutter.feed(raw[start : start + size])
        mark = cutter.mark
    assert stored == b"".join(line.partition(b" ")[2] for line in whole)


def test_two_writers_whose_times_are_out_of_order_lose_nothing() -> None:
    cutter = logs.Cutter()
    raw = b"".join(stamped([(5, "a"), (4, "b"), (5, "c")]))
    assert cutter.feed(raw) == b"a\nb\nc\n"
    again = logs.Cutter.at(cutter.mark)
    assert again.feed(raw + stamped([(6, "d")])[0]) == b"d\n"


def test_a_last_line_without_a_line_feed_is_kept_at_the_end_only() -> None:
    cutter = logs.Cutter()
    assert cutter.feed(b"2026-03-01T12:00:00Z half") == b""
    assert cutter.finish() == b"half\n"


def test_what_the_node_says_of_the_log_itself_is_not_taken_for_the_programs() -> None:
    gone = b'failed to try resolving symlinks in path "/var/log/pods/main/0.log": no such file or directory'
    cutter = logs.Cutter()
    assert cutter.feed(stamped([(1, "end")])[0] + gone + b"\n") == b"end\n"
    assert cutter.feed(gone) + cutter.finish() == b""


def test_a_line_too_long_for_one_piece_is_kept_whole() -> None:
    cutter = logs.Cutter()
    stored = cutter.feed(b"2026-03-01T12:00:00Z " + b"x" * logs.LINE_BYTES)
    stored += cutter.feed(b"y" * logs.LINE_BYTES + b"y") + cutter.feed(b"z\n")
    assert stored.replace(b"\n", b"") == b"x" * logs.LINE_BYTES + b"y" * (logs.LINE_BYTES + 1) + b"z"


@pytest.fixture
def attempt(kube: FakeKube, run: Run) -> Attempt:
    """A running attempt."""
    look(attempt_of(run))
    kube.run(kube.only())
    return look(attempt_of(run))


def test_offsets_run_on_over_chunks_and_any_part_can_be_read(attempt: Attempt) -> None:
    text = b"".join(b"%07d\n" % number for number in range(40_000))
    for start in range(0, len(text), 100_000):
        logs.append(attempt, text[start : start + 100_000], {"stamp": "", "seen": 0})
    assert attempt.log_bytes == len(text)
    for offset in (0, 1, 65_535, 65_536, 200_001, len(text) - 1, len(text)):
        piece = logs.read(attempt, offset, limit=100_000)
        assert piece.data == text[offset : offset + 100_000]
        assert piece.next == min(offset + 100_000, len(text))
        assert not piece.complete
    assert sum(len(bytes(chunk.packed)) for chunk in LogChunk.objects.as_system()) < len(text) / 2


def test_of_two_writers_one_is_told_and_nothing_is_stored_twice(attempt: Attempt) -> None:
    other = logs.attempt_row(attempt.pk)
    assert other is not None
    logs.append(attempt, b"a\n", {"stamp": "2026-03-01T12:00:00Z", "seen": 1})
    with pytest.raises(logs.Moved):
        logs.append(other, b"a\n", {"stamp": "2026-03-01T12:00:00Z", "seen": 1})
    assert logs.read(attempt, 0).data == b"a\n"


def test_a_complete_log_takes_no_more(attempt: Attempt) -> None:
    logs.append(attempt, b"a\n", {"stamp": "", "seen": 0}, complete=True)
    with pytest.raises(logs.Moved):
        logs.append(attempt, b"b\n", {"stamp": "", "seen": 0})


def test_beyond_the_cap_a_mark_says_so_once(attempt: Attempt, settings: object) -> None:
    settings.PORTAL_LOG_CAP_BYTES = 10  # type: ignore[attr-defined]
    logs.append(attempt, b"12345678\n", {"stamp": "", "seen": 0})
    logs.append(attempt, b"abcdefgh\n", {"stamp": "", "seen": 0})
    logs.append(attempt, b"never\n", {"stamp": "", "seen": 0})
    stored = logs.read(attempt, 0).data
    assert stored.startswith(b"12345678\na")
    assert stored.count(b"the rest was not kept") == 1
    assert b"never" not in stored


def test_the_end_is_read_from_where_the_collector_stopped(kube: FakeKube, run: Run, attempt: Attempt) -> None:
    lines = stamped([(0, "one"), (0, "two"), (11, "three"), (12, "four")])
    cutter = logs.Cutter()
    logs.append(attempt, cutter.feed(b"".join(lines[:2])), cutter.mark)
    kube.logs[attempt.pod_name] = b"".join(lines)
    kube.finish(kube.only(), exit_code=0)
    ended = look(attempt_of(run))
    assert logs.read(ended, 0) == logs.Piece(data=b"one\ntwo\nthree\nfour\n", next=19, complete=True)


def test_a_log_longer_than_one_reading_is_read_to_its_end(
    kube: FakeKube, run: Run, attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    from apps.flows import finishing

    monkeypatch.setattr(finishing, "READ_BYTES", 200)
    lines = stamped([(number // 30, f"line {number}") for number in range(500)])
    kube.logs[attempt.pod_name] = b"".join(lines)
    kube.finish(kube.only(), exit_code=0)
    ended = look(attempt_of(run))
    assert logs.read(ended, 0).data == b"".join(b"line %d\n" % number for number in range(500))


def test_the_tail_is_the_last_lines(attempt: Attempt) -> None:
    logs.append(attempt, b"".join(b"%d\n" % n for n in range(5000)), {"stamp": "", "seen": 0})
    assert logs.tail(attempt, 3) == "4997\n4998\n4999"


async def test_pieces_that_come_together_are_one_write() -> None:
    async def upstream() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b"x" * 10

    found = [piece async for piece in collector.in_time(upstream())]
    assert b"".join(found) == b"x" * 1000
    assert len(found) == 1


async def test_a_broken_stream_gives_what_had_come_and_then_its_error() -> None:
    from kubekit.errors import Unreachable

    async def upstream() -> AsyncIterator[bytes]:
        yield b"abc"
        raise Unreachable("broke off")

    pieces = collector.in_time(upstream())
    assert await anext(pieces) == b"abc"
    with pytest.raises(Unreachable):
        await anext(pieces)


def test_old_weeks_are_dropped_and_the_coming_ones_made(attempt: Attempt, settings: object) -> None:
    from datetime import UTC, datetime

    from apps.flows import partitions

    settings.PORTAL_LOG_DAYS = 30  # type: ignore[attr-defined]
    partitions.keep_up(datetime(2026, 1, 7, tzinfo=UTC))
    assert [day.isoformat() for day in sorted(partitions.existing())] == ["2026-01-05", "2026-01-12", "2026-01-19"]
    for day, first in (("2025-11-01", 0), ("2026-01-06", 0), ("2026-01-20", 0)):
        LogChunk.objects.create(day=day, attempt_id=attempt.pk, first=first, size=1, packed=b"x")
    assert partitions.keep_up(datetime(2026, 2, 16, tzinfo=UTC)) == 1
    kept = [str(day) for day in LogChunk.objects.as_system().order_by("day").values_list("day", flat=True)]
    assert kept == ["2026-01-20"]
    assert "2026-01-05" not in {day.isoformat() for day in partitions.existing()}
