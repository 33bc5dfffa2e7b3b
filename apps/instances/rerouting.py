"""A cluster's instances are to be reached in another way: each gets its new route, and its old one goes after that."""

from __future__ import annotations

from uuid import UUID

from apps.clusters.exposing import ROUTE_KINDS
from apps.core import reconciling, wake
from apps.instances.models import Instance
from apps.instances.spec import KIND
from apps.instances.states import LAUNCHED, InstanceState


def former_kinds(instance: Instance, kind: str) -> list[str]:
    """The kinds of routes, other than ``kind``, of which one is or may be there for the instance. ``kind`` is empty
    where instances need none."""
    return sorted(set(ROUTE_KINDS.values()).intersection(instance.object_uids) - {kind})


def kind_of(instance: Instance) -> str:
    """The kind of route that leads to it now, empty where it needs none."""
    return ROUTE_KINDS[instance.queue.cluster.exposure]


def reroute(cluster_pk: UUID, left: str) -> None:
    """Have the routes of all launched instances written anew, inside the transaction that changes the cluster.

    ``left`` is the kind of route that nobody makes any more. Whether one is there is not always known (a worker may
    have died between the write and the row), so each instance that is not at rest is told to look for it.
    """
    rows = Instance.objects.as_system().select_for_update(of=("self",)).filter(queue__cluster_id=cluster_pk)
    for instance in rows.exclude(state=InstanceState.DELETED):
        values: dict[str, object] = {}
        if left and instance.at_rest:
            values["object_uids"] = {kind: uid for kind, uid in instance.object_uids.items() if kind != left}
        elif left:
            values["object_uids"] = {left: "", **instance.object_uids}
        if instance.state in LAUNCHED:
            values |= {"generation": instance.generation + 1, **reconciling.look_now(instance)}
            reconciling.hint(KIND, instance.pk)
        if values:
            Instance.objects.as_system().filter(pk=instance.pk).update(**values)
    wake.notify(wake.INSTANCES)  # the gateway leads to those of this cluster from now on, or no longer
