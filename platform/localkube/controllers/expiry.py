"""Events live for an hour: one timer for the oldest, none when there are no events."""

from __future__ import annotations

from collections.abc import Hashable
from datetime import UTC, datetime
from typing import Final

from localkube.controllers.base import Controller
from localkube.status import Object
from localkube.times import parse_time

_SWEEP: Final = "sweep"


def _seen(event: Object) -> datetime:
    text = event.get("lastTimestamp") or event.get("eventTime") or event["metadata"]["creationTimestamp"]
    return parse_time(text)


class EventExpiry(Controller):
    """Deletes events that nothing repeated for the time to live."""

    name = "event-expiry"

    def watch(self) -> None:
        self._unsubscribe.append(self.store.subscribe("events", self._on_event))
        self.enqueue(_SWEEP)

    def _on_event(self, event_type: str, _event: Object) -> None:
        if event_type == "ADDED" and _SWEEP not in self._timers:
            self.enqueue_after(_SWEEP, self.config.event_ttl_s)

    def reconcile(self, key: Hashable) -> None:
        instant = datetime.now(UTC)
        oldest = 0.0
        for event in tuple(self.store.iterate("events")):
            age = (instant - _seen(event)).total_seconds()
            if age >= self.config.event_ttl_s:
                self.store.delete("events", event["metadata"]["namespace"], event["metadata"]["name"])
            else:
                oldest = max(oldest, age)
        if next(iter(self.store.iterate("events")), None) is not None:
            # Never more often than every hundredth of the time to live, however the ages are spread.
            self.enqueue_after(_SWEEP, max(self.config.event_ttl_s / 100, self.config.event_ttl_s - oldest))
