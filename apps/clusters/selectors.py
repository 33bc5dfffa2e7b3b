"""Clusters with the sums of their nodes, for lists."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from django.db.models import Q, QuerySet

from apps.clusters.models import Cluster, Node
from apps.clusters.nodes import resources_of
from apps.clusters.states import ClusterState
from apps.core.actors import Actor
from apps.core.listing import ListSpec

CLUSTER_LIST = ListSpec(
    filters={"state": lambda text: Q(state=text), "name": lambda text: Q(name__icontains=text)},
    sorts={"name": "name", "created": "created_at"},
    default_sort="name",
)


@dataclass(kw_only=True)
class Capacity:
    """A cluster's nodes added up: resource -> (asked for, there is)."""

    nodes: int = 0
    ready: int = 0
    requested: dict[str, int] = field(default_factory=dict)
    allocatable: dict[str, int] = field(default_factory=dict)

    @property
    def resources(self) -> list[tuple[str, int, int]]:
        """See `resources_of`."""
        return resources_of(self.requested, self.allocatable)


def clusters(actor: Actor) -> QuerySet[Cluster]:
    """All that are not removed."""
    rows: QuerySet[Cluster] = Cluster.objects.for_actor(actor)
    return rows.exclude(state=ClusterState.REMOVED)


def nodes(actor: Actor, cluster: Cluster) -> QuerySet[Node]:
    """The cluster's nodes by name, for administrators."""
    rows: QuerySet[Node] = Node.objects.for_actor(actor)
    return rows.filter(cluster=cluster).order_by("name")


def has_lost_node(cluster_pk: UUID, name: str) -> bool:
    """Whether the cluster's nodes are known and this one is not among them (any more)."""
    nodes = Node.objects.as_system().filter(cluster_id=cluster_pk)
    return not nodes.filter(name=name).exists() and nodes.exists()


def limits_are_soft(cluster_pk: UUID, node: str) -> bool:
    """Whether this node only measures memory and ends what is over; no more than that is told of it."""
    found = Node.objects.as_system().filter(cluster_id=cluster_pk, name=node).first()
    return found is not None and found.has_soft_limits


def capacities(clusters: Iterable[Cluster]) -> Mapping[UUID, Capacity]:
    """Sums over the ready nodes of each cluster, in one statement. Sums say nothing about whose pods they are."""
    found = {cluster.pk: Capacity() for cluster in clusters}
    for node in Node.objects.as_system().filter(cluster_id__in=list(found)):
        capacity = found[node.cluster_id]
        capacity.nodes += 1
        if not node.ready:
            continue
        capacity.ready += 1
        for sums, given in ((capacity.requested, node.requested), (capacity.allocatable, node.allocatable)):
            for name, count in given.items():
                sums[name] = sums.get(name, 0) + int(count)
    return found
