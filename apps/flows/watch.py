"""What the watch of a cluster means for attempts: it wakes the reconciler and the collector, and ends nothing.

Steps forward are stored as they are told, so that a start costs its one create and no read; all else is looked at live.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from apps.clusters import access, events
from apps.clusters.models import Cluster
from apps.clusters.states import ClusterState
from apps.core import crashpoints, live, reconciling
from apps.flows import finishing, pods, progress, scheduler
from apps.flows.collector import collector
from apps.flows.models import Attempt, Flow, Run
from apps.flows.states import ATTEMPT_STATES, AttemptState
from kubekit import names
from kubekit.errors import KubeError
from kubekit.events import EventNote
from kubekit.observe import AttemptObservation, observe_attempt

log = logging.getLogger(__name__)


def pods_changed(cluster_id: UUID, changes: Sequence[tuple[str, dict[str, Any]]]) -> None:
    """Pods of attempts were made, changed or went. Of each attempt the newest message counts."""
    newest: dict[UUID, AttemptObservation] = {}
    forward: dict[UUID, AttemptObservation] = {}
    for change, raw in changes:
        pk = _attempt_id(raw)
        if pk is None:
            continue
        seen = newest[pk] = observe_attempt(raw)
        if seen.finished:
            crashpoints.reach("watch-attempt-finished")
        if seen.started and not seen.finished:
            crashpoints.reach("watch-attempt-running")
            collector.wanted(pk)
        forward.pop(pk, None)
        if change != "DELETED" and not (seen.finished or seen.pod.deleting or seen.pod.unreachable):
            forward[pk] = seen
    look = newest.keys() - progress.take_in(cluster_id, forward)
    going = {pk for pk in look if newest[pk].pod.deleting}
    orphans = going - alive_ids(going) if going else set()
    for pk in look:
        if pk in orphans:
            _let_orphan_go(cluster_id, pk, newest[pk])
        else:
            reconciling.send_hint(pods.KIND, pk)


def pods_listed(cluster_id: UUID, raws: list[dict[str, Any]]) -> None:
    """After each complete list: look at attempts whose pod went or ended unseen, and at orphans that wait for us."""
    by_id = {pk: observe_attempt(raw) for raw in raws if (pk := _attempt_id(raw)) is not None}
    for pk, seen in by_id.items():
        if seen.started and not seen.finished:
            collector.wanted(pk)
    with_pod = Attempt.objects.as_system().filter(queue__cluster_id=cluster_id).exclude(pod_name="")
    for pk in with_pod.exclude(state__in=ATTEMPT_STATES.terminal).values_list("pk", flat=True):
        if pk not in by_id or by_id[pk].finished or by_id[pk].pod.deleting:
            reconciling.send_hint(pods.KIND, pk)
    going = {pk: seen for pk, seen in by_id.items() if seen.pod.deleting}
    if not going:
        return
    for pk in set(going) - alive_ids(going):
        _let_orphan_go(cluster_id, pk, going[pk])


def events_came(cluster_id: UUID, told: Sequence[tuple[dict[str, Any], Mapping[str, str]]]) -> None:
    """Events about pods of attempts that have not ended: kept for the pages of their runs, which redraw themselves.

    The reconciler reads them anew with each look at a start and at the end; between the two it would not look.
    """
    said = events.said_of(pods.KIND, told)
    if not said:
        return

    def wanted(attempt: Attempt, _note: EventNote) -> bool:
        return attempt.queue.cluster_id == cluster_id and attempt.state not in ATTEMPT_STATES.terminal

    runs = {attempt.run_id for attempt, _note in events.keep_many(Attempt, said, wanted)}
    for run in Run.objects.as_system().filter(pk__in=runs) if runs else ():
        live.announce_many((run, Flow(pk=run.flow_id, queue_id=run.queue_id)))


def run_moved(run: Run, _before: str, _after: str) -> None:
    """A flow's row and page show its last runs."""
    live.announce(Flow(pk=run.flow_id, queue_id=run.queue_id))


def cluster_moved(cluster: Cluster, before: str, after: str) -> None:
    """A cluster is back: what waited for it is due."""
    if before != ClusterState.UNREACHABLE or after == ClusterState.REMOVED:
        return
    waiting_there = Attempt.objects.as_system().filter(queue__cluster_id=cluster.pk, state=AttemptState.QUEUED)
    if waiting_there.filter(pod_name="", due_at__gt=timezone.now()).update(due_at=timezone.now()):
        transaction.on_commit(scheduler.hint_queued)


def alive_ids(ids: Collection[UUID]) -> set[UUID]:
    """For the reaper: those of these attempts that have not ended."""
    rows = Attempt.objects.as_system().filter(pk__in=list(ids)).exclude(state__in=ATTEMPT_STATES.terminal)
    return set(rows.values_list("pk", flat=True))


def _let_orphan_go(cluster_id: UUID, pk: UUID, seen: AttemptObservation) -> None:
    """The reaper deleted a pod that no living attempt owns: nobody else would take our finalizer off it."""
    cluster = Cluster.objects.as_system().filter(pk=cluster_id).first()
    if cluster is None:
        return
    stand_in = Attempt(pk=pk, pod_name=seen.pod.name, state=AttemptState.LOST)
    try:
        finishing.pod_is_gone(access.connect(cluster), seen.pod.namespace, stand_in)
    except KubeError as error:
        log.warning("the orphan %s could not be let go: %s", seen.pod.name, error.message)


def _attempt_id(raw: dict[str, Any]) -> UUID | None:
    return names.parse_id(((raw.get("metadata") or {}).get("labels") or {}).get(names.ID))
