"""Events of a cluster for the sample: calm, warning, long and repeated ones, as rows keep them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from apps.clusters.events import merge
from kubekit.events import observe_event

NO_NODE = (
    "0/3 nodes are available: 1 node(s) had untolerated taint {node.kubernetes.io/unschedulable: }, 2 Insufficient "
    "nvidia.com/gpu. preemption: 0/3 nodes are available: 1 Preemption is not helpful for scheduling."
)
IMAGE = "registry.example:5000/very/deep/path/to/an/image/of/pytorch:2.1-cuda12.1-cudnn8"


def rows(now: datetime, about: str, told: Sequence[tuple[str, str, int]]) -> list[dict[str, Any]]:
    """``(reason, message, how often)`` from the oldest to the newest, some seconds apart."""
    raws = [
        {
            "reason": reason,
            "message": message,
            "count": count,
            "type": "Warning"
            if reason in {"FailedScheduling", "Failed", "BackOff", "ProvisioningFailed"}
            else "Normal",
            "lastTimestamp": (now - timedelta(seconds=7 * (len(told) - number))).isoformat(),
            "involvedObject": {"kind": "Pod", "name": about},
        }
        for number, (reason, message, count) in enumerate(told)
    ]
    return merge([], [observe_event(raw) for raw in raws])


def instance_events(now: datetime, *, about: str) -> list[dict[str, Any]]:
    """A start with trouble on its way."""
    return rows(
        now,
        about,
        [
            ("FailedScheduling", NO_NODE, 12),
            ("Scheduled", f"Successfully assigned mlp-vision/{about} to node-0.example.internal", 1),
            ("Pulling", f'Pulling image "{IMAGE}"', 1),
            ("Failed", f'Failed to pull image "{IMAGE}": not found', 3),
            ("Pulled", f'Successfully pulled image "{IMAGE}" in 2.1s (2.1s including waiting)', 1),
            ("Created", "Created container: main", 1),
            ("Started", "Started container main", 1),
            ("SomethingNew", "A controller that nobody knows wrote this text.", 1),
        ],
    )


def attempt_events(now: datetime, *, about: str) -> list[dict[str, Any]]:
    """A start without trouble."""
    return rows(
        now,
        about,
        [
            ("Scheduled", f"Successfully assigned mlp-vision/{about} to node-0.example.internal", 1),
            ("Pulled", 'Container image "mlportal/python:1" already present on machine', 1),
            ("Created", "Created container: main", 1),
            ("Started", "Started container main", 1),
        ],
    )


def volume_events(now: datetime) -> list[dict[str, Any]]:
    """Storage that is first refused."""
    return rows(
        now,
        "v-claim",
        [
            ("ProvisioningFailed", 'storageclass.storage.k8s.io "fast" not found', 4),
            ("ExternalProvisioning", "Waiting for a volume to be created by the provisioner", 2),
            ("ProvisioningSucceeded", "Successfully provisioned volume pvc-1", 1),
        ],
    )
