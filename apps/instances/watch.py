"""What the watch of a cluster means for instances. A message only wakes: forward steps are stored at once, all else
is looked at live by the reconciler.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from apps.clusters import events
from apps.clusters.states import ClusterState
from apps.core import actors, crashpoints, reconciling, wake
from apps.core.reasons import Reason
from apps.core.states import IllegalStep
from apps.core.transitions import Step, transition_many
from apps.instances import entrances, selectors
from apps.instances.decide import Seen, decide, of_this_launch, own_pod, progress
from apps.instances.models import Instance
from apps.instances.spec import KIND
from apps.instances.states import ALIVE, LAUNCHED, InstanceState
from kubekit import names
from kubekit.events import EventNote
from kubekit.observe import Glance, InstanceObservation, PodObservation, glance, observe_pod

log = logging.getLogger(__name__)
Raw = dict[str, Any]
WATCHER = actors.system("watcher")
S = InstanceState
FORWARD = frozenset({S.STARTING, S.RUNNING})
#: A complete list is through by then, also of thousands of pods.
AFTER_LIST = timedelta(seconds=15)
WITH_POD = LAUNCHED | {S.STOPPING, S.DELETING}
#: Warnings that come again and again while a program starts or crashes; the pod's own status tells what they mean.
CHATTER = frozenset({"Unhealthy", "BackOff"})


def pods_changed(cluster_id: UUID, changes: Sequence[tuple[str, Raw]]) -> None:
    """Pods of instances were made, changed or went. Of each instance the newest message counts."""
    newest: dict[UUID, PodObservation] = {}
    look: set[UUID] = set()
    for change, raw in changes:
        pod = observe_pod(raw)
        pk = names.parse_id(pod.labels.get(names.ID))
        if pk is not None:
            newest[pk] = pod
            if change == "DELETED":
                look.add(pk)
    _take_in(cluster_id, newest, look)


def _take_in(cluster_id: UUID, pods: Mapping[UUID, PodObservation], look: set[UUID], *, listed: bool = False) -> None:
    """Store progress that needs no second look, for all of them at once; have a worker look at the others.

    ``look``: those that a worker should look at in any case. ``listed`` says that all pods were read just now.
    """
    now = timezone.now()
    met: set[UUID] = set()
    came_up = False

    def plan(instance: Instance) -> Step | None:
        nonlocal came_up
        met.add(instance.pk)
        if instance.queue.cluster_id != cluster_id or instance.state == S.DELETED:
            look.discard(instance.pk)
            return None
        if instance.pk in look or (not listed and _still_goes(instance, pods[instance.pk])):
            return None
        step = _step_forward(instance, pods[instance.pk], now, listed=listed)
        if step is None:
            look.add(instance.pk)
        came_up |= step is not None and step.to == S.RUNNING and instance.state != S.RUNNING
        return step

    try:
        transition_many(Instance, pods, plan, actor=WATCHER, joins=("queue", "image", "home"), skip_locked=True)
    except IllegalStep:
        log.exception("what a watch said of %d instances is looked at one by one", len(pods))
        look |= met
    if came_up:
        crashpoints.reach("watch-instance-up")
    # Those that nobody met are held by a transaction at this moment, or are no rows.
    for pk in look | (pods.keys() - met):
        reconciling.send_hint(KIND, pk)


def _still_goes(instance: Instance, pod: PodObservation) -> bool:
    """It was told to end and has not ended: nothing follows from that, and when its pod goes, that is told."""
    told = instance.observed_generation >= instance.generation
    return instance.state in {S.STOPPING, S.DELETING} and told and not pod.unreachable


def _step_forward(instance: Instance, pod: PodObservation, now: datetime, *, listed: bool) -> Step | None:
    """The next step of a locked row; None when the reconciler should look."""
    if instance.state not in LAUNCHED or own_pod(instance, pod) is None or pod.deleting:
        return None
    timeout_s = settings.PORTAL_START_TIMEOUT_S
    seen = Seen(observation=_of_pod(pod), live=False)
    decision = decide(instance, seen, now=now, timeout_s=timeout_s)
    back = listed and instance.state == S.UNREACHABLE and instance.reason_code == "cluster_unreachable"
    if decision.to not in FORWARD or not (
        instance.state in {S.STARTING, S.QUEUED, decision.to} or (back and pod.ready)
    ):
        return None
    if decision.reason is not None and not (pod.ready or decision.reason.code == instance.reason_code):
        return None  # why it does not answer is found out by a look: the node may be gone
    values = dict(decision.values)
    settled: dict[str, Any] = {}
    if decision.to == S.RUNNING:
        if "ready" not in instance.stages:  # what only Events tell has been told by now
            values |= progress(instance, pod, events.notes(instance.last_events), now=now, timeout_s=timeout_s)
        owed = instance.next_key or instance.observed_generation < instance.generation or entrances.is_owed(instance)
        if instance.state != S.RUNNING and decision.reason is None and not owed:
            settled["due_at"] = None
    return Step(to=decision.to, reason=decision.reason, values=values, unless_poked=settled)


def _of_pod(pod: PodObservation) -> InstanceObservation:
    return InstanceObservation(
        exists=True,
        uid=None,
        id=pod.labels.get(names.ID),
        generation=None,
        replicas=1,
        deleting=False,
        settled=True,
        pod=pod,
    )


def events_came(cluster_id: UUID, told: Sequence[tuple[Raw, Mapping[str, str]]]) -> None:
    """Events about things of ours: kept for the page; a warning is looked at live."""
    said = events.said_of(KIND, told)
    if not said:
        return

    def wanted(instance: Instance, note: EventNote) -> bool:
        here = instance.queue.cluster_id == cluster_id and instance.state != S.DELETED
        return here and bool(of_this_launch(instance, (note,)))

    look = {
        instance.pk
        for instance, note in events.keep_many(Instance, said, wanted)
        if note.warning and note.reason not in CHATTER and instance.state in LAUNCHED
    }
    for pk in look:
        reconciling.send_hint(KIND, pk)


def node_gone(cluster_id: UUID, node: str) -> None:
    """A node is no longer in the cluster: look at what was said to run there."""
    for pk in selectors.on_cluster(cluster_id, states=LAUNCHED).filter(node=node).values_list("pk", flat=True):
        reconciling.send_hint(KIND, pk)


def pods_listed(cluster_id: UUID, raws: list[Raw]) -> None:
    """After each complete list: bring every row to it whose pod is missing, not as the row has it, or one too many."""
    listed: dict[UUID, tuple[Glance, Raw]] = {}
    for raw in raws:
        seen = glance(raw)
        pk = names.parse_id(seen.id)
        if pk is not None:
            listed[pk] = seen, raw
    look: set[UUID] = set()
    other: dict[UUID, PodObservation] = {}
    rows = selectors.on_cluster(cluster_id, states=ALIVE)
    for pk, state, uid, restarts in rows.values_list("pk", "state", "pod_uid", "restarts"):
        found = listed.get(pk)
        if state in WITH_POD:
            if found is None:
                look.add(pk)
            elif not _is_as_the_row_has_it(found[0], state, uid, restarts):
                other[pk] = observe_pod(found[1])
        elif found is not None:
            look.add(pk)
    for pk in look:
        reconciling.send_hint(KIND, pk)
    if other:
        _take_in(cluster_id, other, set(), listed=True)


def _is_as_the_row_has_it(pod: Glance, state: str, uid: str, restarts: int) -> bool:
    """Whether nothing follows from the pod. Of what is on its way that it is not ready yet says nothing new."""
    if state == S.RUNNING:
        return (pod.up, pod.uid, pod.restarts) == (True, uid, restarts)
    return state != S.UNREACHABLE and not pod.up


def cluster_moved(cluster: Any, before: str, after: str) -> None:
    """The cluster went away or came back: its instances say so, and are looked at when it is back."""
    if after == ClusterState.UNREACHABLE:
        alive = selectors.on_cluster(cluster.pk, states={S.QUEUED, S.STARTING, S.RUNNING})
        away = Step(to=S.UNREACHABLE, reason=Reason(code="cluster_unreachable"))
        transition_many(
            Instance,
            list(alive.values_list("pk", flat=True)),
            lambda instance: away if instance.state in {S.QUEUED, S.STARTING, S.RUNNING} else None,
            actor=WATCHER,
            joins=("queue",),
        )
    elif before == ClusterState.UNREACHABLE:
        # The list that follows brings them back, all together; what it does not settle is looked at by itself.
        later = timezone.now() + AFTER_LIST
        selectors.on_cluster(cluster.pk, states={S.UNREACHABLE}).update(due_at=later)
        going = selectors.on_cluster(cluster.pk, states={S.STOPPING, S.DELETING})
        for pk in going.values_list("pk", flat=True):
            reconciling.hint(KIND, pk)
        transaction.on_commit(lambda: wake.notify(wake.DUE))
