"""What an observation means for an instance: pure, one answer, no clock and no network of its own.

The watch and the sweep both end here. Rules that are easy to get wrong: silence of the cluster or of a node is
``unreachable`` and never ``failed`` (failure F8); a pod of an earlier launch says nothing about this one (F5, F6);
only a live look may end a launch or give its quota back, so a watch acts on forward steps alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from apps.clusters.events import merge
from apps.clusters.wording import reason_of
from apps.core.reasons import Reason
from apps.instances import masking
from apps.instances.models import Instance
from apps.instances.states import LAUNCHED, Desired, InstanceState
from apps.tenants.states import QueueState
from kubekit import events as kube_events
from kubekit import names
from kubekit.diagnose import Context, Finding, diagnose
from kubekit.errors import KubeError, SpecError
from kubekit.events import EventNote
from kubekit.observe import ClaimObservation, InstanceObservation, PodObservation

S = InstanceState
#: Nothing the cluster does can mend these; the owner or an administrator has to change something.
FATAL = frozenset({
    "image_not_found", "image_denied", "image_name_invalid", "image_architecture", "command_not_found", "config_error",
    "volume_full", "volume_lost", "forbidden_by_policy", "invalid_spec", "namespace_missing", "namespace_terminating",
    "disk_limit",
})  # fmt: skip
#: It was accepted and waits for room: no time-out runs meanwhile.
NO_ROOM = frozenset({
    "no_node_cpu", "no_node_memory", "no_node_gpu", "no_node_pods", "no_node_fits", "placement_mismatch",
    "quota_exceeded", "preempted",
})  # fmt: skip
CLUSTER_AWAY = frozenset({"cluster_unreachable", "cluster_unauthorized", "permission_missing"})
CRASHES = frozenset({"crashed_at_start", "out_of_memory"})
#: Why the portal itself stopped it: said until the next start.
OWN_ENDS = frozenset({"stopped_idle", "stopped_at_end"})
#: A program that never came up is given up at this many restarts, one that had run at the second number.
GIVE_UP_RESTARTS = (2, 5)

#: When writing was refused for a reason that passes, it is tried again soon.
AFTER_REFUSAL_S = 2.0
LOOK_AGAIN_S: Mapping[str, float] = {
    S.QUEUED: 30.0,
    S.STARTING: 10.0,
    S.RUNNING: 300.0,  # while something is wrong with it
    S.STOPPING: 3.0,
    S.DELETING: 3.0,
    S.UNREACHABLE: 15.0,
    S.FAILED: 3.0,
}


#: What runs as it should is looked at with all others, in each complete list of the watch, and not by itself.
WHEN_TOLD = math.inf


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What was found out about one instance at one moment.

    ``live`` is True when the cluster was asked just now, False for a watch's message. ``error`` is what stood in the
    way of writing or looking; then the rest may be missing. ``node_silent`` says that the pod's node does not report:
    the pod itself then only reads "not ready".
    """

    observation: InstanceObservation | None = None
    events: Sequence[EventNote] = ()
    claims: Sequence[ClaimObservation] = ()
    log_tail: str = ""
    error: KubeError | SpecError | None = None
    node_silent: bool = False
    live: bool = True

    @property
    def pod(self) -> PodObservation | None:
        """The pod, of whatever launch."""
        return self.observation.pod if self.observation is not None else None


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The state to be in, why, which columns change with it, and when to look again.

    ``at_rest`` says that the cluster has confirmed the end of the last pod: the quota is free. ``again_s`` None: at
    once; `WHEN_TOLD`: when the watch or a person says so.
    """

    to: str
    reason: Reason | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    at_rest: bool = False
    again_s: float | None = None


def decide(instance: Instance, seen: Seen, *, now: datetime, timeout_s: float) -> Decision:
    """The next state of an instance that is neither deleted nor at rest."""
    launched = instance.state in LAUNCHED
    found = _launched(instance, seen, now, timeout_s) if launched else _ending(instance, seen, now)
    return replace(found, reason=masking.told(instance, found.reason))


def current_reason(instance: Instance) -> Reason | None:
    """The row's reason as a value."""
    if not instance.reason_code:
        return None
    return Reason(code=instance.reason_code, params=instance.reason_params, evidence=tuple(instance.reason_evidence))


# --- a launch under way or done ---------------------------------------------------------------------------------


def _launched(instance: Instance, seen: Seen, now: datetime, timeout_s: float) -> Decision:
    pod = own_pod(instance, seen.pod)
    values = progress(instance, pod, seen.events, now=now, timeout_s=timeout_s)
    deadline = values.get("start_deadline_at", instance.start_deadline_at)
    late = deadline is not None and now >= deadline
    finding = _finding(instance, seen, pod, waited_s=timeout_s if late else 0.0, timeout_s=timeout_s)
    if finding is not None and finding.code in CLUSTER_AWAY | {"node_lost"}:
        return _stay(S.UNREACHABLE, reason_of(finding), values)
    if pod is not None and pod.ready and not pod.deleting:
        came_back = _after_restart(instance, pod)
        again_s = WHEN_TOLD if came_back is None else LOOK_AGAIN_S[S.RUNNING]
        return Decision(to=S.RUNNING, reason=came_back, values=values, again_s=again_s)
    if finding is None:
        if instance.ready_at is not None and pod is not None and not pod.deleting and not _restarted(instance, pod):
            return _stay(S.RUNNING, Reason(code="instance_not_answering"), values)
        return _starting(None, values, deadline, now, timeout_s)
    reason = reason_of(finding, image=instance.image.reference)
    if finding.code in NO_ROOM:
        return _stay(S.QUEUED, reason, {**values, "start_deadline_at": None})
    if late or _hopeless(instance, finding, pod):
        return give_up(instance, reason, values)
    if finding.code == "not_answering" and instance.ready_at is not None:
        return _stay(S.RUNNING, Reason(code="instance_not_answering", evidence=finding.evidence), values)
    return _starting(reason, values, deadline, now, timeout_s, refused=seen.error is not None)


def own_pod(instance: Instance, pod: PodObservation | None) -> PodObservation | None:
    """The pod if this launch made it, else None."""
    if pod is None or pod.labels.get(names.GENERATION) != str(instance.launch):
        return None
    return pod


def _finding(
    instance: Instance, seen: Seen, pod: PodObservation | None, *, waited_s: float, timeout_s: float
) -> Finding | None:
    if isinstance(seen.error, SpecError):
        return Finding(
            code="image_name_invalid" if seen.error.code == "bad_image" else "invalid_spec",
            params={"fields": [seen.error.field]},
            evidence=(seen.error.message,),
        )
    if seen.node_silent and pod is not None:
        return Finding(code="node_lost", params={"node": pod.node or ""}, evidence=_warnings(seen.events))
    context = Context(
        pod=pod,
        events=seen.events,
        since=instance.start_requested_at,
        claims=seen.claims,
        wanted_claims=(instance.home.claim,),
        error=seen.error,
        log_tail=seen.log_tail,
        waited_s=waited_s,
        start_timeout_s=timeout_s,
        image=instance.image.reference,
    )
    return diagnose(context)


def _warnings(events: Sequence[EventNote]) -> tuple[str, ...]:
    return tuple(note.message for note in events if note.warning)[-3:]


def _hopeless(instance: Instance, finding: Finding, pod: PodObservation | None) -> bool:
    if finding.code == "namespace_missing" and instance.queue.state == QueueState.CREATING:
        return False  # it is being made at this moment
    if finding.code in FATAL:
        return True
    if finding.code in CRASHES and pod is not None and pod.main is not None:
        return pod.main.restarts >= GIVE_UP_RESTARTS["ready" in instance.stages]
    return False


def _restarted(instance: Instance, pod: PodObservation) -> bool:
    main = pod.main
    if pod.uid != instance.pod_uid:
        return True
    return main is None or main.state != "running" or main.restarts > instance.restarts


def _after_restart(instance: Instance, pod: PodObservation) -> Reason | None:
    """Running again after a crash: say so, because what lived in memory is lost."""
    main = pod.main
    if main is None or main.previous is None or not main.restarts:
        return None
    code = "instance_came_back_memory" if main.previous.reason == "OOMKilled" else "instance_came_back"
    ended = main.previous.finished_at
    return Reason(
        code=code,
        params={
            "exit_code": main.previous.exit_code if main.previous.exit_code is not None else "?",
            "restarts": main.restarts,
            "at": ended.isoformat() if ended else "",
        },
        evidence=tuple(line for line in main.previous.message.splitlines() if line.strip())[-5:],
    )


def give_up(instance: Instance, reason: Reason, values: Mapping[str, Any]) -> Decision:
    """Failed: nothing is wanted any more, so the next round takes away what is left of the launch."""
    return Decision(
        to=S.FAILED,
        reason=reason,
        values={
            **values,
            "desired": Desired.STOPPED,
            "generation": instance.generation + 1,
            "ready_at": None,
            "start_deadline_at": None,
        },
        again_s=0.0,
    )


def _starting(
    reason: Reason | None,
    values: Mapping[str, Any],
    deadline: datetime | None,
    now: datetime,
    timeout_s: float,
    *,
    refused: bool = False,
) -> Decision:
    """On its way, or on its way again: then the time-out begins anew."""
    until = deadline or now + timedelta(seconds=timeout_s)
    usual = AFTER_REFUSAL_S if refused else LOOK_AGAIN_S[S.STARTING]
    again = min(usual, max(0.2, (until - now).total_seconds()))
    return Decision(
        to=S.STARTING, reason=reason, values={**values, "ready_at": None, "start_deadline_at": until}, again_s=again
    )


def _stay(to: str, reason: Reason | None, values: Mapping[str, Any]) -> Decision:
    return Decision(to=to, reason=reason, values=values, again_s=LOOK_AGAIN_S[to])


# --- progress ----------------------------------------------------------------------------------------------------


def progress(
    instance: Instance, pod: PodObservation | None, events: Sequence[EventNote], *, now: datetime, timeout_s: float
) -> dict[str, Any]:
    """Columns that follow the pod: identity, node, stages, events, and the deadline that each new stage renews."""
    values: dict[str, Any] = {}
    fresh = of_this_launch(instance, events)
    if fresh:
        values["last_events"] = merge(instance.last_events, fresh)
    if pod is None:
        return values
    same_pod = pod.uid == instance.pod_uid
    known = dict(instance.stages) if same_pod or not instance.pod_uid else {}
    reached = {stage.name: stage.at for stage in kube_events.stages(pod, events) if stage.at is not None}
    stages = {**{name: _moment(at, now).isoformat() for name, at in reached.items()}, **known}
    main = pod.main
    values |= {
        "pod_uid": pod.uid,
        "node": pod.node or "",
        "stages": stages,
        "restarts": main.restarts if main is not None else 0,
    }
    if pod.ready:
        values["ready_at"] = instance.ready_at or _moment(reached.get("ready") or now, now)
        values["start_deadline_at"] = None
    elif len(stages) > len(known) or (instance.state == S.QUEUED and pod.node):
        values["start_deadline_at"] = now + timedelta(seconds=timeout_s)
    return values


def _moment(stamp: datetime, now: datetime) -> datetime:
    """The server's stamps have whole seconds; what was seen within two of them happened now, to the millisecond."""
    return now if abs((now - stamp).total_seconds()) <= 2 else stamp


def of_this_launch(instance: Instance, events: Sequence[EventNote]) -> list[EventNote]:
    """Without those of earlier launches: the pod's name, by which events are found, is always the same."""
    since = instance.start_requested_at
    return [note for note in events if since is None or note.time >= since.replace(microsecond=0)]


# --- on the way down ---------------------------------------------------------------------------------------------


def _ending(instance: Instance, seen: Seen, now: datetime) -> Decision:
    """Stopping, deleting, or failed with something left: only the absence of every pod, seen live, is the end."""
    own_end = instance.state == S.STOPPING and instance.reason_code in OWN_ENDS
    stay = current_reason(instance) if instance.state == S.FAILED or own_end else None
    if seen.error is not None:
        if instance.state != S.FAILED:
            trouble = _trouble(seen.error)
            stay = trouble if stay is None or trouble is None else replace(stay, evidence=trouble.evidence)
        return Decision(to=instance.state, reason=stay, again_s=LOOK_AGAIN_S[instance.state])
    pod = seen.pod
    fresh = of_this_launch(instance, seen.events)
    values = {"last_events": merge(instance.last_events, fresh)} if fresh else {}
    if pod is not None or not seen.live or _may_make_a_pod(instance, seen):
        if pod is not None and pod.unreachable and instance.state != S.FAILED:
            stay = stay if own_end else Reason(code="node_lost", params={"node": pod.node or ""})
        return Decision(to=instance.state, reason=stay, values=values, again_s=LOOK_AGAIN_S[instance.state])
    ended = {**values, "at_rest": True, "pod_uid": "", "node": "", "ready_at": None, "key": "", "next_key": ""}
    to = {S.STOPPING: S.STOPPED, S.DELETING: S.DELETED}.get(S(instance.state), S.FAILED)
    return Decision(to=to, reason=stay, values=ended, at_rest=True)


def _may_make_a_pod(instance: Instance, seen: Seen) -> bool:
    """The StatefulSet asks for a pod, or its controller has not read that none is wanted any more."""
    found = seen.observation
    if found is None or not found.exists:
        return False
    return not found.settled or (found.replicas > 0 and found.id == str(instance.pk))


def _trouble(error: KubeError | SpecError) -> Reason | None:
    if isinstance(error, SpecError):
        return Reason(code="invalid_spec", params={"fields": error.field}, evidence=(error.message,))
    finding = diagnose(Context(error=error))
    return reason_of(finding) if finding is not None else None
