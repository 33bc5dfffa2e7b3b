"""Specifications and raw objects that several tests of kubekit begin from."""

from __future__ import annotations

from typing import Any

from kubekit.names import ATTEMPT, GENERATION, ID, INSTALL, KIND
from kubekit.specs import (
    ClaimSpec,
    Identity,
    InstanceSpec,
    Mount,
    Placement,
    QueueSpec,
    Resources,
    TaskPodSpec,
    Toleration,
)

INSTANCE_ID = "6f1d6f5e-3c3a-4a51-9df0-0a6f6f0d5a11"
ATTEMPT_ID = "0b9d3c62-9b0f-4a43-8f0e-51f0ad3fd2c4"
RUN_ID = "d2b4b1d6-6f8e-4df5-b2fd-64c9c4f0f8aa"
GIB = 1 << 30
NAMESPACE = "mlp-default-ek66lvdx6buly"


def identity(kind: str = "instance", **changes: Any) -> Identity:
    given: dict[str, Any] = {"install": "test", "kind": kind, "id": INSTANCE_ID, "generation": 3, "name": "My notebook"}
    return Identity(**{**given, **changes})


def instance_spec(**changes: Any) -> InstanceSpec:
    given: dict[str, Any] = {
        "identity": identity(),
        "namespace": NAMESPACE,
        "image": "mlportal/jupyter:1",
        "resources": Resources(cpu_millis=500, memory_bytes=GIB),
        "host": "i-6f1d6f5e3c3a4a519df00a6f6f0d5a11.apps.localhost",
        "public_host": "i-6f1d6f5e3c3a4a519df00a6f6f0d5a11.apps.localhost:8000",
        "portal_origin": "http://localhost:8000",
        "mounts": (Mount(claim="home-abc", path="/root"),),
    }
    return InstanceSpec(**{**given, **changes})


def gpu_instance_spec() -> InstanceSpec:
    return instance_spec(
        resources=Resources(
            cpu_millis=4000,
            memory_bytes=16 * GIB,
            gpus=2,
            cpu_request_millis=2000,
            memory_request_bytes=8 * GIB,
            shm_bytes=4 * GIB,
        ),
        mounts=(
            Mount(claim="home-abc", path="/root"),
            Mount(claim="data", path="/data/a", read_only=True),
            Mount(claim="data", path="/data/b", read_only=True),
        ),
        env={"B": "2", "A": "$(whoami)"},
        ingress_class="traefik",
        tls_secret="apps-tls",
        placement=Placement(
            priority_class="mlportal-online",
            node_selector={"mlportal.io/pool": "online"},
            tolerations=(Toleration(key="mlportal.io/pool", value="online"),),
            host_users=False,
            runtime_class="nvidia",
            image_pull_secrets=("registry",),
        ),
    )


def task_spec(**changes: Any) -> TaskPodSpec:
    given: dict[str, Any] = {
        "identity": identity("attempt", id=ATTEMPT_ID, name="train", attempt=2),
        "namespace": NAMESPACE,
        "flow": "Nightly",
        "node": "train",
        "run_id": RUN_ID,
        "image": "mlportal/python:1",
        "resources": Resources(cpu_millis=1000, memory_bytes=2 * GIB),
        "scheduled_at": "2026-11-30T15:00:00Z",
        "command": ("python", "-c"),
        "args": ("print(42) # $(HOME)",),
        "env": {"MODE": "night"},
        "mounts": (Mount(claim="home-abc", path="/root"),),
        "deadline_s": 3600,
        "working_dir": "/root",
    }
    return TaskPodSpec(**{**given, **changes})


def claim_spec(**changes: Any) -> ClaimSpec:
    given: dict[str, Any] = {
        "identity": identity("volume", name="home"),
        "namespace": NAMESPACE,
        "storage_bytes": 10 * GIB,
    }
    return ClaimSpec(**{**given, **changes})


def queue_spec(**changes: Any) -> QueueSpec:
    given: dict[str, Any] = {
        "identity": identity("queue", name="default"),
        "cpu_millis": 4000,
        "memory_bytes": 8 * GIB,
        "storage_bytes": 100 * GIB,
        "claims": 20,
        "pods": 40,
    }
    return QueueSpec(**{**given, **changes})


def raw_pod(**changes: Any) -> dict[str, Any]:
    """A running, ready pod of attempt 2 as a real server shows it; ``changes`` replace parts of its status."""
    status: dict[str, Any] = {
        "phase": "Running",
        "startTime": "2026-11-30T15:00:01Z",
        "podIP": "10.244.0.7",
        "conditions": [
            {"type": "PodReadyToStartContainers", "status": "True", "lastTransitionTime": "2026-11-30T15:00:03Z"},
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-30T15:00:01Z"},
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-30T15:00:09Z"},
        ],
        "containerStatuses": [
            {
                "name": "main",
                "image": "mlportal/python:1",
                "ready": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": "2026-11-30T15:00:06Z"}},
                "lastState": {},
            }
        ],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "nightly-train-2-abc",
            "namespace": NAMESPACE,
            "uid": "uid-1",
            "resourceVersion": "77",
            "creationTimestamp": "2026-11-30T15:00:00Z",
            "labels": {INSTALL: "test", KIND: "attempt", ID: ATTEMPT_ID, GENERATION: "3", ATTEMPT: "2"},
            "finalizers": ["mlportal.io/result"],
        },
        "spec": {
            "nodeName": "node-1",
            "containers": [{"name": "main", "resources": {"limits": {"memory": "2Gi"}}}],
            "volumes": [
                {"name": "v", "persistentVolumeClaim": {"claimName": "home-abc"}},
                {"name": "shm", "emptyDir": {}},
            ],
        },
        "status": {**status, **changes},
    }


def container_status(**state: Any) -> list[dict[str, Any]]:
    """``containerStatuses`` with one container in the given state: ``waiting={...}`` or ``terminated={...}``."""
    last = state.pop("last", None)
    restarts = state.pop("restarts", 0)
    return [
        {
            "name": "main", "image": "mlportal/python:1", "ready": False, "restartCount": restarts, "state": state,
            "lastState": {"terminated": last} if last else {},
        }
    ]  # fmt: skip


def raw_event(reason: str, message: str, **changes: Any) -> dict[str, Any]:
    """A core/v1 Event about the pod of `raw_pod`."""
    return {
        "metadata": {"name": f"e-{reason.lower()}", "namespace": NAMESPACE},
        "involvedObject": {"kind": "Pod", "name": "nightly-train-2-abc", "uid": "uid-1"},
        "reason": reason,
        "message": message,
        "type": "Warning",
        "count": 1,
        "firstTimestamp": "2026-11-30T15:00:02Z",
        "lastTimestamp": "2026-11-30T15:00:02Z",
        **changes,
    }
