"""The types of the fields that anything here reads: a body that does not fit is a 400 in the real decoder's words.

Only what is read is described; other fields may hold anything. A null is the same as absent.
"""

from __future__ import annotations

from typing import Any, Final

from localkube import status
from localkube.quantity import QuantityError, parse
from localkube.resources import Resource
from localkube.status import Object
from localkube.times import is_time

TEXT, INT, BOOL, TIME, AMOUNT, INT_OR_TEXT = "string", "int32", "bool", "Time", "Quantity", "IntOrString"
TEXTS: Final = "map[string]string"
AMOUNTS: Final = "ResourceList"

Shape = Any
"""A type name from above, {field: shape} for a struct, or [shape] for a list."""

_OWNER: Final = {
    "apiVersion": TEXT,
    "kind": TEXT,
    "name": TEXT,
    "uid": TEXT,
    "controller": BOOL,
    "blockOwnerDeletion": BOOL,
}
_METADATA: Final = {
    "name": TEXT,
    "generateName": TEXT,
    "namespace": TEXT,
    "uid": TEXT,
    "resourceVersion": TEXT,
    "labels": TEXTS,
    "annotations": TEXTS,
    "finalizers": [TEXT],
    "ownerReferences": [_OWNER],
    "deletionGracePeriodSeconds": INT,
    "creationTimestamp": TIME,
    "deletionTimestamp": TIME,
    "managedFields": [{"manager": TEXT, "operation": TEXT, "apiVersion": TEXT, "subresource": TEXT, "fieldsV1": {}}],
}
_TERM: Final = {"key": TEXT, "operator": TEXT, "values": [TEXT]}
_SELECTOR: Final = {"matchLabels": TEXTS, "matchExpressions": [_TERM]}
_CONDITIONS: Final = [{"type": TEXT, "status": TEXT, "reason": TEXT, "message": TEXT, "lastTransitionTime": TIME}]
_RESOURCES: Final = {"limits": AMOUNTS, "requests": AMOUNTS}
_HTTP_GET: Final = {"path": TEXT, "port": INT_OR_TEXT, "scheme": TEXT, "host": TEXT}
_PROBE: Final = {
    "httpGet": _HTTP_GET,
    "tcpSocket": {"port": INT_OR_TEXT},
    "exec": {"command": [TEXT]},
    "initialDelaySeconds": INT,
    "timeoutSeconds": INT,
    "periodSeconds": INT,
    "successThreshold": INT,
    "failureThreshold": INT,
}
_KEY: Final = {"name": TEXT, "key": TEXT, "optional": BOOL}
_CONTAINER: Final = {
    "name": TEXT,
    "image": TEXT,
    "imagePullPolicy": TEXT,
    "command": [TEXT],
    "args": [TEXT],
    "workingDir": TEXT,
    "restartPolicy": TEXT,
    "env": [
        {
            "name": TEXT,
            "value": TEXT,
            "valueFrom": {"secretKeyRef": _KEY, "configMapKeyRef": _KEY, "fieldRef": {"fieldPath": TEXT}},
        }
    ],
    "envFrom": [{"prefix": TEXT, "secretRef": _KEY, "configMapRef": _KEY}],
    "ports": [{"name": TEXT, "containerPort": INT, "hostPort": INT, "protocol": TEXT}],
    "resources": _RESOURCES,
    "volumeMounts": [{"name": TEXT, "mountPath": TEXT, "subPath": TEXT, "readOnly": BOOL}],
    "livenessProbe": _PROBE,
    "readinessProbe": _PROBE,
    "startupProbe": _PROBE,
    "lifecycle": {"postStart": _PROBE, "preStop": _PROBE},
    "securityContext": {"runAsUser": INT, "runAsGroup": INT},
    "stdin": BOOL,
    "tty": BOOL,
}
_ITEMS: Final = [{"key": TEXT, "path": TEXT, "mode": INT}]
_VOLUME: Final = {
    "name": TEXT,
    "emptyDir": {"medium": TEXT, "sizeLimit": AMOUNT},
    "persistentVolumeClaim": {"claimName": TEXT, "readOnly": BOOL},
    "secret": {"secretName": TEXT, "items": _ITEMS, "defaultMode": INT, "optional": BOOL},
    "configMap": {"name": TEXT, "items": _ITEMS, "defaultMode": INT, "optional": BOOL},
    "projected": {"sources": [{}], "defaultMode": INT},
    "downwardAPI": {"items": [{}], "defaultMode": INT},
    "hostPath": {"path": TEXT, "type": TEXT},
}
_NODE_TERMS: Final = [{"matchExpressions": [_TERM], "matchFields": [_TERM]}]
_POD_SPEC: Final = {
    "containers": [_CONTAINER],
    "initContainers": [_CONTAINER],
    "volumes": [_VOLUME],
    "restartPolicy": TEXT,
    "nodeName": TEXT,
    "nodeSelector": TEXTS,
    "affinity": {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": _NODE_TERMS}}
    },
    "tolerations": [{"key": TEXT, "operator": TEXT, "value": TEXT, "effect": TEXT, "tolerationSeconds": INT}],
    "schedulerName": TEXT,
    "schedulingGates": [{"name": TEXT}],
    "serviceAccountName": TEXT,
    "serviceAccount": TEXT,
    "priorityClassName": TEXT,
    "priority": INT,
    "activeDeadlineSeconds": INT,
    "terminationGracePeriodSeconds": INT,
    "securityContext": {"runAsUser": INT, "runAsGroup": INT, "fsGroup": INT},
    "hostname": TEXT,
    "subdomain": TEXT,
}
_TEMPLATE: Final = {"metadata": _METADATA, "spec": _POD_SPEC}
_CONTAINER_STATUS: Final = [
    {"name": TEXT, "ready": BOOL, "restartCount": INT, "state": {"terminated": {}, "waiting": {}}}
]
_CLAIM: Final = {
    "accessModes": [TEXT],
    "resources": _RESOURCES,
    "storageClassName": TEXT,
    "volumeName": TEXT,
    "volumeMode": TEXT,
}
_REFERENCE: Final = {"kind": TEXT, "namespace": TEXT, "name": TEXT, "uid": TEXT, "apiVersion": TEXT, "fieldPath": TEXT}
_BACKEND: Final = {"service": {"name": TEXT, "port": {"name": TEXT, "number": INT}}}

_SHAPES: Final[dict[str, dict[str, Shape]]] = {
    "namespaces": {"spec": {"finalizers": [TEXT]}, "status": {"phase": TEXT, "conditions": _CONDITIONS}},
    "pods": {
        "spec": _POD_SPEC,
        "status": {
            "phase": TEXT,
            "podIP": TEXT,
            "reason": TEXT,
            "conditions": _CONDITIONS,
            "containerStatuses": _CONTAINER_STATUS,
            "initContainerStatuses": _CONTAINER_STATUS,
        },
    },
    "services": {
        "spec": {
            "type": TEXT,
            "clusterIP": TEXT,
            "clusterIPs": [TEXT],
            "selector": TEXTS,
            "ports": [{"name": TEXT, "port": INT, "targetPort": INT_OR_TEXT, "protocol": TEXT, "nodePort": INT}],
            "publishNotReadyAddresses": BOOL,
            "externalName": TEXT,
        },
    },
    "endpoints": {"subsets": [{"addresses": [{"ip": TEXT}], "ports": [{"name": TEXT, "port": INT}]}]},
    "endpointslices": {"addressType": TEXT, "endpoints": [{"addresses": [TEXT]}], "ports": [{"port": INT}]},
    "secrets": {"type": TEXT, "data": TEXTS, "stringData": TEXTS, "immutable": BOOL},
    "configmaps": {"data": TEXTS, "binaryData": TEXTS, "immutable": BOOL},
    "events": {
        "involvedObject": _REFERENCE,
        "reason": TEXT,
        "message": TEXT,
        "type": TEXT,
        "count": INT,
        "source": {"component": TEXT, "host": TEXT},
        "firstTimestamp": TIME,
        "lastTimestamp": TIME,
        "eventTime": TIME,
    },
    "nodes": {
        "spec": {"unschedulable": BOOL, "taints": [{"key": TEXT, "value": TEXT, "effect": TEXT, "timeAdded": TIME}]},
        "status": {
            "capacity": AMOUNTS,
            "allocatable": AMOUNTS,
            "conditions": _CONDITIONS,
            "addresses": [{"type": TEXT, "address": TEXT}],
            "nodeInfo": {},
        },
    },
    "persistentvolumeclaims": {
        "spec": _CLAIM,
        "status": {"phase": TEXT, "capacity": AMOUNTS, "accessModes": [TEXT], "conditions": _CONDITIONS},
    },
    "persistentvolumes": {
        "spec": {
            "capacity": AMOUNTS,
            "accessModes": [TEXT],
            "claimRef": _REFERENCE,
            "storageClassName": TEXT,
            "persistentVolumeReclaimPolicy": TEXT,
            "hostPath": {"path": TEXT},
        },
        "status": {"phase": TEXT, "reason": TEXT},
    },
    "resourcequotas": {
        "spec": {
            "hard": AMOUNTS,
            "scopes": [TEXT],
            "scopeSelector": {"matchExpressions": [{"scopeName": TEXT, "operator": TEXT, "values": [TEXT]}]},
        },
        "status": {"hard": AMOUNTS, "used": AMOUNTS},
    },
    "limitranges": {
        "spec": {
            "limits": [
                {
                    "type": TEXT,
                    **dict.fromkeys(("max", "min", "default", "defaultRequest", "maxLimitRequestRatio"), AMOUNTS),
                }
            ]
        }
    },
    "statefulsets": {
        "spec": {
            "replicas": INT,
            "serviceName": TEXT,
            "selector": _SELECTOR,
            "template": _TEMPLATE,
            "podManagementPolicy": TEXT,
            "updateStrategy": {"type": TEXT, "rollingUpdate": {"partition": INT}},
            "ordinals": {"start": INT},
            "volumeClaimTemplates": [{"metadata": _METADATA, "spec": _CLAIM}],
        },
        "status": {"replicas": INT, "readyReplicas": INT, "currentRevision": TEXT},
    },
    "jobs": {
        "spec": {
            **dict.fromkeys(("parallelism", "completions", "backoffLimit"), INT),
            **dict.fromkeys(("activeDeadlineSeconds", "ttlSecondsAfterFinished"), INT),
            "suspend": BOOL,
            "completionMode": TEXT,
            "manualSelector": BOOL,
            "selector": _SELECTOR,
            "template": _TEMPLATE,
        },
        "status": {
            "conditions": _CONDITIONS,
            "startTime": TIME,
            "completionTime": TIME,
            **dict.fromkeys(("active", "succeeded", "failed"), INT),
            "uncountedTerminatedPods": {"succeeded": [TEXT], "failed": [TEXT]},
        },
    },
    "ingresses": {
        "spec": {
            "ingressClassName": TEXT,
            "defaultBackend": _BACKEND,
            "rules": [{"host": TEXT, "http": {"paths": [{"path": TEXT, "pathType": TEXT, "backend": _BACKEND}]}}],
        },
        "status": {"loadBalancer": {"ingress": [{"ip": TEXT, "hostname": TEXT}]}},
    },
    "ingressclasses": {"spec": {"controller": TEXT}},
    "networkpolicies": {
        "spec": {"podSelector": _SELECTOR, "policyTypes": [TEXT], "ingress": [{}], "egress": [{}]},
    },
    "leases": {"spec": {"holderIdentity": TEXT, "leaseDurationSeconds": INT, "renewTime": TIME}},
    "storageclasses": {
        "provisioner": TEXT,
        "reclaimPolicy": TEXT,
        "volumeBindingMode": TEXT,
        "allowVolumeExpansion": BOOL,
    },
    "priorityclasses": {"value": INT, "globalDefault": BOOL, "preemptionPolicy": TEXT, "description": TEXT},
    "roles": {"rules": [{}]},
    "rolebindings": {"roleRef": {"kind": TEXT, "name": TEXT}, "subjects": [{}]},
    "customresourcedefinitions": {
        "spec": {
            "group": TEXT,
            "scope": TEXT,
            "names": {"plural": TEXT, "kind": TEXT, "singular": TEXT, "shortNames": [TEXT], "categories": [TEXT]},
            "versions": [
                {
                    "name": TEXT,
                    "served": BOOL,
                    "storage": BOOL,
                    "subresources": {},
                    "additionalPrinterColumns": [{"name": TEXT, "type": TEXT, "jsonPath": TEXT, "priority": INT}],
                }
            ],
        },
        "status": {"conditions": _CONDITIONS},
    },
}


def check(resource: Resource, obj: Object) -> None:
    """Refuse a body of the wrong types, and drop its nulls in place. Raises ApiError 400."""
    shape = {"apiVersion": TEXT, "kind": TEXT, "metadata": _METADATA} | _SHAPES.get(resource.key, {})
    try:
        _check(obj, shape, resource.kind)
    except _Mismatch as mismatch:
        head = f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}'
        raise status.bad_request(f"{head}: {mismatch}") from None


class _Mismatch(Exception):
    """The text after `cannot be handled as a ...: `."""


def go_type(value: Any) -> str:
    """What Go's decoder calls a JSON value."""
    names = {bool: "bool", int: "number", float: "number", str: "string", list: "array", dict: "object"}
    return names.get(type(value), "null")


def _wrong(value: Any, path: str, wanted: str) -> _Mismatch:
    return _Mismatch(f"json: cannot unmarshal {go_type(value)} into Go struct field {path} of type {wanted}")


def _check(value: Any, shape: Shape, path: str) -> None:
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            raise _wrong(value, path, "struct")
        for name in [name for name, item in value.items() if item is None]:
            del value[name]
        for name, item in value.items():
            if name in shape:
                _check(item, shape[name], f"{path}.{name}")
    elif isinstance(shape, list):
        if not isinstance(value, list):
            raise _wrong(value, path, "list")
        for item in value:
            _check(item, shape[0], path)
    elif shape in (TEXTS, AMOUNTS):
        if not isinstance(value, dict):
            raise _wrong(value, path, shape)
        for item in value.values():
            _check(item, TEXT if shape == TEXTS else AMOUNT, path)
    else:
        _check_scalar(value, shape, path)


def _check_scalar(value: Any, shape: str, path: str) -> None:
    match shape:
        case "string":
            fits = isinstance(value, str) and not any("\ud800" <= letter <= "\udfff" for letter in value)
        case "int32":
            fits = isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63
        case "bool":
            fits = isinstance(value, bool)
        case "IntOrString":
            fits = isinstance(value, str | int) and not isinstance(value, bool)
        case "Time":
            fits = isinstance(value, str) and is_time(value)
            if isinstance(value, str) and not fits:
                raise _Mismatch(
                    f'parsing time "{value}" as "2006-01-02T15:04:05Z07:00": cannot parse "{value}" as "2006"'
                )
        case _:
            try:
                parse(value)
            except QuantityError as error:
                raise _Mismatch(str(error)) from None
            return
    if not fits:
        raise _wrong(value, path, shape)
