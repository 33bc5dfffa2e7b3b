"""B6: the 5,000 pods that every side is shown, as a real API server writes them, and the ids of their rows."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID, uuid5

PODS = 5_000
QUEUES = 200
INSTALL = "bench"
_SPACE = UUID("6d6c706f-7274-4162-8063-000000000006")
_AT = "2026-11-30T10:00:00Z"
#: Stands where each answer has the pod's version.
MARK = "@version@"


def instance_id(number: int) -> UUID:
    """The id of a row."""
    return uuid5(_SPACE, str(number))


def pod_uid(number: int) -> str:
    """The UID of its pod."""
    return str(uuid5(_SPACE, f"pod {number}"))


def namespace(number: int) -> str:
    """Where it is."""
    return f"mlp-bench-{number % QUEUES:03}"


def name(number: int) -> str:
    """The pod's name."""
    return f"i-{number:04}-0"


def text(number: int) -> str:
    """The pod, ready, with `MARK` for its version: labels of this project and of JupyterHub, and what servers add."""
    labels = {
        "app.kubernetes.io/name": "jupyter",
        "app.kubernetes.io/instance": f"i-{number:04}",
        "app.kubernetes.io/component": "pod",
        "app.kubernetes.io/part-of": "mlportal",
        "app.kubernetes.io/managed-by": "mlportal",
        "mlportal.io/install": INSTALL,
        "mlportal.io/kind": "instance",
        "mlportal.io/id": str(instance_id(number)),
        "mlportal.io/generation": "1",
        "app": "jupyterhub",
        "component": "singleuser-server",
        "hub.jupyter.org/username": f"user-{number:04}",
        "apps.kubernetes.io/pod-index": "0",
        "controller-revision-hash": f"i-{number:04}-7c9d8b6f5d",
        "statefulset.kubernetes.io/pod-name": name(number),
    }
    secret = {"name": "mlportal", "secret": {"secretName": f"i-{number:04}", "defaultMode": 288}}
    container = {
        "name": "main",
        "image": "docker.io/mlportal/jupyter:1",
        "imagePullPolicy": "IfNotPresent",
        "env": [
            {"name": "MLPORTAL_INSTANCE_ID", "value": str(instance_id(number))},
            {"name": "MLPORTAL_HOST", "value": f"i-{instance_id(number)}.apps.example.org"},
            {"name": "MLPORTAL_PORTAL_ORIGIN", "value": "https://portal.example.org"},
        ],
        "ports": [{"name": "http", "containerPort": 8888, "protocol": "TCP"}],
        "readinessProbe": {
            "httpGet": {"path": "/portal/ready", "port": "http", "scheme": "HTTP"},
            "periodSeconds": 1, "timeoutSeconds": 5, "failureThreshold": 3, "successThreshold": 1,
        },
        "resources": {"limits": {"cpu": "500m", "memory": "1Gi"}, "requests": {"cpu": "500m", "memory": "1Gi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": "home", "mountPath": "/root"},
            {"name": "mlportal", "mountPath": "/etc/mlportal", "readOnly": True},
            {"name": "shm", "mountPath": "/dev/shm"},
        ],
    }  # fmt: skip
    status = {
        "phase": "Running", "hostIP": "10.0.0.1", "podIP": f"10.1.{number // 250}.{number % 250}",
        "hostIPs": [{"ip": "10.0.0.1"}], "podIPs": [{"ip": f"10.1.{number // 250}.{number % 250}"}],
        "qosClass": "Guaranteed", "startTime": _AT,
        "conditions": [
            {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": _AT, "observedGeneration": 1}
            for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
        ],
        "containerStatuses": [{
            "name": "main", "ready": True, "started": True, "restartCount": 0, "lastState": {},
            "image": "docker.io/mlportal/jupyter:1", "imageID": "docker.io/mlportal/jupyter@sha256:" + "0" * 64,
            "containerID": "containerd://" + "0" * 64, "state": {"running": {"startedAt": _AT}},
            "resources": container["resources"], "volumeMounts": container["volumeMounts"],
        }],
    }  # fmt: skip
    pod = {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": name(number),
            "generateName": f"i-{number:04}-",
            "namespace": namespace(number),
            "uid": pod_uid(number),
            "resourceVersion": MARK,
            "generation": 1,
            "creationTimestamp": _AT,
            "labels": labels,
            "annotations": {"mlportal.io/name": f"i-{number:04}"},
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1", "kind": "StatefulSet", "name": f"i-{number:04}",
                    "uid": str(uuid5(_SPACE, f"set {number}")), "controller": True, "blockOwnerDeletion": True,
                }
            ],
            "managedFields": [
                _managed("kube-controller-manager", "", {"f:metadata": labels, "f:spec": container}),
                _managed("kubelet", "status", {"f:status": status}),
            ],
        },
        "spec": {
            "containers": [container],
            "volumes": [
                {"name": "home", "persistentVolumeClaim": {"claimName": f"home-{number:04}"}}, secret,
                {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "512Mi"}},
            ],
            "nodeName": f"node-{number % 2000:04}", "hostname": name(number), "subdomain": f"i-{number:04}",
            "restartPolicy": "Always", "terminationGracePeriodSeconds": 10, "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default", "serviceAccount": "default", "automountServiceAccountToken": False,
            "enableServiceLinks": False, "schedulerName": "default-scheduler", "priority": 0,
            "preemptionPolicy": "PreemptLowerPriority",
            "securityContext": {"runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 1000, "runAsNonRoot": True},
            "tolerations": [
                {"key": f"node.kubernetes.io/{kind}", "operator": "Exists", "effect": "NoExecute",
                 "tolerationSeconds": 300} for kind in ("not-ready", "unreachable")
            ],
        },
        "status": status,
    }  # fmt: skip
    return json.dumps(pod, separators=(",", ":"))


def _managed(manager: str, part: str, fields: Any) -> dict[str, Any]:
    """The bookkeeping of server-side apply: about as many keys as the fields that a manager set."""
    return {
        "manager": manager,
        "operation": "Update",
        "apiVersion": "v1",
        "time": _AT,
        "fieldsType": "FieldsV1",
        "fieldsV1": _keys(fields),
        **({"subresource": part} if part else {}),
    }


def _keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {key if key.startswith("f:") else f"f:{key}": _keys(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return {f'k:{{"name":"{index}"}}': {".": {}, **_as_dict(_keys(inner))} for index, inner in enumerate(value)}
    return {}


def _as_dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
