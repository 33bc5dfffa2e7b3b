"""The endings of a task pod, scripted as a kubelet, a scheduler or a node controller would leave them (failure F25)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from kubekit.diagnose import END_CODES, POD_GONE, AttemptEnd, classify_attempt_end, classify_no_start, pod_is_ours
from kubekit.events import observe_events
from kubekit.observe import observe_attempt, observe_pod
from tests.kubekit.samples import ATTEMPT_ID, GIB, container_status, raw_event, raw_pod

RAN = {"startedAt": "2026-11-30T15:00:06Z", "finishedAt": "2026-11-30T15:02:00Z"}


def ended(**terminated: Any) -> dict[str, Any]:
    return {
        "phase": "Failed",
        "containerStatuses": container_status(terminated={**RAN, "reason": "Error", **terminated}),
    }


def disrupted(why: str, **more: Any) -> dict[str, Any]:
    row = {"type": "DisruptionTarget", "status": "True", "reason": why, "lastTransitionTime": "2026-11-30T15:01:30Z"}
    return {**ended(exitCode=143), "conditions": [row], **more}


@dataclass(frozen=True)
class Ending:
    name: str
    status: dict[str, Any]
    expected: tuple[str, str, str]
    metadata: dict[str, Any] = field(default_factory=dict)


DELETED = {"deletionTimestamp": "2026-11-30T15:02:00Z", "deletionGracePeriodSeconds": 30}
NEVER_RAN: dict[str, Any] = {"phase": "Failed", "containerStatuses": []}

ENDINGS: Sequence[Ending] = (
    Ending(
        "exit 0", {**ended(exitCode=0, reason="Completed"), "phase": "Succeeded"}, ("succeeded", "none", "succeeded")
    ),
    Ending("exit 1", ended(exitCode=1), ("failed", "user", "exit_code")),
    Ending("exit 255", ended(exitCode=255), ("failed", "user", "exit_code")),
    Ending("out of memory", ended(exitCode=137, reason="OOMKilled"), ("failed", "user", "out_of_memory")),
    Ending("SIGKILL of its own", ended(exitCode=137), ("failed", "user", "killed_by_signal")),
    Ending("segmentation fault", ended(exitCode=139), ("failed", "user", "killed_by_signal")),
    Ending("SIGTERM of its own", ended(exitCode=143), ("failed", "user", "killed_by_signal")),
    Ending(
        "disk full",
        ended(exitCode=1, message="OSError: [Errno 28] No space left on device: '/root/x'"),
        ("failed", "user", "volume_full"),
    ),
    Ending(
        "shared memory full",
        ended(exitCode=1, message="dd: error writing '/dev/shm/x': No space left on device"),
        ("failed", "user", "shared_memory_full"),
    ),
    Ending(
        "shared memory full (as PyTorch tells it)",
        ended(
            exitCode=1,
            message="RuntimeError: DataLoader worker (pid 9) is killed by signal: Bus error. It is possible "
            "that dataloader's workers are out of shared memory.",
        ),
        ("failed", "user", "shared_memory_full"),
    ),
    Ending(
        "command missing",
        {
            **NEVER_RAN,
            "containerStatuses": container_status(
                terminated={
                    "exitCode": 128,
                    "reason": "StartError",
                    "startedAt": "1970-01-01T00:00:00Z",
                    "message": 'exec: "nope": executable file not found in $PATH: unknown',
                }
            ),
        },
        ("failed", "user", "command_not_found"),
    ),
    Ending(
        "command missing (docker)",
        ended(exitCode=127, reason="ContainerCannotRun"),
        ("failed", "user", "command_not_found"),
    ),
    Ending(
        "time-out", {**ended(exitCode=143), "reason": "DeadlineExceeded"}, ("timed_out", "user", "deadline_exceeded")
    ),
    Ending(
        "time-out with a clean exit",
        {**ended(exitCode=0, reason="Completed"), "reason": "DeadlineExceeded"},
        ("timed_out", "user", "deadline_exceeded"),
    ),
    Ending(
        "time-out before its start",
        {**NEVER_RAN, "reason": "DeadlineExceeded"},
        ("failed", "infra", "start_timeout"),
    ),
    Ending(
        "evicted: node low on memory",
        {
            **NEVER_RAN,
            "reason": "Evicted",
            "message": "The node was low on resource: memory. Threshold quantity: 100Mi",
        },
        ("failed", "infra", "evicted"),
    ),
    Ending(
        "evicted: own scratch over its limit",
        {
            **ended(exitCode=137),
            "reason": "Evicted",
            "message": 'Usage of EmptyDir volume "shm" exceeds the limit "1Gi".',
        },
        ("failed", "user", "disk_limit"),
    ),
    Ending(
        "evicted: own local storage over its limit",
        {
            **ended(exitCode=137),
            "reason": "Evicted",
            "message": "Pod ephemeral local storage usage exceeds the total limit of containers 5Gi.",
        },
        ("failed", "user", "disk_limit"),
    ),
    Ending("preempted by the scheduler", disrupted("PreemptionByScheduler"), ("failed", "infra", "preempted")),
    Ending("preempted by the kubelet", {**NEVER_RAN, "reason": "Preempting"}, ("failed", "infra", "preempted")),
    Ending("node drained", disrupted("EvictionByEvictionAPI"), ("failed", "infra", "drained")),
    Ending("node unreachable", disrupted("DeletionByTaintManager"), ("failed", "infra", "node_lost")),
    Ending("node removed", disrupted("DeletionByPodGC"), ("failed", "infra", "node_lost")),
    Ending("node lost (old)", {**NEVER_RAN, "reason": "NodeLost"}, ("failed", "infra", "node_lost")),
    Ending(
        "kubelet shut down",
        disrupted("TerminationByKubelet", reason="Terminated"),
        ("failed", "infra", "node_shutdown"),
    ),
    Ending(
        "node shut down (old)",
        {
            **ended(exitCode=143),
            "reason": "Terminated",
            "message": "Pod was terminated in response to imminent node shutdown.",
        },
        ("failed", "infra", "node_shutdown"),
    ),
    Ending("disruption of a kind yet to come", disrupted("SomethingNew"), ("failed", "infra", "disrupted")),
    Ending("no CPU left at the node", {**NEVER_RAN, "reason": "OutOfcpu"}, ("failed", "infra", "node_refused")),
    Ending(
        "no GPU left at the node", {**NEVER_RAN, "reason": "OutOfnvidia.com/gpu"}, ("failed", "infra", "node_refused")
    ),
    Ending(
        "device plugin failed", {**NEVER_RAN, "reason": "UnexpectedAdmissionError"}, ("failed", "infra", "node_refused")
    ),
    Ending(
        "node restarted", ended(exitCode=137, reason="ContainerStatusUnknown"), ("failed", "infra", "node_restarted")
    ),
    Ending("runtime restarted", ended(exitCode=255, reason="Unknown"), ("failed", "infra", "node_restarted")),
    Ending("deleted by somebody", ended(exitCode=143), ("failed", "infra", "deleted_from_outside"), DELETED),
    Ending(
        "deleted, and the program caught SIGTERM",
        {**ended(exitCode=0, reason="Completed"), "phase": "Succeeded"},
        ("failed", "infra", "deleted_from_outside"),
        DELETED,
    ),
    Ending(
        "deleted right after a clean end",
        {**ended(exitCode=0, finishedAt="2026-11-30T15:01:30Z"), "phase": "Succeeded"},
        ("succeeded", "none", "succeeded"),
        DELETED,
    ),
    Ending(
        "deleted after it had failed",
        ended(exitCode=2, finishedAt="2026-11-30T15:01:00Z"),
        ("failed", "user", "exit_code"),
        DELETED,
    ),
    Ending(
        "preparation failed",
        {**NEVER_RAN, "initContainerStatuses": [{"name": "fetch", "state": {"terminated": {"exitCode": 2}}}]},
        ("failed", "user", "preparation_failed"),
    ),
    Ending("failed without a word", NEVER_RAN, ("failed", "infra", "never_started")),
)


def observed(ending: Ending) -> Any:
    raw = raw_pod(**{"conditions": [], **ending.status})
    raw["metadata"] |= ending.metadata
    return observe_attempt(raw)


@pytest.mark.parametrize("ending", ENDINGS, ids=lambda ending: ending.name)
def test_each_ending_is_told_apart(ending: Ending) -> None:
    found = classify_attempt_end(observed(ending))
    assert found is not None
    assert (found.outcome, found.retry_class, found.code) == ending.expected


def test_there_are_at_least_the_promised_number_of_endings() -> None:
    assert len(ENDINGS) >= 25


def test_every_end_has_a_script_and_no_script_an_unknown_end() -> None:
    scripted = {ending.expected[2] for ending in ENDINGS}
    assert scripted | {"cancelled", POD_GONE.code} == END_CODES


@pytest.mark.parametrize("ending", ENDINGS, ids=lambda ending: ending.name)
def test_a_cancelled_attempt_is_cancelled_unless_it_had_succeeded(ending: Ending) -> None:
    found = classify_attempt_end(observed(ending), cancelled=True)
    assert found is not None
    assert found.outcome == ("succeeded" if ending.expected[0] == "succeeded" else "cancelled")
    assert found.retry_class == "none"


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"phase": "Pending"},
        {"phase": "Unknown"},
        {"containerStatuses": container_status(terminated={"exitCode": 0})},
        {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]},
    ],
)
def test_what_has_not_ended_is_not_given_an_end(status: dict[str, Any]) -> None:
    assert classify_attempt_end(observe_attempt(raw_pod(**status))) is None


def test_the_sentence_of_an_out_of_memory_names_the_limit() -> None:
    found = classify_attempt_end(observe_attempt(raw_pod(**ended(exitCode=137, reason="OOMKilled"))))
    assert found is not None
    assert found.params["memory_bytes"] == 2 * GIB


def test_a_signal_has_its_name() -> None:
    found = classify_attempt_end(observe_attempt(raw_pod(**ended(exitCode=139))))
    assert found is not None
    assert found.params == {"exit_code": 139, "signal": "SIGSEGV"}


def test_a_pod_that_is_gone_is_lost_and_not_failed() -> None:
    assert AttemptEnd(outcome="lost", retry_class="infra", code="pod_gone") == POD_GONE


@pytest.mark.parametrize(
    ("status", "events", "expected"),
    [
        (
            {
                "containerStatuses": container_status(
                    waiting={"reason": "ImagePullBackOff", "message": 'pull "x": not found'}
                )
            },
            [],
            ("user", "image_not_found"),
        ),
        (
            {
                "containerStatuses": container_status(
                    waiting={"reason": "CreateContainerConfigError", "message": 'secret "s" not found'}
                )
            },
            [],
            ("user", "config_missing"),
        ),
        (
            {
                "conditions": [
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "Unschedulable",
                        "message": "0/3 nodes are available: 3 Insufficient cpu.",
                    }
                ],
                "containerStatuses": [],
            },
            [],
            ("infra", "no_node_cpu"),
        ),
        (
            {"conditions": [], "containerStatuses": []},
            [raw_event("FailedMount", 'MountVolume.SetUp failed for volume "v": mount failed: exit status 32')],
            ("infra", "volume_mount_failed"),
        ),
        ({"conditions": [], "containerStatuses": []}, [], ("infra", "start_timeout")),
    ],
)
def test_a_start_that_is_given_up_burns_a_retry_only_when_its_author_can_mend_it(
    status: dict[str, Any], events: list[dict[str, Any]], expected: tuple[str, str]
) -> None:
    found = classify_no_start(observe_attempt(raw_pod(phase="Pending", **status)), events=observe_events(events))
    assert (found.retry_class, found.code) == expected
    assert found.outcome == "failed"


def test_a_pod_found_after_a_conflict_is_ours_only_by_its_label() -> None:
    pod = observe_pod(raw_pod())
    assert pod_is_ours(pod, attempt_id=ATTEMPT_ID)
    assert not pod_is_ours(pod, attempt_id="another")
