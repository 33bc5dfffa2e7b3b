"""One committed change, and a watch: the changes of one resource, queued for one reader."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from localkube.status import Object

_WATCH_BACKLOG: Final = 20_000
"""Events a slow reader may leave unread before its watch ends with 410."""


@dataclass(frozen=True, slots=True)
class Event:
    """One committed change. `previous` lets a watch with a selector see an object enter and leave its selection."""

    type: str
    resource: str
    obj: Object
    previous: Object | None
    version: int


@dataclass(eq=False)
class Watch:
    """Events of one resource after a version, in order, without a gap. Close it when done."""

    resource: str
    events: deque[Event]
    overflowed: bool = False
    _wake: asyncio.Event = field(default_factory=asyncio.Event)

    def push(self, event: Event) -> None:
        if len(self.events) >= _WATCH_BACKLOG:
            self.overflowed = True
        else:
            self.events.append(event)
        self._wake.set()

    async def wait(self) -> None:
        """Return when there may be something to read."""
        if not self.events and not self.overflowed:
            self._wake.clear()
            await self._wake.wait()
