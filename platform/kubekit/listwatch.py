"""Keep looking at one kind: list, watch, and list again whenever the watch cannot be trusted. It never gives up.

A watch only wakes its reader; what it says may be old (failure F6). So `on_sync` gives the whole list each time, and a
reader that missed events in between is made right by it. 410 (an ERROR event inside HTTP 200), a broken line, a silent
connection and any refusal all lead to the same place: wait a little, list again.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from kubekit.errors import BadAnswer, Gone, KubeError, TooManyRequests, Unreachable
from kubekit.kinds import kind_named
from kubekit.streams import Streams

Obj = dict[str, Any]
OnEvent = Callable[[str, Obj], Awaitable[None] | None]
OnSync = Callable[[list[Obj]], Awaitable[None] | None]
Trim = Callable[[Obj], Obj]
OnError = Callable[[KubeError], Awaitable[None] | None]

log = logging.getLogger(__name__)

#: The server is asked to end each watch after this long, which also bounds how long a dead one goes unnoticed. Ending
#: well costs one request and no list. (Waiting for bookmarks would not do: they come about every 60 s.)
WATCH_S = 44
#: Silence for longer than a whole watch means that the connection is half open (failure F1). With the list that
#: follows, what happened meanwhile is known within a minute.
READ_TIMEOUT_S = 50.0
#: The whole list is read again this often even when all seems well.
RELIST_S = 600.0
_FIRST_DELAY_S = 0.5
_LONGEST_DELAY_S = 30.0
#: After this long without a failure the back-off starts from its beginning.
_CALM_S = 60.0
_SHORT_S = 1.0


class ListWatch:
    """Lists and watches one kind until cancelled: ``await ListWatch(...).run()``.

    ``on_sync`` gets every complete list (raw objects), ``on_event`` each later change as ("ADDED" | "MODIFIED" |
    "DELETED", raw object), ``on_error`` each failure; all three may be plain or async functions, and an exception in
    them ends `run`. ``trim`` makes of each listed object what the reader needs of it before the next page comes, since
    a list of thousands is held in memory as a whole. `last_contact` is the `time.monotonic` of the last sign of life
    (None before the first), `synced` an event that is set once the first list is through.
    """

    def __init__(
        self,
        streams: Streams,
        kind: str,
        namespace: str | None = None,
        *,
        labels: Mapping[str, str] | None = None,
        on_event: OnEvent,
        on_sync: OnSync,
        on_error: OnError | None = None,
        trim: Trim | None = None,
        read_timeout_s: float = READ_TIMEOUT_S,
        watch_s: int = WATCH_S,
        relist_s: float = RELIST_S,
        page_size: int = 500,
        first_delay_s: float = _FIRST_DELAY_S,
        longest_delay_s: float = _LONGEST_DELAY_S,
    ) -> None:
        self._streams = streams
        self._kind = kind_named(kind)
        self._namespace = namespace
        self._labels = labels
        self._on_event = on_event
        self._on_sync = on_sync
        self._on_error = on_error
        self._trim = trim
        self._read_timeout_s = read_timeout_s
        self._watch_s = watch_s
        self._relist_s = relist_s
        self._page_size = page_size
        self._first_delay_s = first_delay_s
        self._longest_delay_s = longest_delay_s
        self.last_contact: float | None = None
        self.last_error: KubeError | None = None
        self.synced = asyncio.Event()

    def silent_s(self) -> float:
        """Seconds since the last sign of life; infinite before the first."""
        return float("inf") if self.last_contact is None else time.monotonic() - self.last_contact

    async def run(self) -> None:
        """List and watch until the task is cancelled."""
        failures, told = 0, ""
        while True:
            began = time.monotonic()
            try:
                version = await self._list()
                relist_at = time.monotonic() + self._relist_s
                while time.monotonic() < relist_at:
                    version = await self._watch(version)
                failures, told = 0, ""
                continue
            except Gone as error:
                # Our place in the history is lost: nothing is wrong with the cluster, and the list makes it good.
                self._heard()
                failure: KubeError = error
            except KubeError as error:
                failure = error
                self.last_error = error
                # Every watch of a cluster that is away says so every half minute: once is enough, and its reader
                # knows what it means.
                level = logging.DEBUG if error.code == told else logging.INFO
                log.log(level, "watching %s failed (%s): %s", self._kind.name, error.code, error.message)
                told = error.code
            if self._on_error is not None:
                await _settle(self._on_error(failure))
            failures = 1 if time.monotonic() - began > _CALM_S else failures + 1
            await asyncio.sleep(self._delay_s(failures, failure))

    async def _list(self) -> str:
        items: list[Obj] = []
        token: str | None = None
        while True:
            page = await self._streams.list_page(
                self._kind.name,
                self._namespace,
                labels=self._labels,
                limit=self._page_size,
                continue_token=token,
                trim=self._trim,
                read_timeout_s=min(self._read_timeout_s, 30.0),
            )
            self._heard()
            for item in page.get("items") or ():
                item.setdefault("kind", self._kind.name)
                item.setdefault("apiVersion", self._kind.api_version)
                items.append(item)
            metadata = page.get("metadata") or {}
            token = metadata.get("continue") or None
            if token is None:
                break
        self.last_error = None
        await _settle(self._on_sync(items))
        self.synced.set()
        version = metadata.get("resourceVersion")
        if not version:
            raise BadAnswer(f"the list of {self._kind.plural} has no resourceVersion", status=200)
        return str(version)

    async def _watch(self, version: str) -> str:
        """One watch from ``version`` on; the version to go on from."""
        began = time.monotonic()
        async for event in self._streams.watch(
            self._kind.name,
            self._namespace,
            resource_version=version,
            labels=self._labels,
            timeout_s=self._watch_s,
            read_timeout_s=self._read_timeout_s,
        ):
            self._heard()
            obj = event.get("object") or {}
            version = (obj.get("metadata") or {}).get("resourceVersion") or version
            if event["type"] != "BOOKMARK":
                await _settle(self._on_event(event["type"], obj))
        self._heard()
        if time.monotonic() - began < _SHORT_S:
            # A proxy that ends every watch at once must not make this a busy loop.
            await asyncio.sleep(self._first_delay_s)
        return version

    def _heard(self) -> None:
        self.last_contact = time.monotonic()

    def _delay_s(self, failures: int, failure: KubeError) -> float:
        if isinstance(failure, Gone) and failures == 1:
            return 0.0
        delay = min(self._longest_delay_s, self._first_delay_s * (1 << min(failures - 1, 16)))
        if isinstance(failure, TooManyRequests):
            delay = max(delay, min(failure.retry_after_s, self._longest_delay_s))
        if isinstance(failure, Unreachable) and failures == 1 and self.synced.is_set():
            # The usual cause is an idle connection that something in between dropped.
            delay = min(delay, self._first_delay_s)
        # Half fixed, half random: many watchers must not come back at the same instant.
        return delay * (0.5 + random.random() / 2)  # noqa: S311 - spreads load, guards nothing


async def _settle(result: Awaitable[None] | None) -> None:
    if result is not None:
        await result
