"""Volumes in their clusters: one claim each, never replaced once it has held data."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from apps.clusters import access
from apps.clusters.installation import install_id
from apps.core import actors, audit, live
from apps.core.claims import Claim
from apps.core.quantities import size as size_text
from apps.core.reasons import Reason
from apps.core.reconciling import Reconciler
from apps.core.transitions import transition
from apps.storage.models import Volume
from apps.storage.states import VolumeState
from apps.tenants import ledger
from apps.tenants.ledger import Amount
from apps.tenants.states import QueueState
from kubekit import client, names
from kubekit.build.claim import claim as build_claim
from kubekit.errors import KubeError, NamespaceTerminating, NotFound, Unauthorized
from kubekit.observe import ClaimObservation, observe_claim
from kubekit.specs import ClaimSpec, Identity

ACTOR = actors.system("reconciler")
KIND = "volume"
LOOK = timedelta(seconds=2)
SLOW_LOOK = timedelta(seconds=20)
SILENT_RETRY = timedelta(seconds=15)
YOUNG = timedelta(minutes=1)
_ALIVE = frozenset({VolumeState.CREATING, VolumeState.BOUND, VolumeState.FAILED})


def spec_of(volume: Volume, *, install: str) -> ClaimSpec:
    """Pure: the row as kubekit wants it."""
    return ClaimSpec(
        identity=Identity(
            install=install, kind=KIND, id=str(volume.pk), generation=volume.generation, name=volume.name
        ),
        namespace=volume.queue.namespace,
        storage_bytes=volume.size_bytes,
        storage_class=volume.queue.cluster.storage_class or None,
    )


def objects_of(volume: Volume) -> list[dict[str, Any]]:
    """What the portal writes to the cluster for it."""
    return [build_claim(spec_of(volume, install=install_id()))]


def run(pk: UUID, claim: Claim) -> datetime | None:
    """One round for one volume; when to look again (None: when the watch or a person says so)."""
    volume = Volume.objects.as_system().select_related("queue__cluster").get(pk=pk)
    if volume.is_terminal:
        return None
    try:
        cluster = access.connect(volume.queue.cluster)
        if volume.state == VolumeState.DELETING:
            return _remove(volume, cluster, claim)
        if volume.queue.state == QueueState.CREATING:
            return _wait(volume, claim, Reason(code="volume_waits_queue", params={"queue": volume.queue.name}))
        return _apply(volume, cluster, claim)
    except KubeError as error:
        return _failed(volume, claim, error)


def _apply(volume: Volume, cluster: client.Cluster, claim: Claim) -> datetime | None:
    if volume.claim_uid:
        try:
            seen = observe_claim(cluster.get("PersistentVolumeClaim", volume.queue.namespace, volume.claim))
        except NotFound:
            _fail(volume, claim, Reason(code="volume_gone"))
            return None
        if seen.uid != volume.claim_uid or seen.deleting:
            _fail(volume, claim, Reason(code="volume_gone", evidence=(f"uid {seen.uid}",)))
            return None
        if (seen.requested_bytes or 0) < volume.size_bytes:
            try:
                seen = observe_claim(cluster.apply(build_claim(spec_of(volume, install=install_id()))))
            except KubeError as error:
                if error.retryable:
                    raise
                _keep_size(volume, claim, seen, error)
                return None
    else:
        seen = observe_claim(cluster.apply(build_claim(spec_of(volume, install=install_id()))))
    return _judge(volume, cluster, claim, seen)


def _judge(volume: Volume, cluster: client.Cluster, claim: Claim, seen: ClaimObservation) -> datetime | None:
    values = {"claim_uid": seen.uid}
    if seen.phase == "Lost":
        _fail(volume, claim, Reason(code="volume_storage_lost", evidence=_events(volume, cluster)))
        return None
    if seen.phase == "Bound":
        growing = seen.capacity_bytes is not None and seen.capacity_bytes < volume.size_bytes
        reason = _growing(volume, seen) if growing else None
        _move(volume, VolumeState.BOUND, claim, reason, values)
        return timezone.now() + SLOW_LOOK if growing else None
    if _waits_for_first_use(cluster, seen):
        _move(volume, VolumeState.BOUND, claim, Reason(code="volume_first_use"), values)
        return None
    said = _events(volume, cluster)
    if any(line.startswith("WaitForFirstConsumer") for line in said):
        _move(volume, VolumeState.BOUND, claim, Reason(code="volume_first_use"), values)
        return None
    _move(volume, VolumeState.CREATING, claim, Reason(code="volume_provisioning", evidence=said), values)
    return timezone.now() + (LOOK if _is_young(volume) else SLOW_LOOK)


def _growing(volume: Volume, seen: ClaimObservation) -> Reason:
    params = {"now": size_text(seen.capacity_bytes or 0), "wanted": size_text(volume.size_bytes)}
    return Reason(code="volume_growing", params=params)


def _move(volume: Volume, to: VolumeState, claim: Claim, reason: Reason | None, values: dict[str, str]) -> None:
    """To a living state. A bound volume never goes back to waiting: what was on it is still there."""
    if to == VolumeState.CREATING and volume.state != VolumeState.CREATING:
        to = VolumeState(volume.state)
    transition(volume, to, actor=ACTOR, claim=claim, reason=reason, values=values, expect=_ALIVE)


def _waits_for_first_use(cluster: client.Cluster, seen: ClaimObservation) -> bool:
    """Whether the claim's class binds only when a pod mounts it. Not being allowed to read classes means no."""
    if not seen.storage_class:
        return False
    try:
        found = cluster.get("StorageClass", None, seen.storage_class)
    except KubeError as error:
        if error.retryable:
            raise
        return False
    return found.get("volumeBindingMode") == "WaitForFirstConsumer"


def _events(volume: Volume, cluster: client.Cluster) -> tuple[str, ...]:
    """What the cluster said about the claim, newest last: ``reason: message``."""
    fields = {"involvedObject.kind": "PersistentVolumeClaim", "involvedObject.name": volume.claim}
    found = list(cluster.list("Event", volume.queue.namespace, fields=fields))[-5:]
    return tuple(f"{event.get('reason', '')}: {event.get('message', '')}"[:500] for event in found)


def _keep_size(volume: Volume, claim: Claim, seen: ClaimObservation, error: KubeError) -> None:
    """The storage cannot grow: the row and the ledger go back to what the cluster has."""
    has, wanted = seen.requested_bytes or volume.size_bytes, volume.size_bytes
    with transaction.atomic():
        kept = transition(
            volume,
            VolumeState.BOUND,
            actor=ACTOR,
            claim=claim,
            expect=_ALIVE,
            reason=Reason(code="volume_grow_refused", evidence=(error.message,)),
            values={"size_bytes": has},
        )
        if not kept:
            return  # deleted meanwhile, which gives all of it back
        audit.record(actor=ACTOR, verb="volume.keep-size", obj=volume, detail={"size_bytes": [wanted, has]})
        ledger.reserve(queue_id=volume.queue_id, kind=KIND, object_id=volume.pk, amount=Amount(storage_bytes=has))
        live.announce(volume)


def _remove(volume: Volume, cluster: client.Cluster, claim: Claim) -> datetime | None:
    """Delete the claim, look until it is gone, then give the storage back to the queue."""
    try:
        raw = cluster.get("PersistentVolumeClaim", volume.queue.namespace, volume.claim)
    except NotFound:
        with transaction.atomic():
            transition(volume, VolumeState.DELETED, actor=ACTOR, claim=claim)
            ledger.release(kind=KIND, object_id=volume.pk)
        return None
    seen = observe_claim(raw)
    ours = seen.uid == volume.claim_uid or seen.labels.get(names.ID) == str(volume.pk)
    if not ours:
        with transaction.atomic():
            transition(volume, VolumeState.DELETED, actor=ACTOR, claim=claim)
            ledger.release(kind=KIND, object_id=volume.pk)
        return None
    if not seen.deleting:
        cluster.delete("PersistentVolumeClaim", volume.queue.namespace, volume.claim, uid=seen.uid)
        return timezone.now() + LOOK
    reason = Reason(code="volume_still_mounted")
    transition(volume, VolumeState.DELETING, actor=ACTOR, claim=claim, reason=reason)
    return timezone.now() + (LOOK if _is_young(volume) else SLOW_LOOK)


def _is_young(volume: Volume) -> bool:
    """Whether the state is new enough that people are waiting in front of the page."""
    return volume.state_since is None or timezone.now() - volume.state_since < YOUNG


def _wait(volume: Volume, claim: Claim, reason: Reason) -> datetime:
    transition(volume, volume.state, actor=ACTOR, claim=claim, reason=reason, expect={volume.state})
    return timezone.now() + (LOOK if _is_young(volume) else SLOW_LOOK)


def _fail(volume: Volume, claim: Claim, reason: Reason) -> None:
    transition(volume, VolumeState.FAILED, actor=ACTOR, claim=claim, reason=reason, expect=_ALIVE)


def _failed(volume: Volume, claim: Claim, error: KubeError) -> datetime | None:
    """Not answering keeps the state; so does a namespace that is not there yet; a refusal fails the volume."""
    if isinstance(error, NotFound | NamespaceTerminating):
        return _wait(volume, claim, Reason(code="volume_waits_queue", params={"queue": volume.queue.name}))
    if isinstance(error, Unauthorized):
        # What is on the volume is there; but nothing can change until the cluster has new credentials.
        _wait(volume, claim, Reason(code="cluster_unauthorized", evidence=(error.message,)))
        return timezone.now() + SILENT_RETRY
    params = {"cluster": volume.queue.cluster.name}
    if error.retryable or volume.state == VolumeState.DELETING:
        # A bound volume stays plainly ready: what is on it is there whether the cluster answers or not.
        if volume.state != VolumeState.BOUND:
            code = "volume_cluster_silent" if error.retryable else "volume_refused"
            _wait(volume, claim, Reason(code=code, params=params, evidence=(error.message,)))
        return timezone.now() + SILENT_RETRY
    _fail(volume, claim, Reason(code="volume_refused", params=params, evidence=(error.message,)))
    return timezone.now() + SLOW_LOOK


RECONCILER = Reconciler(kind=KIND, model=Volume, run=run)
