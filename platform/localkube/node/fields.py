"""Which fields of a pod localkube acts on, which it only stores, and that it refuses all others.

docs/localkube.md lists the same; a test compares the two.
"""

from __future__ import annotations

from typing import Any, Final

from localkube.node.containers import FIELD_PATHS
from localkube.status import Object

ACTED_ON: Final = "acted on"
STORED: Final = "stored"
"""Stored but not acted on: answered with a Warning header."""
SILENT: Final = "silent"
"""Filled in by the server or meaningless on a single node; neither acted on nor worth a warning."""

_PROBE: Final = {
    "httpGet": {"path": ACTED_ON, "port": ACTED_ON, "scheme": SILENT},
    "initialDelaySeconds": ACTED_ON,
    "timeoutSeconds": ACTED_ON,
    "periodSeconds": ACTED_ON,
    "successThreshold": ACTED_ON,
    "failureThreshold": ACTED_ON,
}

CONTAINER: Final[dict[str, Any]] = {
    "name": ACTED_ON,
    "image": ACTED_ON,
    "imagePullPolicy": ACTED_ON,
    "command": ACTED_ON,
    "args": ACTED_ON,
    "workingDir": ACTED_ON,
    "env": {
        "name": ACTED_ON,
        "value": ACTED_ON,
        "valueFrom": {"fieldRef": {"fieldPath": ACTED_ON, "apiVersion": SILENT}},
    },
    "ports": {"name": ACTED_ON, "containerPort": ACTED_ON, "protocol": SILENT},
    "resources": {"requests": ACTED_ON, "limits": ACTED_ON},
    "volumeMounts": {"name": ACTED_ON, "mountPath": ACTED_ON, "readOnly": ACTED_ON},
    "readinessProbe": _PROBE,
    "securityContext": {
        "runAsUser": ACTED_ON,
        "runAsGroup": ACTED_ON,
        "runAsNonRoot": SILENT,
        "allowPrivilegeEscalation": SILENT,
        "privileged": SILENT,
        "capabilities": {"drop": SILENT},
        "seccompProfile": STORED,
    },
    "terminationMessagePath": ACTED_ON,
    "terminationMessagePolicy": ACTED_ON,
}

VOLUME: Final[dict[str, Any]] = {
    "name": ACTED_ON,
    "persistentVolumeClaim": {"claimName": ACTED_ON, "readOnly": ACTED_ON},
    "emptyDir": {"medium": ACTED_ON, "sizeLimit": ACTED_ON},
    "secret": {"secretName": ACTED_ON, "defaultMode": ACTED_ON},
    "configMap": {"name": ACTED_ON, "defaultMode": ACTED_ON},
}

SPEC: Final[dict[str, Any]] = {
    "containers": CONTAINER,
    "volumes": VOLUME,
    "restartPolicy": ACTED_ON,
    "terminationGracePeriodSeconds": ACTED_ON,
    "activeDeadlineSeconds": ACTED_ON,
    "nodeName": ACTED_ON,
    "nodeSelector": ACTED_ON,
    "tolerations": ACTED_ON,
    "schedulerName": ACTED_ON,
    "priorityClassName": ACTED_ON,
    "priority": ACTED_ON,
    "preemptionPolicy": SILENT,
    "hostname": ACTED_ON,
    "subdomain": STORED,
    "serviceAccountName": SILENT,
    "serviceAccount": SILENT,
    "automountServiceAccountToken": SILENT,
    "enableServiceLinks": SILENT,
    "dnsPolicy": SILENT,
    "imagePullSecrets": STORED,
    "runtimeClassName": STORED,
    "hostUsers": SILENT,
    "securityContext": {
        "runAsUser": ACTED_ON,
        "runAsGroup": ACTED_ON,
        "runAsNonRoot": SILENT,
        "fsGroup": SILENT,
        "fsGroupChangePolicy": SILENT,
        "seccompProfile": STORED,
    },
}


def check_pod(pod: Object) -> tuple[list[str], list[str]]:
    """(warnings, refusals): each a sentence that begins with the field's path."""
    warnings: list[str] = []
    refusals: list[str] = []
    _walk(pod.get("spec", {}), SPEC, "spec", warnings, refusals)
    _check_values(pod.get("spec", {}), warnings, refusals)
    return warnings, refusals


def paths(mark: str, table: dict[str, Any] | None = None, prefix: str = "") -> list[str]:
    """The dotted paths below a pod's spec that have a mark, for the documentation."""
    found: list[str] = []
    for name, inner in (SPEC if table is None else table).items():
        if isinstance(inner, dict):
            found += paths(mark, inner, f"{prefix}{name}.")
        elif inner == mark:
            found.append(prefix + name)
    return found


def _walk(value: Any, table: Any, path: str, warnings: list[str], refusals: list[str]) -> None:
    if isinstance(value, list):
        for index, entry in enumerate(value):
            _walk(entry, table, f"{path}[{index}]", warnings, refusals)
        return
    if not isinstance(value, dict) or not isinstance(table, dict):
        return
    for name, inner in value.items():
        known = table.get(name)
        where = f"{path}.{name}"
        if inner in (None, [], {}, False) and name not in table:
            continue
        if known is None:
            refusals.append(f"{where}: localkube does not implement this field")
        elif known == STORED:
            warnings.append(f"{where}: stored, but localkube does not act on it")
        elif isinstance(known, dict):
            _walk(inner, known, where, warnings, refusals)


def _check_values(spec: Object, warnings: list[str], refusals: list[str]) -> None:
    for index, container in enumerate(spec.get("containers", [])):
        where = f"spec.containers[{index}]"
        if (container.get("securityContext") or {}).get("privileged"):
            refusals.append(f"{where}.securityContext.privileged: localkube grants it to nobody")
        probe = container.get("readinessProbe")
        if probe and (probe.get("httpGet") or {"scheme": "none"}).get("scheme", "HTTP") != "HTTP":
            refusals.append(f"{where}.readinessProbe: localkube implements no probe but httpGet by HTTP")
        for entry in container.get("env", []):
            path = ((entry.get("valueFrom") or {}).get("fieldRef") or {}).get("fieldPath")
            if path is not None and path not in FIELD_PATHS:
                refusals.append(f"{where}.env: localkube does not implement the fieldPath {path}")
    for index, volume in enumerate(spec.get("volumes", [])):
        if set(volume) == {"name"}:
            refusals.append(f"spec.volumes[{index}]: a volume needs a source")
        empty = volume.get("emptyDir") or {}
        if empty.get("sizeLimit") and empty.get("medium") != "Memory":
            warnings.append(f"spec.volumes[{index}].emptyDir.sizeLimit: stored, but acted on for medium Memory alone")
