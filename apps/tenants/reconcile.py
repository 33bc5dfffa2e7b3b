"""Queues in their clusters: namespace, quota, defaults and network policies, applied together and always whole."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.utils import timezone

from apps.clusters import access
from apps.clusters.installation import install_id
from apps.core import actors
from apps.core.claims import Claim
from apps.core.reasons import Reason
from apps.core.reconciling import Reconciler
from apps.core.transitions import transition
from apps.tenants.models import Queue
from apps.tenants.states import QueueState
from kubekit import client, names
from kubekit.build import queue as build
from kubekit.errors import KubeError, NotFound, Unauthorized
from kubekit.specs import Identity, QueueSpec

ACTOR = actors.system("reconciler")
SILENT_RETRY = timedelta(seconds=15)
REFUSED_RETRY = timedelta(seconds=60)
DELETION_LOOK = timedelta(seconds=2)
_ALIVE = frozenset({QueueState.CREATING, QueueState.READY, QueueState.FAILED})


def objects_of(queue: Queue) -> list[dict[str, Any]]:
    """What the portal writes to the cluster for it. Raises ``kubekit.errors.SpecError``."""
    return build.objects(spec_of(queue, install=install_id()))


def spec_of(queue: Queue, *, install: str) -> QueueSpec:
    """Pure: the row as kubekit wants it. Raises ``kubekit.errors.SpecError``."""
    return QueueSpec(
        identity=Identity(
            install=install, kind="queue", id=str(queue.pk), generation=queue.generation, name=queue.name
        ),
        cpu_millis=queue.cpu_millis,
        memory_bytes=queue.memory_bytes,
        storage_bytes=queue.storage_bytes,
        claims=queue.claims,
        pods=queue.pods,
        gpus=queue.gpus,
        oversell_cpu=queue.cpu_oversell,
        oversell_memory=queue.memory_oversell,
        ingress_namespaces=tuple(queue.cluster.ingress_namespaces),
    )


def run(pk: UUID, claim: Claim) -> datetime | None:
    """One round for one queue; when to look again."""
    queue = Queue.objects.as_system().select_related("cluster", "team").get(pk=pk)
    if queue.is_terminal:
        return None
    try:
        cluster = access.connect(queue.cluster)
        if queue.state == QueueState.DELETING:
            return _remove(queue, cluster, claim)
        return _apply(queue, cluster, claim)
    except KubeError as error:
        return _failed(queue, claim, error, part="namespace")


def _apply(queue: Queue, cluster: client.Cluster, claim: Claim) -> datetime | None:
    generation = queue.generation
    if queue.state == QueueState.CREATING and not queue.cluster.version:
        access.require_new_enough(str(cluster.version().get("gitVersion", "")))
    if _is_foreign(queue, cluster):
        reason = Reason(code="queue_namespace_foreign", params={"namespace": queue.namespace})
        transition(queue, QueueState.FAILED, actor=ACTOR, claim=claim, reason=reason, expect=_ALIVE)
        return timezone.now() + REFUSED_RETRY
    for obj in objects_of(queue):
        try:
            cluster.apply(obj)
        except KubeError as error:
            return _failed(queue, claim, error, part=f"{obj['kind']} {obj['metadata']['name']}")
    transition(
        queue,
        QueueState.READY,
        actor=ACTOR,
        claim=claim,
        expect=_ALIVE,
        values={"observed_generation": generation},
    )
    return None  # what somebody changes by hand, `drift` finds


def _is_foreign(queue: Queue, cluster: client.Cluster) -> bool:
    """Whether a namespace of the queue's name is there and is somebody else's: nothing is written into that."""
    try:
        found = cluster.get("Namespace", None, queue.namespace)
    except NotFound:
        return False
    return not _is_ours(queue, found)


def _is_ours(queue: Queue, namespace: Mapping[str, Any]) -> bool:
    labels = (namespace.get("metadata") or {}).get("labels") or {}
    return labels.get(names.INSTALL) == install_id() and labels.get(names.ID) == str(queue.pk)


def _remove(queue: Queue, cluster: client.Cluster, claim: Claim) -> datetime | None:
    """Delete the namespace, look until it is gone. A namespace that is not ours is left alone."""
    try:
        found = cluster.get("Namespace", None, queue.namespace)
    except NotFound:
        transition(queue, QueueState.DELETED, actor=ACTOR, claim=claim)
        return None
    metadata = found.get("metadata") or {}
    params = {"namespace": queue.namespace}
    if not _is_ours(queue, found):
        reason = Reason(code="queue_namespace_foreign", params=params)
        transition(queue, QueueState.DELETING, actor=ACTOR, claim=claim, reason=reason)
        return timezone.now() + REFUSED_RETRY
    if not metadata.get("deletionTimestamp"):
        cluster.delete("Namespace", None, queue.namespace, uid=metadata.get("uid"))
    reason = Reason(code="queue_namespace_ending", params=params, evidence=_blockers(found))
    transition(queue, QueueState.DELETING, actor=ACTOR, claim=claim, reason=reason)
    return timezone.now() + DELETION_LOOK


def _blockers(namespace: dict[str, object]) -> tuple[str, ...]:
    """What the namespace controller says it still waits for."""
    status = namespace.get("status")
    conditions = status.get("conditions") if isinstance(status, dict) else None
    return tuple(
        str(entry.get("message"))
        for entry in conditions or ()
        if entry.get("status") == "True" and entry.get("message")
    )


def _failed(queue: Queue, claim: Claim, error: KubeError, *, part: str) -> datetime:
    """Not answering keeps the state; a refusal of the cluster makes the queue failed until it goes through."""
    params = {"cluster": queue.cluster.name}
    if isinstance(error, access.TooOld):
        reason = Reason(code="queue_cluster_too_old", params=params, evidence=(error.message,))
        to = queue.state if queue.state == QueueState.DELETING else QueueState.FAILED
        transition(queue, to, actor=ACTOR, claim=claim, reason=reason, expect={queue.state})
        return timezone.now() + REFUSED_RETRY
    if isinstance(error, Unauthorized):
        # Nothing of the queue is wrong, but nothing can change either until the cluster has new credentials.
        reason = Reason(code="cluster_unauthorized", evidence=(error.message,))
        transition(queue, queue.state, actor=ACTOR, claim=claim, reason=reason, expect={queue.state})
        return timezone.now() + SILENT_RETRY
    if error.retryable or queue.state == QueueState.DELETING:
        code = "queue_cluster_silent" if error.retryable else "queue_refused"
        reason = Reason(code=code, params={**params, "part": part}, evidence=(error.message,))
        # A ready queue stays plainly ready: what runs in it goes on, and the cluster's own page says what is wrong.
        if queue.state != QueueState.READY:
            transition(queue, queue.state, actor=ACTOR, claim=claim, reason=reason, expect={queue.state})
        return timezone.now() + SILENT_RETRY
    reason = Reason(code="queue_refused", params={**params, "part": part}, evidence=(error.message,))
    transition(
        queue,
        QueueState.FAILED,
        actor=ACTOR,
        claim=claim,
        reason=reason,
        expect=_ALIVE,
    )
    return timezone.now() + REFUSED_RETRY


RECONCILER = Reconciler(kind="queue", model=Queue, run=run)
