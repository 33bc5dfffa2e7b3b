"""Which fields of a pod localkube acts on, which it only stores, and that it refuses all others.

docs/localkube.md lists the same; a test compares the two.
"""

from __future__ import annotations

from typing import Any, Final

from localkube.status import Object

ACTED_ON: Final = "acted on"
STORED: Final = "stored"
"""Stored but not acted on: answered with a Warning header."""
SILENT: Final = "silent"
"""Filled in by the server or meaningless on a single node; neither acted on nor worth a warning."""

_PROBE: Final = {
    "httpGet": {"path": ACTED_ON, "port": ACTED_ON, "host": STORED, "scheme": SILENT, "httpHeaders": ACTED_ON},
    "tcpSocket": {"port": ACTED_ON, "host": STORED},
    "exec": {"command": ACTED_ON},
    "initialDelaySeconds": ACTED_ON,
    "timeoutSeconds": ACTED_ON,
    "periodSeconds": ACTED_ON,
    "successThreshold": ACTED_ON,
    "failureThreshold": ACTED_ON,
    "terminationGracePeriodSeconds": ACTED_ON,
}
_SOURCE: Final = {"name": ACTED_ON, "key": ACTED_ON, "optional": ACTED_ON}
_ITEMS: Final = ACTED_ON

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
        "valueFrom": {
            "secretKeyRef": _SOURCE,
            "configMapKeyRef": _SOURCE,
            "fieldRef": {"fieldPath": ACTED_ON, "apiVersion": SILENT},
            "resourceFieldRef": {"resource": ACTED_ON, "divisor": ACTED_ON, "containerName": STORED},
        },
    },
    "envFrom": {
        "prefix": ACTED_ON,
        "secretRef": {"name": ACTED_ON, "optional": ACTED_ON},
        "configMapRef": {"name": ACTED_ON, "optional": ACTED_ON},
    },
    "ports": {"name": ACTED_ON, "containerPort": ACTED_ON, "protocol": SILENT},
    "resources": {"requests": ACTED_ON, "limits": ACTED_ON},
    "volumeMounts": {"name": ACTED_ON, "mountPath": ACTED_ON, "readOnly": ACTED_ON, "subPath": ACTED_ON},
    "readinessProbe": _PROBE,
    "livenessProbe": _PROBE,
    "startupProbe": _PROBE,
    "securityContext": {
        "runAsUser": ACTED_ON,
        "runAsGroup": ACTED_ON,
        "readOnlyRootFilesystem": ACTED_ON,
        "runAsNonRoot": SILENT,
        "allowPrivilegeEscalation": SILENT,
        "privileged": SILENT,
        "capabilities": {"drop": SILENT},
        "seccompProfile": STORED,
    },
    "terminationMessagePath": ACTED_ON,
    "terminationMessagePolicy": ACTED_ON,
    "stdin": STORED,
    "stdinOnce": STORED,
    "tty": STORED,
}

_PROJECTION: Final = {"name": ACTED_ON, "items": _ITEMS, "optional": ACTED_ON, "defaultMode": ACTED_ON}
_DOWNWARD: Final = {"items": _ITEMS, "defaultMode": ACTED_ON}

VOLUME: Final[dict[str, Any]] = {
    "name": ACTED_ON,
    "persistentVolumeClaim": {"claimName": ACTED_ON, "readOnly": ACTED_ON},
    "emptyDir": {"medium": ACTED_ON, "sizeLimit": ACTED_ON},
    "secret": {"secretName": ACTED_ON, "items": _ITEMS, "optional": ACTED_ON, "defaultMode": ACTED_ON},
    "configMap": _PROJECTION,
    "downwardAPI": _DOWNWARD,
    "projected": {
        "defaultMode": ACTED_ON,
        "sources": {"secret": _PROJECTION, "configMap": _PROJECTION, "downwardAPI": _DOWNWARD},
    },
}

SPEC: Final[dict[str, Any]] = {
    "containers": CONTAINER,
    "initContainers": CONTAINER,
    "volumes": VOLUME,
    "restartPolicy": ACTED_ON,
    "terminationGracePeriodSeconds": ACTED_ON,
    "activeDeadlineSeconds": ACTED_ON,
    "nodeName": ACTED_ON,
    "nodeSelector": ACTED_ON,
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": ACTED_ON,
            "preferredDuringSchedulingIgnoredDuringExecution": STORED,
        },
        "podAffinity": STORED,
        "podAntiAffinity": STORED,
    },
    "tolerations": ACTED_ON,
    "schedulerName": ACTED_ON,
    "schedulingGates": ACTED_ON,
    "priorityClassName": ACTED_ON,
    "priority": ACTED_ON,
    "preemptionPolicy": SILENT,
    "hostname": ACTED_ON,
    "hostAliases": ACTED_ON,
    "subdomain": STORED,
    "serviceAccountName": SILENT,
    "serviceAccount": SILENT,
    "automountServiceAccountToken": SILENT,
    "enableServiceLinks": SILENT,
    "dnsPolicy": SILENT,
    "dnsConfig": STORED,
    "imagePullSecrets": STORED,
    "runtimeClassName": STORED,
    "topologySpreadConstraints": STORED,
    "shareProcessNamespace": STORED,
    "hostUsers": SILENT,
    "securityContext": {
        "runAsUser": ACTED_ON,
        "runAsGroup": ACTED_ON,
        "runAsNonRoot": SILENT,
        "fsGroup": SILENT,
        "fsGroupChangePolicy": SILENT,
        "supplementalGroups": STORED,
        "seccompProfile": STORED,
    },
}


def check_pod(pod: Object) -> tuple[list[str], list[str]]:
    """(warnings, refusals): each a sentence that begins with the field's path."""
    warnings: list[str] = []
    refusals: list[str] = []
    _walk(pod.get("spec", {}), SPEC, "spec", warnings, refusals)
    for index, volume in enumerate(pod.get("spec", {}).get("volumes", [])):
        kinds = set(volume) - {"name"}
        if not kinds:
            refusals.append(f"spec.volumes[{index}]: a volume needs a source")
    _check_sub_paths(pod.get("spec", {}), refusals)
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


def _check_sub_paths(spec: Object, refusals: list[str]) -> None:
    """subPath on data that the pod writes itself could lead out of the volume by a symbolic link."""
    safe = {v["name"] for v in spec.get("volumes", []) if {"secret", "configMap", "projected", "downwardAPI"} & set(v)}
    for kind in ("initContainers", "containers"):
        for number, container in enumerate(spec.get(kind, [])):
            for index, mount in enumerate(container.get("volumeMounts", [])):
                path = mount.get("subPath")
                where = f"spec.{kind}[{number}].volumeMounts[{index}].subPath"
                if path and (mount["name"] not in safe or ".." in path.split("/") or path.startswith("/")):
                    refusals.append(f"{where}: localkube does not implement this field for such a volume")


def _check_values(spec: Object, warnings: list[str], refusals: list[str]) -> None:
    for kind in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(kind, [])):
            where = f"spec.{kind}[{index}]"
            if (container.get("securityContext") or {}).get("privileged"):
                refusals.append(f"{where}.securityContext.privileged: localkube grants it to nobody")
            for probe in ("readinessProbe", "livenessProbe", "startupProbe"):
                get = (container.get(probe) or {}).get("httpGet") or {}
                if get.get("scheme", "HTTP").upper() != "HTTP":
                    refusals.append(f"{where}.{probe}.httpGet.scheme: localkube does not implement HTTPS probes")
    for index, volume in enumerate(spec.get("volumes", [])):
        empty = volume.get("emptyDir") or {}
        if empty.get("sizeLimit") and empty.get("medium") != "Memory":
            warnings.append(f"spec.volumes[{index}].emptyDir.sizeLimit: stored, but acted on for medium Memory alone")
