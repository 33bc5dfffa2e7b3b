"""What the watch of a cluster means for attempts: it wakes the reconciler and the collector, and decides nothing."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.utils import timezone

from apps.clusters import access
from apps.clusters.models import Cluster
from apps.core import reconciling
from apps.flows import finishing, pods, selectors
from apps.flows.collector import collector
from apps.flows.models import Attempt
from apps.flows.states import ATTEMPT_STATES, AttemptState
from kubekit import names
from kubekit.errors import KubeError
from kubekit.observe import observe_attempt

log = logging.getLogger(__name__)

#: How long a pod of an attempt that has ended may be left before it is cleared away.
ORPHAN_GRACE = timedelta(minutes=5)


def pod_changed(_cluster_id: UUID, _change: str, raw: dict[str, Any]) -> None:
    """A pod of an attempt was made, changed or went."""
    pk = _attempt_id(raw)
    if pk is None:
        return
    seen = observe_attempt(raw)
    if seen.started and not seen.finished:
        collector.wanted(pk)
    reconciling.send_hint(pods.KIND, pk)


def pods_listed(cluster_id: UUID, raws: list[dict[str, Any]]) -> None:
    """After each complete list: look at attempts whose pod is not in it, and clear away pods that nobody owns."""
    by_id = {pk: raw for raw in raws if (pk := _attempt_id(raw)) is not None}
    alive = Attempt.objects.as_system().filter(queue__cluster_id=cluster_id).exclude(pod_name="")
    for pk in alive.exclude(state__in=ATTEMPT_STATES.terminal).values_list("pk", flat=True):
        if pk not in by_id:
            reconciling.send_hint(pods.KIND, pk)
    if not by_id:
        return
    known = Attempt.objects.as_system().filter(pk__in=by_id).exclude(state__in=ATTEMPT_STATES.terminal)
    for pk in set(by_id) - set(known.values_list("pk", flat=True)):
        _clear_away(cluster_id, pk, by_id[pk])


def queue_freed(queue_id: UUID) -> None:
    """Room came back: the attempts that wait longest look first."""
    for pk in selectors.waiting_in_queue(queue_id):
        reconciling.send_hint(pods.KIND, pk)


def _clear_away(cluster_id: UUID, pk: UUID, raw: dict[str, Any]) -> None:
    """Remove a pod whose attempt has ended or is unknown, once it is old enough that no writer is on its way."""
    seen = observe_attempt(raw)
    if seen.pod.created_at is None or timezone.now() - seen.pod.created_at < ORPHAN_GRACE:
        return
    cluster = Cluster.objects.as_system().filter(pk=cluster_id).first()
    if cluster is None:
        return
    log.warning("the pod %s/%s belongs to no living attempt and is removed", seen.pod.namespace, seen.pod.name)
    stand_in = Attempt(pk=pk, pod_name=seen.pod.name, state=AttemptState.LOST)
    try:
        finishing.pod_is_gone(access.connect(cluster), seen.pod.namespace, stand_in)
    except KubeError as error:
        log.warning("it could not be removed: %s", error.message)


def _attempt_id(raw: dict[str, Any]) -> UUID | None:
    try:
        return UUID(((raw.get("metadata") or {}).get("labels") or {}).get(names.ID, ""))
    except ValueError:
        return None
