"""What somebody edited or deleted of the queues' namespaces by hand comes back.

Looked for with one list of each kind in a cluster, however many queues it has: a thousand queues that each looked after
themselves would keep a portal busy that nobody uses.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from apps.clusters import access
from apps.clusters.installation import install_id
from apps.clusters.models import Cluster
from apps.clusters.states import ClusterState
from apps.core import control, reconciling
from apps.tenants import reconcile
from apps.tenants.models import Queue
from apps.tenants.states import QueueState
from kubekit import client, names, quantities
from kubekit.errors import KubeError, SpecError

log = logging.getLogger(__name__)

EVERY_S = 900.0
KIND = reconcile.RECONCILER.kind
Obj = Mapping[str, Any]


async def loop(stop: asyncio.Event) -> None:
    """The control loop."""
    while not await control.sleep(stop, EVERY_S):
        await control.in_thread(look)


def look() -> None:
    """One round over every cluster that answers; each queue that is not as it should be is hinted."""
    for cluster in Cluster.objects.as_system().filter(state=ClusterState.CONNECTED):
        try:
            found = drifted(cluster)
        except KubeError as error:
            log.info("the namespaces on %s cannot be compared now: %s", cluster.name, error)
            continue
        for pk in found:
            log.warning("a namespace on %s is not as its queue %s has it; it is written again", cluster.name, pk)
            reconciling.send_hint(KIND, pk)


def drifted(cluster: Cluster) -> list[UUID]:
    """The ready queues of a cluster of whose objects one is missing or differs. Raises ``KubeError``."""
    queues = Queue.objects.as_system().filter(cluster=cluster, state=QueueState.READY).select_related("cluster")
    wanted = {queue.pk: reconcile.objects_of(queue) for queue in queues}
    connection = access.connect(cluster) if wanted else None
    wrong: set[UUID] = set()
    for kind in sorted({str(obj["kind"]) for objects in wanted.values() for obj in objects}):
        assert connection is not None
        there = _listed(connection, kind)
        for pk, objects in wanted.items():
            if any(obj["kind"] == kind and not holds(obj, there.get(_place(obj))) for obj in objects):
                wrong.add(pk)
    return sorted(wrong)


def _listed(connection: client.Cluster, kind: str) -> dict[tuple[str, str], Obj]:
    labels = {names.INSTALL: install_id(), names.KIND: KIND}
    found: Iterable[Obj] = connection.list(kind, labels=labels)
    # Of each only what is compared: there may be thousands.
    return {_place(raw): {"metadata": {"labels": raw["metadata"]["labels"]}, "spec": raw.get("spec")} for raw in found}


def _place(obj: Obj) -> tuple[str, str]:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def holds(wanted: Obj, found: Obj | None) -> bool:
    """Whether an object's labels and spec are as wanted; what the server or another filled in besides is no matter."""
    if found is None:
        return False
    as_labelled = _same(wanted["metadata"]["labels"], found["metadata"]["labels"])
    return as_labelled and ("spec" not in wanted or _same(wanted["spec"], found["spec"]))


def _same(wanted: Any, found: Any) -> bool:
    if not wanted and wanted != 0:
        return not found  # a server leaves out what is empty
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and all(_same(value, found.get(key)) for key, value in wanted.items())
    if isinstance(wanted, list):
        return isinstance(found, list) and len(found) == len(wanted) and all(map(_same, wanted, found))
    return bool(wanted == found) or _same_quantity(wanted, found)


def _same_quantity(wanted: Any, found: Any) -> bool:
    """``1024Mi`` is ``1Gi``: a server may write either."""
    try:
        return quantities.parse(wanted) == quantities.parse(found)
    except SpecError:
        return False
