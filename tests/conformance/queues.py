"""Queues, attempts and waiting, for tests that go through kubekit."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any

from kubekit import names
from kubekit.build import task
from kubekit.client import Cluster
from kubekit.errors import (
    Conflict,
    NotFound,
)
from kubekit.specs import Identity, QueueSpec
from tests.kubekit.samples import task_spec


def row(kind: str, name: str, **changes: Any) -> Identity:
    given: dict[str, Any] = {
        "install": "conformance",
        "kind": kind,
        "id": str(uuid.uuid4()),
        "generation": 1,
        "name": name,
    }
    return Identity(**{**given, **changes})


def wait_for(condition: Callable[[], Any], seconds: float = 90) -> Any:
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, "did not come true in time"
        time.sleep(0.05)


def attempt(team: QueueSpec, **changes: Any) -> Any:
    given = {"identity": row("attempt", "train", attempt=1), "namespace": team.namespace, "mounts": (), "grace_s": 1}
    return task_spec(**{**given, **changes})


def missing(cluster: Cluster, namespace: str | None, name: str, *, kind: str = "Pod") -> bool:
    try:
        cluster.get(kind, namespace, name)
    except NotFound:
        return True
    return False


def free(cluster: Cluster, pod: dict[str, Any]) -> None:
    """Take our finalizer off a pod, as the portal does once the result is stored."""
    metadata = pod["metadata"]
    if names.RESULT_FINALIZER not in (metadata.get("finalizers") or ()):
        return

    def done() -> bool:
        fresh = cluster.get("Pod", metadata["namespace"], metadata["name"])["metadata"]
        patch = task.without_result_finalizer(fresh["finalizers"], resource_version=fresh["resourceVersion"])
        try:
            cluster.patch_merge("Pod", metadata["namespace"], metadata["name"], patch)
        except Conflict:  # the kubelet wrote the status in between
            return False
        return True

    wait_for(done)
