"""What a body may hold: the fields that each kind has here (any other is refused with 501), and the types of fields.

Types go by a field's name alone, whatever the kind: only names are listed that somebody here reads, and a name means
the same wherever it stands. Pods' own fields are the node's to judge (`NodeRuntime.check_pod`).
"""

from __future__ import annotations

from typing import Any, Final

from localkube import status
from localkube.quantity import QuantityError, parse
from localkube.resources import Resource
from localkube.status import Object
from localkube.times import is_time

_METADATA: Final = (
    "name namespace generateName labels annotations finalizers ownerReferences uid resourceVersion creationTimestamp "
    "deletionTimestamp deletionGracePeriodSeconds generation managedFields selfLink"
)
SPEC: Final[dict[str, str]] = {
    "namespaces": "finalizers",
    "services": "ports selector clusterIP clusterIPs publishNotReadyAddresses type ipFamilies ipFamilyPolicy "
    "internalTrafficPolicy sessionAffinity",
    "nodes": "taints unschedulable podCIDR podCIDRs providerID",
    "persistentvolumeclaims": "accessModes resources storageClassName volumeName volumeMode",
    "resourcequotas": "hard",
    "limitranges": "limits",
    "statefulsets": "replicas selector template serviceName podManagementPolicy updateStrategy revisionHistoryLimit",
    "jobs": "parallelism completions backoffLimit activeDeadlineSeconds selector template",
    "ingresses": "rules ingressClassName",
    "ingressclasses": "controller parameters",
    "networkpolicies": "podSelector policyTypes ingress egress",
}
"""Fields of a kind's spec; a kind that is not named has a spec that is stored as it is, or none."""
TOP: Final[dict[str, str]] = {
    "endpointslices": "addressType endpoints ports",
    "secrets": "data stringData type immutable",
    "configmaps": "data binaryData immutable",
    "events": "involvedObject reason message source firstTimestamp lastTimestamp count type eventTime series action "
    "related reportingComponent reportingInstance",
    "serviceaccounts": "secrets imagePullSecrets automountServiceAccountToken",
    "storageclasses": "provisioner parameters reclaimPolicy mountOptions allowVolumeExpansion volumeBindingMode",
    "priorityclasses": "value globalDefault description preemptionPolicy",
}
"""Fields beside metadata and status; a kind that is not named has its spec alone."""

_TYPES: Final[dict[str, str]] = {
    name: kind
    for kind, names in {
        "string": "apiVersion kind name generateName namespace uid resourceVersion image imagePullPolicy workingDir "
        "restartPolicy nodeName schedulerName serviceAccountName serviceAccount priorityClassName hostname key effect "
        "operator mountPath path pathType host type reason message clusterIP serviceName podManagementPolicy scheme "
        "storageClassName volumeName volumeMode ingressClassName medium claimName secretName protocol phase podIP "
        "group scope plural singular subPath",
        "int32": "replicas parallelism completions backoffLimit activeDeadlineSeconds terminationGracePeriodSeconds "
        "deletionGracePeriodSeconds tolerationSeconds containerPort number count priority runAsUser runAsGroup "
        "initialDelaySeconds timeoutSeconds periodSeconds successThreshold failureThreshold mode defaultMode",
        "bool": "readOnly optional immutable unschedulable publishNotReadyAddresses allowVolumeExpansion globalDefault",
        "IntOrString": "targetPort",
        "Time": "creationTimestamp deletionTimestamp lastTransitionTime firstTimestamp lastTimestamp eventTime "
        "startTime completionTime renewTime startedAt finishedAt timeAdded",
        "Quantity": "sizeLimit",
        "map[string]string": "labels annotations matchLabels nodeSelector data stringData binaryData",
        "ResourceList": "requests hard capacity allocatable used default defaultRequest max min",
        "list of struct": "containers env ports volumes volumeMounts tolerations taints rules "
        "conditions ownerReferences managedFields paths items matchExpressions containerStatuses versions ingress "
        "egress endpoints",
        "list of string": "command args finalizers accessModes values policyTypes clusterIPs shortNames categories",
        "struct": "metadata spec template selector securityContext readinessProbe "
        "httpGet persistentVolumeClaim emptyDir secret configMap backend service "
        "http updateStrategy involvedObject source state lastState podSelector claimRef fieldsV1",
    }.items()
    for name in names.split()
}


def check(resource: Resource, obj: Object) -> None:
    """Refuse a body of the wrong types (ApiError 400) or with unknown fields (501), and drop its nulls in place."""
    foreign = resource.custom or resource.key == "customresourcedefinitions"
    known = {"metadata": obj.get("metadata")} if foreign else obj
    try:
        _check_fields(known, resource.kind)
        if not isinstance(obj.get("status", {}), dict):
            raise _wrong(obj["status"], f"{resource.kind}.status", "struct")
    except _Mismatch as mismatch:
        head = f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}'
        raise status.bad_request(f"{head}: {mismatch}") from None
    if foreign:
        return
    top = TOP.get(resource.key, "spec").split()
    unknown = [name for name in obj if name not in ("apiVersion", "kind", "metadata", "status", *top)]
    unknown += [f"metadata.{name}" for name in obj.get("metadata", ()) if name not in _METADATA.split()]
    if resource.key in SPEC:
        unknown += [f"spec.{name}" for name in obj.get("spec", ()) if name not in SPEC[resource.key].split()]
    if unknown:
        raise status.not_implemented(f"the field {unknown[0]} of a {resource.kind}")


class _Mismatch(Exception):
    """The text after `cannot be handled as a ...: `, as Go's decoder words it."""


def _wrong(value: Any, path: str, wanted: str) -> _Mismatch:
    names = {bool: "bool", int: "number", float: "number", str: "string", list: "array", dict: "object"}
    found = names.get(type(value), "null")
    return _Mismatch(f"json: cannot unmarshal {found} into Go struct field {path} of type {wanted}")


def _check_fields(value: Object, path: str) -> None:
    for name in [name for name, item in value.items() if item is None]:
        del value[name]
    for name, item in value.items():
        where = f"{path}.{name}"
        wanted = _TYPES.get(name, "")
        if name == "limits":  # a LimitRange's own, else those of resources
            wanted = "list of struct" if path == "LimitRange.spec" else "ResourceList"
        if wanted.startswith("list of "):
            if not isinstance(item, list):
                raise _wrong(item, where, "list")
            for entry in item:
                _check_one(entry, wanted.removeprefix("list of "), where)
        else:
            _check_one(item, wanted, where)
        if wanted in ("map[string]string", "ResourceList"):
            continue
        for entry in item if isinstance(item, list) else (item,):
            if isinstance(entry, dict):
                _check_fields(entry, where)


def _check_one(value: Any, wanted: str, path: str) -> None:
    match wanted:
        case "string":
            fits = isinstance(value, str) and not any("\ud800" <= letter <= "\udfff" for letter in value)
        case "int32":
            fits = isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63
        case "bool":
            fits = isinstance(value, bool)
        case "IntOrString":
            fits = isinstance(value, str | int) and not isinstance(value, bool)
        case "struct":
            fits = isinstance(value, dict)
        case "Time":
            fits = isinstance(value, str) and is_time(value)
        case "map[string]string" | "ResourceList":
            if not isinstance(value, dict):
                raise _wrong(value, path, wanted)
            for item in value.values():
                _check_one(item, "string" if wanted.startswith("map") else "Quantity", path)
            return
        case "Quantity":
            try:
                parse(value)
            except QuantityError as error:
                raise _Mismatch(str(error)) from None
            return
        case _:
            return
    if not fits:
        raise _wrong(value, path, wanted)
