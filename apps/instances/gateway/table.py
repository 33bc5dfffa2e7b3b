"""What the rows say of the launches that the gateway leads to. All block."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.db.models import Q

from apps.clusters import access
from apps.clusters.models import Cluster, Exposure
from apps.instances.gateway.places import Launch
from apps.instances.models import Instance, OpenPort, PortGuest
from apps.instances.states import LAUNCHED, InstanceState
from kubekit import names

#: There may be a program; whether it answers is found out by asking it.
OPEN = frozenset({InstanceState.RUNNING, InstanceState.UNREACHABLE})
FOREVER = float("inf")
STARTING = LAUNCHED - OPEN


@dataclass(frozen=True, kw_only=True)
class Found:
    """Launches, and the clusters that they are in."""

    launches: list[Launch] = field(default_factory=list)
    clusters: dict[UUID, tuple[Cluster, bool]] = field(default_factory=dict)
    """With each, whether the portal runs in it, so that its pods can be dialled."""
    ports: dict[UUID, dict[int, dict[int, float]]] = field(default_factory=dict)
    """Open ports by instance and number, with the people who may use them and until when."""


def read(only: Collection[UUID] | None = None) -> Found:
    """All that are under way, or those of these ids that are: four statements at most."""
    clusters = {
        row.pk: row for row in Cluster.objects.as_system().filter(Q(exposure=Exposure.GATEWAY) | Q(embedded=True))
    }
    if not clusters:
        return Found()
    rows = Instance.objects.as_system().select_related("queue").filter(state__in=LAUNCHED)
    rows = rows.filter(queue__cluster_id__in=clusters)
    if only is not None:
        rows = rows.filter(pk__in=only)
    return Found(
        launches=[_launch(row, clusters[row.queue.cluster_id]) for row in rows],
        ports=_ports(rows),
        clusters={pk: (cluster, access.is_own(cluster)) for pk, cluster in clusters.items()},
    )


def _ports(launches: Any) -> dict[UUID, dict[int, dict[int, float]]]:
    found: dict[UUID, dict[int, dict[int, float]]] = {}
    opened = OpenPort.objects.as_system().filter(instance__in=launches).select_related("instance__owner")
    for port in opened:
        people = {port.instance.owner_id: FOREVER} if port.instance.owner.is_active else {}
        found.setdefault(port.instance_id, {})[port.number] = people
    if found:
        guests = PortGuest.objects.as_system().filter(port__in=opened, person__is_active=True)
        for guest in guests.select_related("port"):
            found[guest.port.instance_id][guest.port.number].setdefault(guest.person_id, guest.until.timestamp())
    return found


def _launch(row: Instance, cluster: Cluster) -> Launch:
    return Launch(
        instance_id=row.pk,
        cluster_id=cluster.pk,
        namespace=row.queue.namespace,
        pod=row.pod_name,
        pod_uid=row.pod_uid,
        number=row.launch,
        state=row.state,
        host=names.instance_host(row.pk, cluster.apps_domain),
        scheme=cluster.apps_scheme,
    )
