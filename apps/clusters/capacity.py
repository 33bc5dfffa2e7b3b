"""What the watcher knows of a cluster's nodes and pods, and how it reaches the ``Node`` rows: only what changed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from apps.clusters.models import Cluster, Node
from apps.clusters.nodes import NodeFacts, PodRequest, Sums, node_facts, pod_request, requested_by_node
from apps.core import bulk, live

Raw = Mapping[str, Any]
COLUMNS = ("ready", "schedulable", "allocatable", "requested", "labels", "taints")


@dataclass
class Capacity:
    """One cluster in memory, and which of its nodes' rows may differ from it (``touched``; ``complete``: all)."""

    nodes: dict[str, NodeFacts] = field(default_factory=dict)
    pods: dict[str, PodRequest] = field(default_factory=dict)
    nodes_known: bool = False
    pods_known: bool = False
    complete: bool = False
    touched: set[str] = field(default_factory=set)

    def sync_nodes(self, items: Iterable[Raw]) -> None:
        """A complete list of nodes."""
        facts = (node_facts(raw) for raw in items)
        self.nodes = {node.name: node for node in facts}
        self.nodes_known = self.complete = True

    def node_changed(self, event_type: str, raw: Raw) -> None:
        """One node; heartbeats change nothing here."""
        facts = node_facts(raw)
        before = self.nodes.pop(facts.name, None)
        if event_type != "DELETED":
            self.nodes[facts.name] = facts
        if before != self.nodes.get(facts.name):
            self.touched.add(facts.name)

    def sync_pods(self, items: Iterable[Raw]) -> None:
        """A complete list of pods, everybody's."""
        self.pods = {}
        for raw in items:
            self._put(raw)
        self.pods_known = self.complete = True

    def pod_changed(self, event_type: str, raw: Raw) -> None:
        """One pod; only what it asks for and where it is matters."""
        before = self.pods.pop(_uid(raw), None)
        if event_type != "DELETED":
            self._put(raw)
        after = self.pods.get(_uid(raw))
        if before != after:
            self.touched |= {request.node for request in (before, after) if request is not None and request.node}

    def _put(self, raw: Raw) -> None:
        request = pod_request(raw)
        if request is not None:
            self.pods[_uid(raw)] = request

    def take(self) -> Changes | None:
        """What may differ since the last call; None when nothing does, or half of the picture is missing."""
        if not self.is_known or not (self.complete or self.touched):
            return None
        names = self.nodes.keys() if self.complete else self.touched & self.nodes.keys()
        requested = requested_by_node(pod for pod in self.pods.values() if pod.node in names)
        found = Changes(
            rows={name: _columns(self.nodes[name], requested.get(name, {})) for name in names},
            complete=self.complete,
            gone=frozenset(self.touched - self.nodes.keys()),
        )
        self.complete, self.touched = False, set()
        return found

    @property
    def is_known(self) -> bool:
        """True once both lists were read; half of it would show nodes as empty."""
        return self.nodes_known and self.pods_known


@dataclass(frozen=True, kw_only=True)
class Changes:
    """Node name -> columns; ``complete``: what is not among them is gone, else ``gone`` names those."""

    rows: Mapping[str, Mapping[str, Any]]
    complete: bool = True
    gone: Collection[str] = ()


@dataclass(frozen=True, kw_only=True)
class Stored:
    """How many rows were written, and the names of those that went."""

    written: int
    gone: Collection[str]


def store(cluster_pk: UUID, changes: Changes) -> Stored:
    """Bring the cluster's rows to what is wanted; only rows that differ are written, and only those asked for read."""
    now = timezone.now()
    rows = Node.objects.as_system().filter(cluster_id=cluster_pk)
    with transaction.atomic():
        asked = rows if changes.complete else rows.filter(name__in=[*changes.rows, *changes.gone])
        known = {row.name: row for row in asked}
        changed: list[Node] = []
        for name, columns in changes.rows.items():
            row = known.get(name)
            if row is not None and any(getattr(row, column) != value for column, value in columns.items()):
                for column, value in columns.items():
                    setattr(row, column, value)
                row.seen_at = now
                changed.append(row)
        new = [
            Node(cluster_id=cluster_pk, name=name, seen_at=now, **columns)
            for name, columns in changes.rows.items()
            if name not in known
        ]
        gone = {name: row.pk for name, row in known.items() if name not in changes.rows}
        if changed:
            bulk.update(Node, changed, [*COLUMNS, "seen_at"])
        if new:
            Node.objects.bulk_create(new, batch_size=500)
        if gone:
            rows.filter(pk__in=gone.values()).delete()
        written = len(changed) + len(new) + len(gone)
        if written:
            live.announce(Cluster(pk=cluster_pk))
    return Stored(written=written, gone=sorted(gone))


def _columns(node: NodeFacts, requested: Sums) -> dict[str, Any]:
    return {
        "ready": node.ready,
        "schedulable": node.schedulable,
        "allocatable": node.allocatable,
        "requested": requested,
        "labels": node.labels,
        "taints": [dict(taint) for taint in node.taints],
    }


def _uid(raw: Raw) -> str:
    return str((raw.get("metadata") or {}).get("uid", ""))
