"""What the rows say of the launches that the gateway leads to. All block."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import Q

from apps.clusters import access
from apps.clusters.models import Cluster, Exposure
from apps.instances.gateway.places import Launch
from apps.instances.models import Instance, OpenPort, PortGuest
from apps.instances.states import LAUNCHED, InstanceState

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
    ports: dict[UUID, dict[int, dict[str, float]]] = field(default_factory=dict)
    """Open ports by instance and number, with the people who may use them and until when."""


def read(only: Collection[UUID] | None = None) -> Found:
    """All that are under way, or those of these ids that are: four statements at most."""
    served = Cluster.objects.as_system().filter(Q(exposure=Exposure.GATEWAY) | Q(embedded=True))
    clusters = {row.pk: row for row in served}
    if not clusters:
        return Found()
    rows = Instance.objects.as_system().filter(state__in=LAUNCHED, queue__cluster_id__in=clusters)
    if only is not None:
        rows = rows.filter(pk__in=only)
    return Found(
        launches=[_launch(clusters[columns[-1]], *columns) for columns in rows.values_list(*COLUMNS)],
        ports=_ports(only),
        clusters={pk: (cluster, access.is_own(cluster)) for pk, cluster in clusters.items()},
    )


def mark() -> tuple[Any, ...]:
    """What changes when `read` would answer otherwise. One statement; the database does the work of comparing."""
    with connection.cursor() as cursor:
        cursor.execute(_MARK, [[str(state) for state in LAUNCHED]])
        found: tuple[Any, ...] = cursor.fetchone()
    return found


#: Columns and no models: of 5,000 rows the objects alone would keep everybody waiting.
COLUMNS = ("pk", "name", "named_after", "state", "launch", "pod_uid", "queue__namespace", "queue__cluster_id")
_MARK = """
SELECT
  (SELECT md5(string_agg(concat_ws(' ', i.id, i.state, i.launch, i.pod_uid, i.name, i.named_after, q.cluster_id), ','
     ORDER BY i.id)) FROM instances_instance i JOIN tenants_queue q ON q.id = i.queue_id WHERE i.state = ANY(%s)),
  (SELECT md5(string_agg(concat_ws(' ', id, exposure, embedded, apps_domain, apps_scheme, credentials), ','
     ORDER BY id)) FROM clusters_cluster),
  (SELECT md5(string_agg(concat_ws(' ', p.id, p.number, i.owner_id, u.is_active), ',' ORDER BY p.id))
     FROM instances_openport p JOIN instances_instance i ON i.id = p.instance_id
     JOIN tenants_user u ON u.id = i.owner_id),
  (SELECT md5(string_agg(concat_ws(' ', g.id, g.port_id, g.until, u.id, u.is_active), ',' ORDER BY g.id))
     FROM instances_portguest g JOIN tenants_user u ON u.id = g.person_id)
"""


def _ports(only: Collection[UUID] | None) -> dict[UUID, dict[int, dict[str, float]]]:
    found: dict[UUID, dict[int, dict[str, float]]] = {}
    opened, guests = OpenPort.objects.as_system(), PortGuest.objects.as_system().filter(person__is_active=True)
    if only is not None:
        opened, guests = opened.filter(instance_id__in=only), guests.filter(port__instance_id__in=only)
    for pk, number, owner, may in opened.values_list(
        "instance_id", "number", "instance__owner_id", "instance__owner__is_active"
    ):
        found.setdefault(pk, {})[number] = {owner.hex: FOREVER} if may else {}
    if found:
        for pk, number, person, until in guests.values_list("port__instance_id", "port__number", "person_id", "until"):
            found.get(pk, {}).get(number, {}).setdefault(person.hex, until.timestamp())
    return found


def _launch(
    cluster: Cluster,
    pk: UUID,
    name: str,
    named_after: str,
    state: str,
    number: int,
    pod_uid: str,
    namespace: str,
    _: UUID,
) -> Launch:
    return Launch(
        instance_id=pk,
        cluster_id=cluster.pk,
        namespace=namespace,
        name=named_after or name,
        pod_uid=pod_uid,
        number=number,
        state=state,
        host=f"i-{pk.hex}.{cluster.apps_domain}",
        scheme=cluster.apps_scheme,
    )
