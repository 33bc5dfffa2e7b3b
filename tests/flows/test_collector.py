"""The collector: one stream a pod, taken up again wherever it breaks, with nothing lost and nothing twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest
from django.db import OperationalError

from apps.clusters import access
from apps.core import control
from apps.flows import collector as module
from apps.flows import logs, watch
from apps.flows.collector import Collector
from apps.flows.models import Attempt, Run
from kubekit.errors import BadRequest, Unreachable
from tests.flows.conftest import attempt_of, look
from tests.flows.fakes import FakeKube

pytestmark = pytest.mark.django_db(transaction=True)

PATIENCE_S = 90
LINES = [f"2026-03-01T12:00:{number // 10:02d}.{number % 10 // 2}00000000Z line {number}\n" for number in range(60)]


class BrokenStreams:
    """A log that is not there at first, then breaks off in the middle of lines, then goes on to its end."""

    def __init__(self) -> None:
        self.asked: list[str | None] = []
        self.open = 0
        self.most = 0

    async def follow_log(
        self, _namespace: str, _pod: str, _container: str, *, since_time: str | None, timestamps: bool
    ) -> AsyncIterator[bytes]:
        assert timestamps
        self.asked.append(since_time)
        self.open += 1
        self.most = max(self.most, self.open)
        try:
            if len(self.asked) == 1:
                raise BadRequest("container is waiting to start", status=400)
            since = (since_time or "").rstrip("Z")
            raw = "".join(line for line in LINES if line[: len(since)] >= since).encode()
            cut = {2: 500, 3: 777, 4: 1300}.get(len(self.asked))
            for start in range(0, len(raw[:cut]), 33):
                yield raw[:cut][start : start + 33]
            if cut is not None:
                raise Unreachable("broke off")
            await asyncio.sleep(3600)
        finally:
            self.open -= 1

    async def close(self) -> None:
        return


@pytest.fixture
def attempt(kube: FakeKube, run: Run, monkeypatch: pytest.MonkeyPatch) -> Attempt:
    """A running attempt."""
    monkeypatch.setattr(access, "credentials_of", lambda cluster: "credentials")
    monkeypatch.setattr(module, "AGAIN_S", 0.01)
    monkeypatch.setattr(module, "FLUSH_S", 0.01)
    look(attempt_of(run))
    kube.run(kube.only())
    return look(attempt_of(run))


async def stored(pk: UUID) -> bytes:
    row = await control.in_thread(logs.attempt_row, pk)
    assert row is not None
    piece = await control.in_thread(logs.read, row, 0)
    return piece.data


async def test_a_log_that_breaks_off_again_and_again_is_stored_once(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = BrokenStreams()
    monkeypatch.setattr(module, "Streams", lambda credentials: streams)
    collector, stop = Collector(), asyncio.Event()
    loop = asyncio.create_task(collector.run(stop))
    wanted = "".join(line.split(" ", 1)[1] for line in LINES).encode()
    for _ in range(PATIENCE_S * 50):
        if await stored(attempt.pk) == wanted:
            break
        await asyncio.sleep(0.02)
    assert await stored(attempt.pk) == wanted
    collector.wanted(attempt.pk)  # a second word about the same pod opens no second stream
    await asyncio.sleep(0.1)
    assert streams.most == 1
    assert len(streams.asked) == 5
    stop.set()
    await asyncio.wait_for(loop, PATIENCE_S)
    assert streams.open == 0


async def test_a_database_that_is_away_for_a_moment_ends_no_log(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams, real, failures = BrokenStreams(), logs.attempt_row, [OperationalError("restarting")]

    def row_or_failure(pk: UUID) -> Attempt | None:
        if failures:
            raise failures.pop()
        return real(pk)

    monkeypatch.setattr(module, "Streams", lambda credentials: streams)
    monkeypatch.setattr(module.logs, "attempt_row", row_or_failure)
    collector, stop = Collector(), asyncio.Event()
    loop = asyncio.create_task(collector.run(stop))
    for _ in range(PATIENCE_S * 50):
        if streams.asked:
            break
        await asyncio.sleep(0.02)
    assert streams.asked
    stop.set()
    await asyncio.wait_for(loop, PATIENCE_S)


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[UUID]:
    """The attempts whose log the collector begins to follow; a look of its own finds none."""
    found: list[UUID] = []

    async def collect(self: Collector, pk: UUID) -> None:
        found.append(pk)

    monkeypatch.setattr(Collector, "_collect", collect)
    monkeypatch.setattr(module.selectors, "to_collect", list)
    return found


@asynccontextmanager
async def running(collector: Collector) -> AsyncIterator[None]:
    stop = asyncio.Event()
    loop = asyncio.create_task(collector.run(stop))
    yield
    stop.set()
    await asyncio.wait_for(loop, PATIENCE_S)


async def until(found: Callable[[], Any]) -> None:
    for _ in range(PATIENCE_S * 100):
        if found():
            return
        await asyncio.sleep(0.01)


async def test_the_watch_starts_a_stream_that_no_look_had_found(attempt: Attempt, begun: list[UUID]) -> None:
    collector = Collector()
    async with running(collector):
        await asyncio.sleep(0.1)
        assert begun == []
        await asyncio.to_thread(collector.wanted, attempt.pk)
        await until(lambda: begun)
        assert begun == [attempt.pk]


async def test_what_the_first_list_told_before_the_collector_began_is_collected_at_once(
    attempt: Attempt, kube: FakeKube, begun: list[UUID], monkeypatch: pytest.MonkeyPatch
) -> None:
    collector = Collector()
    monkeypatch.setattr(watch, "collector", collector)
    await control.in_thread(watch.pods_listed, attempt.queue.cluster_id, [kube.only()])
    async with running(collector):
        await until(lambda: begun)
        assert begun == [attempt.pk]


async def test_a_worker_that_finished_the_log_meanwhile_ends_the_stream(
    attempt: Attempt, kube: FakeKube, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Endless(BrokenStreams):
        async def follow_log(self, *_: Any, **__: Any) -> AsyncIterator[bytes]:
            for line in LINES:
                yield line.encode()
                await asyncio.sleep(0.02)

    monkeypatch.setattr(module, "Streams", lambda credentials: Endless())
    collector, stop = Collector(), asyncio.Event()
    loop = asyncio.create_task(collector.run(stop))
    for _ in range(PATIENCE_S * 50):
        if await stored(attempt.pk):
            break
        await asyncio.sleep(0.01)
    kube.logs[attempt.pod_name] = "".join(LINES).encode()
    kube.finish(kube.only(), exit_code=0)
    await control.in_thread(look, attempt)
    assert await stored(attempt.pk) == "".join(line.split(" ", 1)[1] for line in LINES).encode()
    for _ in range(PATIENCE_S * 50):
        if not collector._tasks:
            break
        await asyncio.sleep(0.02)
    assert collector._tasks == {}
    stop.set()
    await asyncio.wait_for(loop, PATIENCE_S)
