"""What the watch of a cluster means for instances. A message only wakes: forward steps are stored at once, all else
is looked at live by the reconciler.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any
from uuid import UUID

from django.conf import settings
from django.utils import timezone

from apps.clusters import events
from apps.clusters.states import ClusterState
from apps.core import actors, crashpoints, reconciling
from apps.core.reasons import Reason
from apps.core.transitions import transition
from apps.instances import selectors
from apps.instances.decide import Seen, decide, of_this_launch, own_pod
from apps.instances.models import Instance
from apps.instances.spec import KIND
from apps.instances.states import LAUNCHED, InstanceState
from kubekit import names
from kubekit.events import observe_event
from kubekit.observe import InstanceObservation, PodObservation, observe_pod

Raw = dict[str, Any]
WATCHER = actors.system("watcher")
S = InstanceState
FORWARD = frozenset({S.STARTING, S.RUNNING})
#: Warnings that come again and again while a program starts or crashes; the pod's own status tells what they mean.
CHATTER = frozenset({"Unhealthy", "BackOff"})


def pod_changed(cluster_id: UUID, change: str, raw: Raw) -> None:
    """A pod of an instance was made, changed or went."""
    pod = observe_pod(raw)
    instance = _instance(cluster_id, pod.labels)
    if instance is None or instance.state == S.DELETED:
        return
    if change == "DELETED" or instance.state not in LAUNCHED or own_pod(instance, pod) is None or pod.deleting:
        reconciling.send_hint(KIND, instance.pk)
        return
    if not _step_forward(instance, pod):
        reconciling.send_hint(KIND, instance.pk)


def _step_forward(instance: Instance, pod: PodObservation) -> bool:
    """Store progress that needs no second look; False when the reconciler should look."""
    seen = Seen(observation=_of_pod(pod), live=False)
    decision = decide(instance, seen, now=timezone.now(), timeout_s=settings.PORTAL_START_TIMEOUT_S)
    forward = decision.to in FORWARD and instance.state in {S.STARTING, S.QUEUED, decision.to}
    if not forward or (decision.reason is not None and decision.to != S.RUNNING):
        return False
    before = instance.state
    came_up = decision.to == S.RUNNING and before != S.RUNNING
    transition(instance, decision.to, actor=WATCHER, reason=decision.reason, expect={before}, values=decision.values)
    if came_up:
        crashpoints.reach("watch-instance-up")
    return not came_up  # once up, a live look fetches the events and sets when to look next


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


def event_came(cluster_id: UUID, raw: Raw, labels: Mapping[str, str]) -> None:
    """An event about something of ours: kept for the page; a warning is looked at live."""
    if labels.get(names.KIND) != KIND:
        return
    instance = _instance(cluster_id, labels)
    if instance is None or instance.state == S.DELETED:
        return
    note = observe_event(raw)
    if not of_this_launch(instance, (note,)) or not events.keep(instance, note):
        return
    if note.warning and note.reason not in CHATTER and instance.state in LAUNCHED:
        reconciling.send_hint(KIND, instance.pk)


def node_gone(cluster_id: UUID, node: str) -> None:
    """A node is no longer in the cluster: look at what was said to run there."""
    for pk in selectors.on_cluster(cluster_id, states=LAUNCHED).filter(node=node).values_list("pk", flat=True):
        reconciling.send_hint(KIND, pk)


def pods_listed(cluster_id: UUID, raws: list[Raw]) -> None:
    """After each complete list: look at each instance whose pod is missing, not as the row has it, or one too many."""
    listed = {pod.labels.get(names.ID): pod for pod in map(observe_pod, raws)}
    with_pod = selectors.on_cluster(cluster_id, states=LAUNCHED | {S.STOPPING, S.DELETING})
    for pk, state in with_pod.values_list("pk", "state"):
        pod = listed.get(str(pk))
        if pod is None or (pod.ready and not pod.deleting) != (state == S.RUNNING):
            reconciling.send_hint(KIND, pk)
    at_rest = selectors.on_cluster(cluster_id, states={S.STOPPED, S.FAILED})
    for pk in at_rest.filter(pk__in=_uuids(listed)).values_list("pk", flat=True):
        reconciling.send_hint(KIND, pk)


def _uuids(texts: Iterable[str | None]) -> list[UUID]:
    """Those that are ids; labels can hold anything."""
    found: list[UUID] = []
    for text in texts:
        with suppress(ValueError):
            found.append(UUID(text or ""))
    return found


def cluster_moved(cluster: Any, before: str, after: str) -> None:
    """The cluster went away or came back: its instances say so, and are looked at when it is back."""
    if after == ClusterState.UNREACHABLE:
        for instance in selectors.on_cluster(cluster.pk, states={S.QUEUED, S.STARTING, S.RUNNING}):
            transition(
                instance,
                S.UNREACHABLE,
                actor=WATCHER,
                reason=Reason(code="cluster_unreachable"),
                expect={instance.state},
            )
    elif before == ClusterState.UNREACHABLE:
        for pk in selectors.on_cluster(cluster.pk, states={S.UNREACHABLE, S.STOPPING, S.DELETING}).values_list(
            "pk", flat=True
        ):
            reconciling.hint(KIND, pk)


def _instance(cluster_id: UUID, labels: Mapping[str, str]) -> Instance | None:
    """The row behind the labels, when it is on that cluster."""
    try:
        pk = UUID(labels.get(names.ID, ""))
    except ValueError:
        return None
    instance = selectors.for_reconcile(pk)
    if instance is None or instance.queue.cluster_id != cluster_id:
        return None
    return instance
