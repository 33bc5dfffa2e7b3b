"""Raw objects of a real server -> observations; incomplete ones never raise."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubekit.names import GENERATION, ID
from kubekit.observe import (
    glance,
    observe_attempt,
    observe_claim,
    observe_instance,
    observe_pod,
    parse_time,
    trimmed_pod,
)
from tests.kubekit.samples import ATTEMPT_ID, GIB, INSTANCE_ID, container_status, raw_pod


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-30T15:00:01Z", datetime(2026, 11, 30, 15, 0, 1, tzinfo=UTC)),
        ("2026-11-30T15:00:01.123456Z", datetime(2026, 11, 30, 15, 0, 1, 123456, tzinfo=UTC)),
        ("2026-11-30T15:00:01.123456789Z", datetime(2026, 11, 30, 15, 0, 1, 123456, tzinfo=UTC)),
        ("2026-11-30T15:00:01.5+08:00", datetime(2026, 11, 30, 7, 0, 1, 500000, tzinfo=UTC)),
        ("", None), (None, None), ("yesterday", None), ("2026-13-40T00:00:00Z", None),
    ],
)  # fmt: skip
def test_times(text: str | None, expected: datetime | None) -> None:
    assert parse_time(text) == expected


def test_a_running_pod() -> None:
    pod = observe_pod(raw_pod())
    assert (pod.phase, pod.ready, pod.node, pod.ip, pod.uid) == ("Running", True, "node-1", "10.244.0.7", "uid-1")
    assert pod.main is not None
    assert (pod.main.state, pod.main.started_at) == ("running", moment("2026-11-30T15:00:06Z"))
    assert pod.memory_limit_bytes == 2 * GIB
    assert pod.claims == ("home-abc",)
    assert pod.finalizers == ("mlportal.io/result",)
    assert not pod.finished
    assert not pod.deleting
    assert not pod.unreachable


def test_a_pod_that_was_just_made_says_nothing_yet() -> None:
    pod = observe_pod({"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": {}, "status": {}})
    assert (pod.phase, pod.ready, pod.main, pod.node) == ("Pending", False, None, None)


def test_when_a_deletion_was_asked_for() -> None:
    raw = raw_pod()
    raw["metadata"] |= {"deletionTimestamp": "2026-11-30T15:01:30Z", "deletionGracePeriodSeconds": 30}
    pod = observe_pod(raw)
    assert pod.deleting
    assert pod.delete_requested_at == moment("2026-11-30T15:01:00Z")


@pytest.mark.parametrize(
    "status",
    [
        {"phase": "Unknown"},
        {"reason": "NodeLost"},
        {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]},
        {"conditions": [{"type": "Ready", "status": "False", "reason": "NodeStatusUnknown"}]},
    ],
)
def test_a_node_that_is_silent(status: dict[str, Any]) -> None:
    assert observe_pod(raw_pod(**status)).unreachable


def test_a_container_that_crashed_and_waits_remembers_its_end() -> None:
    last = {"exitCode": 1, "reason": "Error", "message": "boom", "finishedAt": "2026-11-30T15:00:08Z"}
    statuses = container_status(waiting={"reason": "CrashLoopBackOff"}, last=last, restarts=4)
    main = observe_pod(raw_pod(containerStatuses=statuses)).main
    assert main is not None
    assert (main.state, main.reason, main.restarts) == ("waiting", "CrashLoopBackOff", 4)
    assert main.previous is not None
    assert (main.previous.exit_code, main.previous.message) == (1, "boom")


def stateful_set(replicas: int = 1) -> dict[str, Any]:
    marks = {ID: INSTANCE_ID, GENERATION: "3"}
    return {
        "metadata": {"uid": "s", "labels": marks, "generation": 2},
        "spec": {"replicas": replicas},
        "status": {"observedGeneration": 2},
    }


def pod_like(**changes: Any) -> dict[str, Any]:
    return raw_pod(**changes)


@pytest.mark.parametrize(
    ("stateful", "pod", "expected"),
    [
        (None, None, "absent"),
        (stateful_set(0), None, "stopped"),
        (stateful_set(1), None, "starting"),
        (stateful_set(1), pod_like(phase="Pending", conditions=[]), "starting"),
        (stateful_set(1), pod_like(), "running"),
        (stateful_set(0), pod_like(), "stopping"),
        (None, pod_like(), "stopping"),
        (stateful_set(1), pod_like(phase="Unknown"), "unreachable"),
        (stateful_set(0), pod_like(reason="NodeLost"), "unreachable"),
        (stateful_set(1), pod_like(phase="Failed", conditions=[]), "crashing"),
        (
            stateful_set(1),
            pod_like(conditions=[], containerStatuses=container_status(terminated={"exitCode": 1})),
            "crashing",
        ),
        (
            stateful_set(1),
            pod_like(
                conditions=[],
                containerStatuses=container_status(waiting={"reason": "CrashLoopBackOff"}, last={"exitCode": 1}),
            ),
            "crashing",
        ),
        (
            stateful_set(1),
            pod_like(conditions=[], containerStatuses=container_status(waiting={"reason": "ImagePullBackOff"})),
            "starting",
        ),
    ],
)
def test_the_situation_of_an_instance(
    stateful: dict[str, Any] | None, pod: dict[str, Any] | None, expected: str
) -> None:
    assert observe_instance(stateful, pod).situation == expected


def test_a_pod_on_its_way_out_is_stopping_even_when_ready() -> None:
    pod = raw_pod()
    pod["metadata"]["deletionTimestamp"] = "2026-11-30T15:01:30Z"
    assert observe_instance(stateful_set(1), pod).situation == "stopping"


def test_an_instance_knows_its_row_and_generation() -> None:
    found = observe_instance(stateful_set(1), None)
    assert (found.id, found.generation, found.replicas, found.settled, found.uid) == (INSTANCE_ID, 3, 1, True, "s")
    behind = stateful_set(1)
    behind["metadata"]["generation"] = 5
    assert not observe_instance(behind, None).settled


def test_an_attempt_that_ended() -> None:
    ended = {
        "exitCode": 3,
        "reason": "Error",
        "startedAt": "2026-11-30T15:00:06Z",
        "finishedAt": "2026-11-30T15:00:08Z",
    }
    found = observe_attempt(raw_pod(phase="Failed", containerStatuses=container_status(terminated=ended)))
    assert (found.attempt_id, found.number, found.exit_code, found.signal) == (ATTEMPT_ID, 2, 3, None)
    assert found.finished
    assert found.started
    assert (found.started_at, found.finished_at) == (moment("2026-11-30T15:00:06Z"), moment("2026-11-30T15:00:08Z"))


@pytest.mark.parametrize(
    ("code", "signal"), [(137, 9), (139, 11), (143, 15), (0, None), (1, None), (255, None), (128, None)]
)
def test_exit_codes_above_128_are_signals(code: int, signal: int | None) -> None:
    statuses = container_status(terminated={"exitCode": code})
    assert observe_attempt(raw_pod(phase="Failed", containerStatuses=statuses)).signal == signal


def test_a_program_that_could_not_be_executed_never_started() -> None:
    ended = {
        "exitCode": 128,
        "reason": "StartError",
        "startedAt": "1970-01-01T00:00:00Z",
        "finishedAt": "2026-11-30T15:00:08Z",
    }
    assert not observe_attempt(raw_pod(phase="Failed", containerStatuses=container_status(terminated=ended))).started


def test_a_claim() -> None:
    raw = {
        "metadata": {"name": "c", "namespace": "ns", "uid": "u"},
        "spec": {"resources": {"requests": {"storage": "20Gi"}}, "storageClassName": "fast"},
        "status": {
            "phase": "Bound", "capacity": {"storage": "10Gi"},
            "conditions": [{"type": "FileSystemResizePending", "status": "True"}],
        },
    }  # fmt: skip
    claim = observe_claim(raw)
    assert (claim.phase, claim.capacity_bytes, claim.requested_bytes) == ("Bound", 10 * GIB, 20 * GIB)
    assert claim.resize_pending
    assert not claim.deleting


@given(st.dictionaries(st.sampled_from(["metadata", "status", "spec"]), st.none() | st.just({}), max_size=3))
def test_missing_parts_never_raise(raw: dict[str, Any]) -> None:
    assert observe_pod(raw).phase == "Pending"
    assert observe_claim(raw).phase == "Pending"
    assert observe_instance(raw, raw).situation in ("starting", "stopping")
    assert observe_attempt(raw).number is None


def test_a_trimmed_pod_says_the_same_and_is_small() -> None:
    raw = raw_pod(containerStatuses=container_status(running={"startedAt": "2026-11-30T15:00:00Z"}))
    limits = {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}}
    raw["metadata"] |= {"managedFields": [{"fieldsV1": {"f:spec": {}}}], "finalizers": ["mlportal.io/result"]}
    raw["spec"] = {
        "nodeName": "node-1",
        "nodeSelector": {"pool": "online"},
        "overhead": {"cpu": "10m"},
        "volumes": [{"name": "home", "persistentVolumeClaim": {"claimName": "home"}}],
        "containers": [{"name": "main", "image": "x", "env": [{"name": "A", "value": "b"}], "resources": limits}],
        "initContainers": [{"name": "first", "command": ["x"], "restartPolicy": "Always", "resources": limits}],
        "tolerations": [{"operator": "Exists"}],
    }
    trimmed = trimmed_pod(raw)
    assert observe_pod(trimmed) == observe_pod(raw)
    assert "managedFields" not in trimmed["metadata"]
    assert "tolerations" not in trimmed["spec"]
    assert trimmed["spec"]["containers"] == [{"name": "main", "resources": limits}]
    assert observe_pod(trimmed_pod({})) == observe_pod({})


@pytest.mark.parametrize(
    "raw",
    [
        {},
        raw_pod(),
        raw_pod(conditions=[]),
        raw_pod(conditions=[{"type": "Ready", "status": "False"}]),
        raw_pod(containerStatuses=container_status(waiting={"reason": "CrashLoopBackOff"}, restarts=4)),
        {**raw_pod(), "metadata": {**raw_pod()["metadata"], "deletionTimestamp": "2026-11-30T15:01:30Z"}},
    ],
)
def test_at_a_glance_a_pod_says_what_it_says_looked_at(raw: dict[str, Any]) -> None:
    pod = observe_pod(raw)
    restarts = pod.main.restarts if pod.main is not None else 0
    assert glance(raw) == (pod.labels.get(ID, ""), pod.uid, pod.ready and not pod.deleting, restarts)
