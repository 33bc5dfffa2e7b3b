"""What the cluster said of all that lives in a queue. Apps above say where it is; a queue keeps nothing of its own."""

from __future__ import annotations

from collections.abc import Callable

from apps.clusters.events import Row, newest
from apps.core.actors import Actor
from apps.tenants.models import Queue

Finder = Callable[[Queue, Actor], list[Row]]
"""``(queue, reader) -> events``, as `apps.clusters.events.shown` makes them, of what the reader may see there"""

_finders: list[Finder] = []


def register(finder: Finder) -> None:
    """Add a function that reads the events of one kind of object; called from ``AppConfig.ready``."""
    _finders.append(finder)


def of(queue: Queue, actor: Actor) -> list[Row]:
    """Those of every kind together, newest first; one statement for each kind."""
    return newest(row for finder in _finders for row in finder(queue, actor))
