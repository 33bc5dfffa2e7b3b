"""The real watcher of one cluster, in a thread of its own, with time-outs short enough for a test."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

import pytest

from apps.clusters import access, watcher
from kubekit.listwatch import ListWatch
from tests.faults.proxy import PATIENCE_S
from tests.faults.world import World

#: In place of 50 s of silence and back-off up to half a minute.
QUICK = {"read_timeout_s": 1.5, "first_delay_s": 0.05, "longest_delay_s": 0.2}


class Watching:
    """``with Watching(world, monkeypatch):`` the control process watches; handlers run as they do there."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(watcher, "ListWatch", partial(ListWatch, **QUICK))
        self._world = world
        self._loop = asyncio.new_event_loop()
        self._task: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="watching", daemon=True)

    def __enter__(self) -> Watching:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._world.proxy.calm()
        self._loop.call_soon_threadsafe(lambda: self._task and self._task.cancel())
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "the watcher does not end"

    def _run(self) -> None:
        async def watch() -> None:
            async with watcher.Watcher(self._world.cluster.pk, access.credentials_of(self._world.cluster)) as one:
                await one.run()

        async def until_cancelled() -> None:
            self._task = asyncio.ensure_future(watch())
            await asyncio.gather(self._task, return_exceptions=True)

        self._loop.run_until_complete(until_cancelled())
        self._loop.close()
