"""What the rows say of the launches that the gateway leads to. All block."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from uuid import UUID

from django.db.models import Q

from apps.clusters import access
from apps.clusters.models import Cluster, Exposure
from apps.instances.gateway.places import Launch
from apps.instances.models import Instance
from apps.instances.states import LAUNCHED, InstanceState
from kubekit import names

#: There may be a program; whether it answers is found out by asking it.
OPEN = frozenset({InstanceState.RUNNING, InstanceState.UNREACHABLE})
STARTING = LAUNCHED - OPEN


@dataclass(frozen=True, kw_only=True)
class Found:
    """Launches, and the clusters that they are in."""

    launches: list[Launch] = field(default_factory=list)
    clusters: dict[UUID, tuple[Cluster, bool]] = field(default_factory=dict)
    """With each, whether the portal runs in it, so that its pods can be dialled."""


def read(only: Collection[UUID] | None = None) -> Found:
    """All that are under way, or those of these ids that are: two statements at most."""
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
        clusters={pk: (cluster, access.is_own(cluster)) for pk, cluster in clusters.items()},
    )


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
