"""Who wants to hear of what happens in the clusters. Apps register in ``ready()``; the control process calls.

Handlers run in a thread of their cluster, one at a time and in order, outside any transaction. What comes while they
run is handed over together afterwards: one change when the cluster is quiet, hundreds when it is busy, and a handler
that takes them all at once pays once. A watch only wakes: what it says may be old, and events may be missing between
two lists, so every handler has a resync beside it or a sweep behind it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from kubekit.kinds import KINDS

Raw = dict[str, Any]
ObjectHandler = Callable[[UUID, str, Raw], None]
"""``(cluster id, "ADDED" | "MODIFIED" | "DELETED", raw object)``"""
ObjectsHandler = Callable[[UUID, Sequence[tuple[str, Raw]]], None]
"""The same for all changes since the last call, in order."""
ResyncHandler = Callable[[UUID, list[Raw]], None]
"""``(cluster id, every labelled object of the kind)``, after each complete list"""
EventHandler = Callable[[UUID, Raw, Mapping[str, str]], None]
"""``(cluster id, raw Event, labels of the object it is about)``"""
EventsHandler = Callable[[UUID, Sequence[tuple[Raw, Mapping[str, str]]]], None]
"""The same for all Events since the last call, in order."""
NodeHandler = Callable[[UUID, str], None]
"""``(cluster id, name of the node)``"""

log = logging.getLogger(__name__)

# Of two kinds with one plural the first is meant: nodes, not the metrics of nodes.
_PLURALS = {kind.plural: kind.name for kind in reversed(KINDS.values())}


@dataclass(kw_only=True)
class Registry:
    """The handlers by resource (``pods``) and by the label ``mlportal.io/kind`` of the objects."""

    objects: dict[tuple[str, str], list[ObjectsHandler]] = field(default_factory=dict)
    resyncs: dict[tuple[str, str], list[ResyncHandler]] = field(default_factory=dict)
    events: list[EventsHandler] = field(default_factory=list)
    nodes_gone: list[NodeHandler] = field(default_factory=list)

    def resources(self) -> set[str]:
        """The resources to watch for handlers' sake."""
        return {resource for resource, _kind in (*self.objects, *self.resyncs)}


registry = Registry()


def on_object(resource: str, kind_label: str, handler: ObjectHandler) -> None:
    """Call ``handler`` after each change of an object of ``resource`` (plural: ``pods``, ``statefulsets``) of ours
    that is labelled ``mlportal.io/kind=<kind_label>``."""
    on_objects(resource, kind_label, _one_by_one(handler))


def on_objects(resource: str, kind_label: str, handler: ObjectsHandler) -> None:
    """The same for a handler that takes all changes since its last call at once."""
    _check(resource)
    registry.objects.setdefault((resource, kind_label), []).append(handler)


def on_resync(resource: str, kind_label: str, handler: ResyncHandler) -> None:
    """Call ``handler`` with all of them after each complete list: at the start, after every gap, every ten minutes."""
    _check(resource)
    registry.resyncs.setdefault((resource, kind_label), []).append(handler)


def on_event(handler: EventHandler) -> None:
    """Call ``handler`` for each new or repeated Event about an object that is watched here and is ours."""
    on_events(_one_by_one(handler))


def on_events(handler: EventsHandler) -> None:
    """The same for a handler that takes all Events since its last call at once."""
    registry.events.append(handler)


def on_node_gone(handler: NodeHandler) -> None:
    """Call ``handler`` for each node that is no longer in its cluster, once the rows of nodes say so, too."""
    registry.nodes_gone.append(handler)


def kind_of(resource: str) -> str:
    """``pods`` -> ``Pod``."""
    return _PLURALS[resource]


def _one_by_one(handler: Callable[..., None]) -> Callable[[UUID, Sequence[tuple[Any, Any]]], None]:
    def each(cluster_pk: UUID, told: Sequence[tuple[Any, Any]]) -> None:
        for one in told:
            try:
                handler(cluster_pk, *one)
            except Exception:  # a fault about one object must not keep the others' news from the handler
                log.exception("%s.%s failed", handler.__module__, getattr(handler, "__qualname__", handler))

    return each


def _check(resource: str) -> None:
    if resource not in _PLURALS:
        raise ValueError(f"{resource!r} is not the plural of a kind that kubekit knows")
