"""How a task attempt ended, and whose fault it was. Pure.

``retry_class`` decides which budget a retry is taken from (failure F25): ``user`` for what the program did, ``infra``
for what was done to it, ``none`` when there is nothing to retry.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from kubekit.diagnose.model import Context, Finding
from kubekit.diagnose.node import OWN_DISK_LIMIT, refused_by_node
from kubekit.diagnose.program import start_failed
from kubekit.diagnose.rules import diagnose
from kubekit.diagnose.volume import find_full
from kubekit.events import EventNote
from kubekit.names import ID
from kubekit.observe import AttemptObservation, ClaimObservation, PodObservation

Outcome = Literal["succeeded", "failed", "timed_out", "cancelled", "lost"]
RetryClass = Literal["user", "infra", "none"]


@dataclass(frozen=True, kw_only=True)
class AttemptEnd:
    """The end of an attempt. ``code`` is stable and ``params`` fill its sentence."""

    outcome: Outcome
    retry_class: RetryClass
    code: str
    params: Mapping[str, Any] = field(default_factory=dict)


#: What the portal does when a pod that was there is gone and its end was never seen (failure F7).
POD_GONE = AttemptEnd(outcome="lost", retry_class="infra", code="pod_gone")

_DISRUPTIONS = {
    "PreemptionByScheduler": "preempted",
    "DeletionByTaintManager": "node_lost",
    "DeletionByPodGC": "node_lost",
    "EvictionByEvictionAPI": "drained",
    "TerminationByKubelet": "node_shutdown",
}
_POD_REASONS = {
    "Preempting": "preempted",
    "Preempted": "preempted",
    "NodeLost": "node_lost",
    "NodeShutdown": "node_shutdown",
    "Shutdown": "node_shutdown",
    "Terminated": "node_shutdown",
}
#: Container reasons of the runtime losing track of a container: a restarted node, not the program.
_RUNTIME_LOST = frozenset({"ContainerStatusUnknown", "Unknown"})
#: Findings about a pod that never started which its own author has to mend.
_USER_START = frozenset({
    "image_not_found", "image_denied", "image_name_invalid", "image_pull_failed", "command_not_found", "config_missing",
    "config_error", "volume_missing", "invalid_spec", "crashed_at_start",
})  # fmt: skip


def _infra(code: str, **params: object) -> AttemptEnd:
    return AttemptEnd(outcome="failed", retry_class="infra", code=code, params=params)


def _user(code: str, **params: object) -> AttemptEnd:
    return AttemptEnd(outcome="failed", retry_class="user", code=code, params=params)


def classify_attempt_end(observation: AttemptObservation, *, cancelled: bool = False) -> AttemptEnd | None:
    """The attempt's end, or None while it has not come to one.

    ``cancelled`` says that the portal itself asked for the deletion. An unreachable node is *not* an end: nothing is
    inferred from silence (failure F8); when the pod is really gone, use `POD_GONE`.
    """
    pod = observation.pod
    if not pod.finished:
        return None
    if pod.phase == "Succeeded" and not _cut_short(observation):
        return AttemptEnd(outcome="succeeded", retry_class="none", code="succeeded")
    if cancelled:
        return AttemptEnd(outcome="cancelled", retry_class="none", code="cancelled")
    found = next((end for rule in _RULES if (end := rule(observation)) is not None), None)
    return found if found is not None else _program(observation)


def classify_no_start(
    observation: AttemptObservation, *, events: Sequence[EventNote] = (), claims: Sequence[ClaimObservation] = ()
) -> AttemptEnd:
    """The end of an attempt that the portal gives up because it did not start in time.

    What its author can mend (a wrong image) burns a retry; waiting for room or storage does not.
    """
    found: Finding | None = diagnose(Context(pod=observation.pod, events=events, claims=claims))
    if found is None:
        return _infra("start_timeout")
    retry_class: RetryClass = "user" if found.code in _USER_START else "infra"
    return AttemptEnd(outcome="failed", retry_class=retry_class, code=found.code, params=dict(found.params))


def _cut_short(observation: AttemptObservation) -> bool:
    """Whether an exit code 0 came only after somebody else had begun to end the pod (a caught SIGTERM)."""
    pod = observation.pod
    if pod.reason == "DeadlineExceeded":
        return True
    ended = observation.finished_at
    marks = [pod.delete_requested_at]
    disruption = pod.conditions.get("DisruptionTarget")
    if disruption is not None and disruption.true:
        marks.append(disruption.since)
    return ended is not None and any(mark is not None and ended > mark for mark in marks)


def _deadline(observation: AttemptObservation) -> AttemptEnd | None:
    if observation.pod.reason != "DeadlineExceeded":
        return None
    if not observation.started:
        # The cluster counts from when a node takes the pod: a slow pull may use up all of it.
        return _infra("start_timeout")
    return AttemptEnd(outcome="timed_out", retry_class="user", code="deadline_exceeded")


def _evicted(observation: AttemptObservation) -> AttemptEnd | None:
    pod = observation.pod
    if pod.reason != "Evicted":
        return None
    if OWN_DISK_LIMIT.search(pod.message):
        return _user("disk_limit")
    return _infra("evicted", node=pod.node or "")


def _disrupted(observation: AttemptObservation) -> AttemptEnd | None:
    pod = observation.pod
    disruption = pod.conditions.get("DisruptionTarget")
    if disruption is not None and disruption.true:
        return _infra(_DISRUPTIONS.get(disruption.reason, "disrupted"), node=pod.node or "")
    code = _POD_REASONS.get(pod.reason)
    return _infra(code, node=pod.node or "") if code is not None else None


def _refused(observation: AttemptObservation) -> AttemptEnd | None:
    pod = observation.pod
    return _infra("node_refused", reason=pod.reason) if refused_by_node(pod.reason) else None


def _memory(observation: AttemptObservation) -> AttemptEnd | None:
    if observation.reason != "OOMKilled":
        return None
    return _user("out_of_memory", memory_bytes=observation.pod.memory_limit_bytes, exit_code=observation.exit_code)


def _deleted(observation: AttemptObservation) -> AttemptEnd | None:
    pod = observation.pod
    requested, ended = pod.delete_requested_at, observation.finished_at
    if requested is None or (ended is not None and ended < requested):
        return None
    return _infra("deleted_from_outside")


def _runtime(observation: AttemptObservation) -> AttemptEnd | None:
    if observation.reason in _RUNTIME_LOST:
        return _infra("node_restarted", node=observation.pod.node or "")
    return None


def _init(observation: AttemptObservation) -> AttemptEnd | None:
    failed = next((c for c in observation.pod.containers if c.init and c.exit_code), None)
    if failed is None:
        return None
    return _user("preparation_failed", container=failed.name, exit_code=failed.exit_code)


def _never_ran(observation: AttemptObservation) -> AttemptEnd | None:
    if start_failed(observation.reason):
        return _user("command_not_found", exit_code=observation.exit_code, message=observation.message)
    return _infra("never_started", reason=observation.pod.reason) if observation.exit_code is None else None


def _program(observation: AttemptObservation) -> AttemptEnd:
    code = observation.exit_code
    full = find_full(observation.message)
    if full is not None:
        return _user(full[0], exit_code=code, line=full[1])
    if observation.signal is not None:
        return _user("killed_by_signal", exit_code=code, signal=_signal_name(observation.signal))
    return _user("exit_code", exit_code=code)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


_RULES: tuple[Callable[[AttemptObservation], AttemptEnd | None], ...] = (
    _deadline, _evicted, _memory, _disrupted, _refused, _runtime, _deleted, _init, _never_ran,
)  # fmt: skip


def pod_is_ours(pod: PodObservation, *, attempt_id: str) -> bool:
    """After a 409 on create: whether the pod that has the name is this attempt's own (failure F4)."""
    return pod.labels.get(ID) == attempt_id
