"""What the watcher knows of a cluster's nodes and pods, and how it reaches the ``Node`` rows: only what changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from apps.clusters.models import Cluster, Node
from apps.clusters.nodes import NodeFacts, PodRequest, Sums, node_facts, pod_request, requested_by_node
from apps.core import live

Raw = Mapping[str, Any]
COLUMNS = ("ready", "schedulable", "allocatable", "requested", "labels", "taints")


@dataclass
class Capacity:
    """One cluster in memory. ``dirty`` says that rows may differ from it, ``gone`` names nodes that went since."""

    nodes: dict[str, NodeFacts] = field(default_factory=dict)
    pods: dict[str, PodRequest] = field(default_factory=dict)
    nodes_known: bool = False
    pods_known: bool = False
    dirty: bool = False
    gone: set[str] = field(default_factory=set)

    def sync_nodes(self, items: Iterable[Raw]) -> None:
        """A complete list of nodes."""
        facts = (node_facts(raw) for raw in items)
        before, self.nodes = self.nodes, {node.name: node for node in facts}
        self.gone |= before.keys() - self.nodes.keys()
        self.nodes_known = self.dirty = True

    def node_changed(self, event_type: str, raw: Raw) -> None:
        """One node; heartbeats change nothing here."""
        facts = node_facts(raw)
        before = self.nodes.pop(facts.name, None)
        if event_type == "DELETED":
            self.gone.add(facts.name)
        else:
            self.nodes[facts.name] = facts
        self.dirty |= before != self.nodes.get(facts.name)

    def sync_pods(self, items: Iterable[Raw]) -> None:
        """A complete list of pods, everybody's."""
        self.pods = {}
        for raw in items:
            self._put(raw)
        self.pods_known = self.dirty = True

    def pod_changed(self, event_type: str, raw: Raw) -> None:
        """One pod; only what it asks for and where it is matters."""
        before = self.pods.pop(_uid(raw), None)
        if event_type != "DELETED":
            self._put(raw)
        self.dirty |= before != self.pods.get(_uid(raw))

    def _put(self, raw: Raw) -> None:
        request = pod_request(raw)
        if request is not None:
            self.pods[_uid(raw)] = request

    def rows(self) -> dict[str, dict[str, Any]]:
        """Node name -> columns."""
        requested = requested_by_node(self.pods.values())
        return {name: _columns(node, requested.get(name, {})) for name, node in self.nodes.items()}

    @property
    def is_known(self) -> bool:
        """True once both lists were read; half of it would show nodes as empty."""
        return self.nodes_known and self.pods_known


def store(cluster_pk: UUID, wanted: Mapping[str, Mapping[str, Any]]) -> int:
    """Bring the cluster's rows to ``wanted``; how many rows were written."""
    now = timezone.now()
    with transaction.atomic():
        known = {row.name: row for row in Node.objects.as_system().filter(cluster_id=cluster_pk)}
        changed: list[Node] = []
        for name, columns in wanted.items():
            row = known.get(name)
            if row is not None and any(getattr(row, column) != value for column, value in columns.items()):
                for column, value in columns.items():
                    setattr(row, column, value)
                row.seen_at = now
                changed.append(row)
        new = [
            Node(cluster_id=cluster_pk, name=name, seen_at=now, **columns)
            for name, columns in wanted.items()
            if name not in known
        ]
        gone = [row.pk for name, row in known.items() if name not in wanted]
        if changed:
            Node.objects.as_system().bulk_update(changed, [*COLUMNS, "seen_at"], batch_size=200)
        if new:
            Node.objects.bulk_create(new, batch_size=200)
        if gone:
            Node.objects.as_system().filter(pk__in=gone).delete()
        written = len(changed) + len(new) + len(gone)
        if written:
            live.announce(Cluster(pk=cluster_pk))
    return written


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
