"""The log collector: in the control process, one upstream stream for each running attempt, whoever reads along.

It learns of new pods from the watch in the same process (``wanted``), so an idle portal asks nothing. What it stores
is announced as "the attempt changed"; browsers pull from their offset (F33). The worker that ends an attempt reads
the rest itself, so a collector that is away loses nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from uuid import UUID

from apps.clusters import access
from apps.core import control, crashpoints
from apps.flows import logs, partitions, selectors
from apps.flows.models import Attempt
from apps.flows.states import AttemptState
from kubekit.build.pod import CONTAINER
from kubekit.credentials import Credentials
from kubekit.errors import BadRequest, KubeError, NotFound
from kubekit.streams import Streams

log = logging.getLogger(__name__)

FLUSH_S = 0.5
FLUSH_BYTES = 64 * 1024
AGAIN_S = 1.0
#: What the watch did not tell is found this often.
RESYNC_S = 60.0
QUEUE_PIECES = 64
RETENTION_S = 12 * 3600.0


class Collector:
    """All streams of the process."""

    def __init__(self) -> None:
        self._tasks: dict[UUID, asyncio.Task[None]] = {}
        self._streams: dict[Credentials, Streams] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._news = asyncio.Event()
        self._wanted: set[UUID] = set()

    def wanted(self, pk: UUID) -> None:
        """An attempt's program runs: collect it. Called from the watch's threads, perhaps before the loop has begun."""
        if pk in self._tasks:
            return
        self._wanted.add(pk)
        loop = self._loop
        with contextlib.suppress(RuntimeError):  # the loop is closing
            if loop is not None:
                loop.call_soon_threadsafe(self._news.set)

    async def run(self, stop: asyncio.Event) -> None:
        """The control loop: start a task for each attempt to collect until ``stop``."""
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        try:
            while not stop.is_set():
                found = await control.in_thread(selectors.to_collect)
                self._start(set(found) | self._asked_for())
                await self._listen(stop)
        finally:
            self._loop = None
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)
            self._tasks.clear()
            for streams in self._streams.values():
                await streams.close()
            self._streams.clear()

    async def _listen(self, stop: asyncio.Event) -> None:
        """Start what the watch asks for, until it is time to look for what it did not tell."""
        deadline = asyncio.get_running_loop().time() + RESYNC_S
        while not stop.is_set():
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                return
            waits = [asyncio.create_task(self._news.wait()), asyncio.create_task(stop.wait())]
            try:
                await asyncio.wait(waits, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()
            self._news.clear()
            self._start(self._asked_for())

    def _asked_for(self) -> set[UUID]:
        """Take what the watch's threads put there; they may go on meanwhile."""
        found: set[UUID] = set()
        while self._wanted:
            found.add(self._wanted.pop())
        return found

    def _start(self, wanted: set[UUID]) -> None:
        for pk in wanted - set(self._tasks):
            task = asyncio.get_running_loop().create_task(self._collect(pk), name=f"log {pk}")
            self._tasks[pk] = task
            task.add_done_callback(lambda _task, pk=pk: self._tasks.pop(pk, None))  # type: ignore[misc]

    async def _collect(self, pk: UUID) -> None:
        """Follow one attempt's log until it is complete or the attempt has ended."""
        while True:
            try:
                attempt = await control.in_thread(logs.attempt_row, pk)
                if attempt is None or not _goes_on(attempt):
                    return
                await self._follow(attempt)
            except logs.Moved:
                continue
            except NotFound:
                return
            except BadRequest:
                pass  # the container has not started yet
            except KubeError as error:
                log.info("the log of attempt %s broke off: %s", pk, error.message)
            except Exception:  # one log's fault must not end the others
                log.exception("the log of attempt %s cannot be collected", pk)
            await asyncio.sleep(AGAIN_S)

    async def _follow(self, attempt: Attempt) -> None:
        """One stream, from the mark on."""
        credentials = await control.in_thread(access.credentials_of, attempt.queue.cluster)
        streams = self._streams.setdefault(credentials, Streams(credentials))
        cutter = logs.Cutter.at(attempt.log_mark)
        upstream = streams.follow_log(
            attempt.queue.namespace, attempt.pod_name, CONTAINER, since_time=cutter.since, timestamps=True
        )
        async for piece in in_time(upstream):
            crashpoints.reach("log-piece-came")
            data = cutter.feed(piece)
            if data:
                await control.in_thread(logs.append, attempt, data, cutter.mark)
                crashpoints.reach("log-piece-stored")
            if attempt.log_truncated:
                return


def _goes_on(attempt: Attempt) -> bool:
    alive = attempt.state in {AttemptState.QUEUED, AttemptState.RUNNING, AttemptState.CANCELLING}
    return alive and bool(attempt.pod_name) and not attempt.log_complete and not attempt.log_truncated


async def in_time(upstream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Gather pieces: what has come in half a second, or 64 KiB when that is sooner, is one.

    The reader goes on meanwhile; when storing is slow it waits (the queue is bounded) and so does the cluster.
    """
    pieces: asyncio.Queue[bytes | None] = asyncio.Queue(QUEUE_PIECES)

    async def pump() -> None:
        try:
            async for piece in upstream:
                await pieces.put(piece)
        finally:
            await pieces.put(None)

    reader = asyncio.create_task(pump())
    loop = asyncio.get_running_loop()
    try:
        while (first := await pieces.get()) is not None:
            gathered, until = bytearray(first), loop.time() + FLUSH_S
            ended = False
            while len(gathered) < FLUSH_BYTES and (left := until - loop.time()) > 0:
                try:
                    piece = await asyncio.wait_for(pieces.get(), left)
                except TimeoutError:
                    break
                if piece is None:
                    ended = True
                    break
                gathered += piece
            yield bytes(gathered)
            if ended:
                break
        await reader
    finally:
        reader.cancel()
        with contextlib.suppress(asyncio.CancelledError, KubeError):
            await reader


collector = Collector()


async def retention(stop: asyncio.Event) -> None:
    """At the start and twice a day: partitions for the weeks to come, and an end to old logs."""
    while True:
        dropped = await control.in_thread(partitions.keep_up)
        if dropped:
            log.info("%d weeks of old logs were removed", dropped)
        if await control.sleep(stop, RETENTION_S):
            return
