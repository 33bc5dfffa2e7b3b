"""Live updates: after commit, "this row changed" goes to whoever looks at its queue; nothing else does.

The message is ``{kind, pk}`` alone. The browser fetches the row again through its ordinary view, so
permission is checked where it always is. A lost message costs seconds: pages poll as a fall-back.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
from django.db import transaction
from redis.exceptions import RedisError

from apps.core.actors import Actor
from apps.core.models import Record

log = logging.getLogger(__name__)

ADMINS = "live.admins"
AWAY = (OSError, RuntimeError, RedisError)
MOST_AT_ONCE = 500
"""Rows in one message: some 25 kB."""
Row = tuple[str, str]
"""Kind and id."""
GroupFinder = Callable[[Actor], set[str]]
_finders: list[GroupFinder] = []


def group(scope: str) -> str:
    """The channel-layer group of a scope (a queue's id in hex, say)."""
    return f"live.{scope}"


def register_groups(finder: GroupFinder) -> None:
    """Add a function that names the groups an actor may hear."""
    _finders.append(finder)


def groups_for(actor: Actor) -> set[str]:
    """All groups that this actor may hear now; asked again every half minute per connection (F45)."""
    found = {ADMINS} if actor.is_admin else set()
    for finder in _finders:
        found |= finder(actor)
    return found


def announce(obj: Record) -> None:
    """Tell watchers after commit that ``obj`` changed."""
    announce_many((obj,))


def announce_many(objs: Iterable[Record]) -> None:
    """The same for rows that change in one transaction: one message for each group of listeners."""
    rows: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for obj in objs:
        scope = obj.live_scope()
        rows[group(scope) if scope else ADMINS].append((obj._meta.model_name or "", str(obj.pk)))
    transaction.on_commit(lambda: _send(rows))


def _send(rows: Mapping[str, Sequence[Row]]) -> None:
    if _own:
        _own[0].post(rows)
        return
    layer = get_channel_layer()
    if layer is None:
        return
    try:
        async_to_sync(_send_all)(layer, rows)
    except AWAY as error:
        # Redis carries hints only: its absence must not fail the change that was just committed.
        log.warning("live updates for %d groups were not sent: %s", len(rows), error)


async def _send_all(layer: Any, rows: Mapping[str, Sequence[Row]]) -> None:
    for name, changes in rows.items():
        for first in range(0, len(changes), MOST_AT_ONCE):
            await layer.group_send(name, {"type": "changed", "rows": changes[first : first + MOST_AT_ONCE]})


class Sender:
    """Sends from one loop in a thread of its own, whose connection lasts; nobody waits for it.

    Of what is announced while a message is on its way each row is told once, in the next message.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, dict[Row, None]] = {}
        self._task: asyncio.Task[None] | None = None
        self._busy = False
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="live", daemon=True).start()

    def post(self, rows: Mapping[str, Sequence[Row]]) -> None:
        """Have them sent soon."""
        with self._lock:
            for name, changes in rows.items():
                self._waiting.setdefault(name, {}).update(dict.fromkeys(changes))
            busy, self._busy = self._busy, True
        if not busy:
            self._loop.call_soon_threadsafe(self._begin)

    def _begin(self) -> None:
        self._task = self._loop.create_task(self._drain())

    async def _drain(self) -> None:
        layer = get_channel_layer()
        while True:
            with self._lock:
                taken, self._waiting = self._waiting, {}
                self._busy = bool(taken)
            if not taken:
                return
            if layer is None:
                continue
            try:
                await _send_all(layer, {name: list(changes) for name, changes in taken.items()})
            except AWAY as error:
                log.warning("live updates for %d groups were not sent: %s", len(taken), error)


_own: list[Sender] = []


def send_from_own_loop() -> None:
    """For a process without a loop that lasts (worker, control): else each announcement made a loop and a connection.

    Call it once, in the process itself: threads do not survive a fork.
    """
    _own[:] = [Sender()]
