"""A work queue on the event loop: keys wake by events, are handled once however often they woke, and retry."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable
from typing import Final

from localkube.config import Config
from localkube.registry import Registry
from localkube.status import ApiError, Object
from localkube.store import Store

log = logging.getLogger(__name__)

_FIRST_RETRY_S: Final = 0.1
_LONGEST_RETRY_S: Final = 60.0


class Controller:
    """Base of the control loops. Reconciling is synchronous, so nothing else writes during it; idle costs nothing."""

    name = "controller"

    def __init__(self, registry: Registry, config: Config) -> None:
        self.registry = registry
        self.store: Store = registry.store
        self.config = config
        self._due: dict[Hashable, None] = {}
        self._failures: dict[Hashable, int] = {}
        self._timers: dict[Hashable, asyncio.TimerHandle] = {}
        self._running: asyncio.Handle | None = None
        self._unsubscribe: list[Callable[[], None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Begin to follow the store; wakes for everything stored, as nothing was seen while it was down."""
        self._loop = asyncio.get_running_loop()
        self.watch()

    def watch(self) -> None:
        """Subscribe and enqueue; the place for a controller's own wiring."""
        raise AssertionError(f"{type(self).__name__} watches nothing")

    def reconcile(self, key: Hashable) -> None:
        """Make one key right. Raises ApiError to be called again later."""
        raise AssertionError(f"{type(self).__name__} does not reconcile {key}")

    def follow(self, resource: str, key_of: Callable[[str, Object], Hashable | None]) -> None:
        """Enqueue key_of(event type, object) on every event of a resource, and once for each stored object."""

        def on_event(event_type: str, obj: Object) -> None:
            key = key_of(event_type, obj)
            if key is not None:
                self.enqueue(key)

        self._unsubscribe.append(self.store.subscribe(resource, on_event))
        for obj in tuple(self.store.iterate(resource)):
            on_event("ADDED", obj)

    def enqueue(self, key: Hashable) -> None:
        """Handle a key soon."""
        self._due[key] = None
        if self._running is None and self._loop is not None:
            self._running = self._loop.call_soon(self._drain)

    def enqueue_after(self, key: Hashable, seconds: float) -> None:
        """Handle a key after some time; a later call for the key replaces the earlier one."""
        assert self._loop is not None
        if timer := self._timers.pop(key, None):
            timer.cancel()
        self._timers[key] = self._loop.call_later(seconds, self._on_timer, key)

    def _on_timer(self, key: Hashable) -> None:
        self._timers.pop(key, None)
        self.enqueue(key)

    def _drain(self) -> None:
        self._running = None
        due, self._due = self._due, {}
        for key in due:
            try:
                self.reconcile(key)
                self._failures.pop(key, None)
            except ApiError as error:
                count = self._failures[key] = self._failures.get(key, 0) + 1
                log.debug("%s: %s: %s", self.name, key, error)
                self.enqueue_after(key, min(_LONGEST_RETRY_S, _FIRST_RETRY_S * 2 ** min(count, 12)))
            except Exception:  # one object's fault must not stop the loop for the others
                count = self._failures[key] = self._failures.get(key, 0) + 1
                log.exception("%s failed on %s", self.name, key)
                self.enqueue_after(key, min(_LONGEST_RETRY_S, _FIRST_RETRY_S * 2 ** min(count, 12)))

    def stop(self) -> None:
        """Stop following, and forget what was due."""
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        self._unsubscribe.clear()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        if self._running:
            self._running.cancel()
        self._loop = None


def key_of(_event_type: str, obj: Object) -> tuple[str, str]:
    """The usual key: namespace and name."""
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def controller_ref(owner: Object) -> Object:
    """The owner reference of an object that `owner` controls."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def controller_of(obj: Object) -> Object | None:
    """The owner reference that controls an object, if any."""
    return next((ref for ref in obj["metadata"].get("ownerReferences") or () if ref.get("controller")), None)
