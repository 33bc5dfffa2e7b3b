"""Commands beside a container's program, and reading its output."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from localkube.node import agent, logs
from localkube.node.logs import parse
from localkube.runtime import LogOptions
from localkube.status import ApiError
from tests.localkube.node.support import Node

SLEEP = "import time; print('up'); time.sleep(60)"


async def test_exec_has_output_error_output_and_exit_code(node: Node) -> None:
    pod = node.create(SLEEP)
    await node.running(pod)
    session = await node.kubelet.exec(
        pod, "main", ["sh", "-c", "echo out; echo err >&2; exit 4"], tty=False, stdin=False
    )
    found: dict[int, bytes] = {}
    while (piece := await session.read()) is not None:
        found[piece[0]] = found.get(piece[0], b"") + piece[1]
    assert found == {1: b"out\n", 2: b"err\n"}
    assert session.exit_code == 4
    await session.close()


async def test_exec_reads_its_input_to_the_end(node: Node) -> None:
    pod = node.create(SLEEP)
    await node.running(pod)
    text = b"x" * 300_000
    script = "import sys; print(len(sys.stdin.read()))"
    assert await node.exec(pod, "python3", "-c", script, stdin=text) == (0, "300000\n")


async def test_exec_with_a_terminal_can_be_resized_and_interrupted(node: Node) -> None:
    pod = node.create(SLEEP)
    await node.running(pod)
    session = await node.kubelet.exec(pod, "main", ["bash", "--norc"], tty=True, stdin=True)
    await session.resize(101, 33)
    await session.write(b"stty size; python3 -c 'import time; print(6*7); time.sleep(50)'\n")
    text = b""
    while b"33 101" not in text or b"42" not in text:
        piece = await session.read()
        assert piece
        text += piece[1]
    await session.write(b"\x03exit 6\n")
    while await session.read() is not None:
        pass
    assert session.exit_code == 6
    await session.close()


async def test_exec_of_a_missing_program_and_into_an_ended_container(node: Node) -> None:
    pod = node.create(SLEEP)
    await node.running(pod)
    code, text = await node.exec(pod, "nosuch")
    assert code == 127
    assert 'exec: "nosuch": executable file not found in $PATH' in text
    ended = node.create("print(1)")
    await node.finished(ended)
    with pytest.raises(ApiError, match="not running"):
        await node.exec(ended, "true")
    with pytest.raises(ApiError, match="container other is not valid"):
        await node.kubelet.exec(pod, "other", ["true"], tty=False, stdin=False)


async def test_exec_is_as_shut_in_as_the_container(node: Node) -> None:
    pod = node.create(SLEEP)
    await node.running(pod)
    script = "grep -E '^(Cap|NoNewPrivs)' /proc/self/status; ls /proc | grep -c '^[0-9]'; touch /usr/x"
    code, text = await node.exec(pod, "sh", "-c", script)
    assert code == 1
    lines = text.split("\n")
    assert all(line.endswith("0000000000000000") for line in lines if line.startswith("Cap"))
    assert "NoNewPrivs:\t1" in lines
    assert "Read-only file system" in text


async def test_a_closed_session_ends_its_command(node: Node) -> None:
    pod = node.create(SLEEP)
    await node.running(pod)
    session = await node.kubelet.exec(pod, "main", ["sleep", "77"], tty=False, stdin=False)
    await asyncio.sleep(0.1)
    await session.close()
    await asyncio.sleep(0.2)
    code, text = await node.exec(pod, "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    assert code == 0
    assert "sleep 77" not in text


async def test_a_log_is_followed_to_its_end(node: Node) -> None:
    script = "import time\nfor n in range(5): print(n); time.sleep(0.15)\nprint('no newline', end='')"
    pod = node.create(script)
    await node.running(pod)
    assert await node.log(pod, follow=True) == "0\n1\n2\n3\n4\nno newline\n"


async def test_a_log_has_timestamps_tail_since_and_a_limit(node: Node) -> None:
    pod = node.create("import time; print('a'); time.sleep(1.2); print('b'); print('c')")
    await node.finished(pod)
    stamped = (await node.log(pod, timestamps=True)).splitlines()
    assert [line.split()[1] for line in stamped] == ["a", "b", "c"]
    first = datetime.fromisoformat(stamped[0].split()[0])
    assert first.tzinfo == UTC
    assert len(stamped[0].split()[0]) == len("2026-01-02T03:04:05.123456789Z")
    assert await node.log(pod, tail_lines=2) == "b\nc\n"
    assert await node.log(pod, tail_lines=0) == ""
    assert await node.log(pod, since=first + timedelta(seconds=0.6)) == "b\nc\n"
    assert await node.log(pod, limit_bytes=3) == "a\nb"


async def test_a_pod_without_a_log_says_what_it_waits_for(node: Node) -> None:
    pod = node.create(image="nosuch:1")
    with pytest.raises(ApiError, match=r'container "main" in pod ".*" is waiting to start: ') as caught:
        await node.log(pod)
    assert caught.value.code == 400
    with pytest.raises(ApiError, match="previous terminated container"):
        await node.log(pod, previous=True)
    node.store.delete("pods", "default", pod["metadata"]["name"])


async def test_much_output_arrives_whole(node: Node) -> None:
    script = "import sys\nfor n in range(60000): sys.stdout.write(f'{n:08d}\\n')"
    pod = node.create(command=["python3", "-c", script])
    await node.finished(pod)
    lines = (await node.log(pod)).split()
    assert lines == [f"{n:08d}" for n in range(60000)]


def _stored(path: Path, count: int) -> None:
    stamp = "2026-01-02T03:04:05.000000000Z"
    path.write_text("".join(f"{stamp} stdout {'P' if n % 3 == 0 else 'F'} {n}\n" for n in range(count)))


@pytest.mark.parametrize("count", [1, 2, 5000, 30000])
async def test_tail_counts_lines_not_pieces_at_any_length(tmp_path: Path, count: int) -> None:
    _stored(tmp_path / "log", count)

    async def all_of(tail: int | None) -> list[str]:
        pieces = logs.read(tmp_path / "log", LogOptions(tail_lines=tail), lambda: False)
        return b"".join([piece async for piece in pieces]).decode().splitlines()

    whole = await all_of(None)
    for tail in (1, 2, 3, 7, 1000):
        assert await all_of(tail) == whole[-tail:]


def test_a_stored_line_is_parsed_with_its_spaces() -> None:
    assert parse(b"T stdout F  two  spaces ") == (b"T", b" two  spaces ", True)
    assert parse(b"T stderr P ") == (b"T", b"", False)


async def test_a_large_log_moves_on_to_a_new_file_and_readers_follow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent, "_LOG_LIMIT", 2000)
    folder = os.open(tmp_path, os.O_RDONLY)
    writer = agent.LogWriter(folder, "log")
    alive = True

    async def follow() -> str:
        pieces = logs.read(tmp_path / "log", LogOptions(follow=True), lambda: alive)
        return b"".join([piece async for piece in pieces]).decode()

    writer.write("stdout", b"0\n")
    reader = asyncio.create_task(follow())
    await asyncio.sleep(0.05)
    for number in range(1, 60):
        writer.write("stdout", f"{number}\n".encode())
    await asyncio.sleep(0.3)
    alive = False
    assert (await reader).split() == [str(number) for number in range(60)]
    assert (tmp_path / "log.1").exists()
    writer.close()
    os.close(folder)


async def test_a_line_in_pieces_is_one_line_with_one_timestamp(tmp_path: Path) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)
    writer = agent.LogWriter(folder, "log")
    for piece in (b"one ", b"line\ntwo", b""):
        writer.write("stdout", piece)
    writer.close()
    os.close(folder)
    pieces = logs.read(tmp_path / "log", LogOptions(timestamps=True), lambda: False)
    text = b"".join([piece async for piece in pieces]).decode()
    assert [line.partition(" ")[2] for line in text.splitlines()] == ["one line", "two"]
