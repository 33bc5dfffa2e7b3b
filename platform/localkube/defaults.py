"""The defaults that the real server writes into new objects, for the fields somebody here or a client reads."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Final

from localkube.pods import containers, qos_class
from localkube.quantity import canonical
from localkube.status import ApiError, Object
from localkube.store import now

_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")


def _container(container: Object, kind: str) -> None:
    image = container.get("image", "")
    name, _, tag = image.rpartition("/")[2].partition(":")
    fresh = "@" not in image and bool(name) and tag in ("", "latest")
    container.setdefault("imagePullPolicy", "Always" if fresh else "IfNotPresent")
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    resources = container.setdefault("resources", {})
    for section in ("limits", "requests"):
        if resources.get(section):
            resources[section] = canonical(resources[section], kind)
    if resources.get("limits"):
        requests = resources.setdefault("requests", {})
        for resource, amount in resources["limits"].items():
            requests.setdefault(resource, amount)
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
    for probe_name in _PROBES:
        if probe := container.get(probe_name):
            for field, value in (
                ("timeoutSeconds", 1),
                ("periodSeconds", 10),
                ("successThreshold", 1),
                ("failureThreshold", 3),
            ):
                probe.setdefault(field, value)
            if "httpGet" in probe:
                probe["httpGet"].setdefault("scheme", "HTTP")
                probe["httpGet"].setdefault("path", "/")


def pod_spec(spec: Object, *, kind: str = "Pod") -> None:
    """Defaults of a pod's spec that a template gets as well."""
    for container in containers(spec):
        _container(container, kind)
    if kind == "Job":
        spec.setdefault("restartPolicy", "")
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    for volume in spec.get("volumes") or ():
        for source in ("secret", "configMap", "projected", "downwardAPI"):
            if source in volume:
                volume[source].setdefault("defaultMode", 0o644)
        if len(volume) == 1:
            volume["emptyDir"] = {}
        if "hostPath" in volume:
            volume["hostPath"].setdefault("type", "")


_GATED: Final = {
    "type": "PodScheduled",
    "status": "False",
    "lastProbeTime": None,
    "lastTransitionTime": None,
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
}


def _pod(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    pod_spec(spec)
    spec.setdefault("serviceAccountName", spec.get("serviceAccount") or "default")
    spec["serviceAccount"] = spec["serviceAccountName"]
    spec.setdefault("enableServiceLinks", True)
    tolerations = spec.setdefault("tolerations", [])
    for taint in ("not-ready", "unreachable"):
        key = f"node.kubernetes.io/{taint}"
        if not any(t.get("key") in (key, None, "") and t.get("effect") in ("NoExecute", None, "") for t in tolerations):
            tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})
    status = obj.setdefault("status", {})
    status.setdefault("phase", "Pending")
    status["qosClass"] = qos_class(spec)
    if spec.get("schedulingGates") and not spec.get("nodeName"):
        status.setdefault("conditions", [_GATED])


def _namespace(obj: Object) -> None:
    metadata = obj["metadata"]
    if metadata.get("name"):
        metadata["labels"] = {**(metadata.get("labels") or {}), "kubernetes.io/metadata.name": metadata["name"]}
    obj["spec"] = {"finalizers": ["kubernetes"]} | (obj.get("spec") or {})
    obj.setdefault("status", {}).setdefault("phase", "Active")


def _secret(obj: Object) -> None:
    obj.setdefault("type", "Opaque")
    plain = obj.pop("stringData", None) or {}
    if plain:
        data = obj["data"] = dict(obj.get("data") or {})
        for key, value in plain.items():
            data[key] = base64.b64encode(str(value).encode()).decode()


def _service(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    spec.setdefault("ipFamilies", ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "SingleStack")
    spec.setdefault("internalTrafficPolicy", "Cluster")
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))
    obj.setdefault("status", {"loadBalancer": {}})


def _claim(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("volumeMode", "Filesystem")
    requests = spec.setdefault("resources", {}).get("requests")
    if requests:
        spec["resources"]["requests"] = canonical(requests, "PersistentVolumeClaim")
    obj.setdefault("status", {"phase": "Pending"})


def _volume(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    if spec.get("capacity"):
        spec["capacity"] = canonical(spec["capacity"], "PersistentVolume")
    spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
    spec.setdefault("volumeMode", "Filesystem")
    obj.setdefault("status", {"phase": "Available"})


def _quota(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    if spec.get("hard"):
        spec["hard"] = dict(sorted(canonical(spec["hard"], "ResourceQuota").items()))
    obj.setdefault("status", {})


def _limit_range(obj: Object) -> None:
    for item in obj.setdefault("spec", {}).setdefault("limits", []):
        for section in ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio"):
            if item.get(section):
                item[section] = canonical(item[section], "LimitRange")
        if item.get("type") != "Container":
            continue
        # As SetDefaults_LimitRangeItem: a maximum is the default limit, and that the default request.
        default = item.setdefault("default", {})
        request = item.setdefault("defaultRequest", {})
        for name, amount in (item.get("max") or {}).items():
            default.setdefault(name, amount)
        for name, amount in default.items():
            request.setdefault(name, amount)
        for name, amount in (item.get("min") or {}).items():
            request.setdefault(name, amount)
        for section in ("default", "defaultRequest"):
            if not item[section]:
                del item[section]


def _stateful_set(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    spec.setdefault("podManagementPolicy", "OrderedReady")
    strategy = spec.setdefault("updateStrategy", {})
    strategy.setdefault("type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        strategy.setdefault("rollingUpdate", {}).setdefault("partition", 0)
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("persistentVolumeClaimRetentionPolicy", {"whenDeleted": "Retain", "whenScaled": "Retain"})
    template = spec.setdefault("template", {})
    template.setdefault("metadata", {})
    pod_spec(template.setdefault("spec", {}), kind="StatefulSet")
    obj.setdefault("status", {"replicas": 0, "availableReplicas": 0})


def _job(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("manualSelector", False)
    spec.setdefault("podReplacementPolicy", "TerminatingOrFailed")
    template = spec.setdefault("template", {})
    template.setdefault("metadata", {})
    pod_spec(template.setdefault("spec", {}), kind="Job")
    obj.setdefault("status", {})


def job_selector(obj: Object) -> None:
    """The selector and labels that a job gets from its own uid. Call after the uid is known."""
    metadata, spec = obj["metadata"], obj["spec"]
    uid, name = metadata["uid"], metadata["name"]
    labels = {
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": name,
        "controller-uid": uid,
        "job-name": name,
    }
    metadata["labels"] = {**(metadata.get("labels") or {}), **labels}
    template = spec["template"]["metadata"]
    template["labels"] = {**(template.get("labels") or {}), **labels}
    spec.setdefault("selector", {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}})


def _ingress(obj: Object) -> None:
    obj.setdefault("status", {"loadBalancer": {}})


def _storage_class(obj: Object) -> None:
    obj.setdefault("reclaimPolicy", "Delete")
    obj.setdefault("volumeBindingMode", "Immediate")


def _priority_class(obj: Object) -> None:
    obj.setdefault("preemptionPolicy", "PreemptLowerPriority")


def _network_policy(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("podSelector", {})
    spec.setdefault("policyTypes", ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"])


def _definition(obj: Object) -> None:
    """A CustomResourceDefinition is served as soon as it is stored, and says so."""
    spec = obj.get("spec") or {}
    names = spec.get("names")
    if not isinstance(names, dict) or not names.get("kind"):
        return
    names.setdefault("singular", names["kind"].lower())
    names.setdefault("listKind", names["kind"] + "List")
    if "conditions" in obj.setdefault("status", {}):
        return
    obj["status"] = {
        "conditions": [
            {
                "type": "NamesAccepted",
                "status": "True",
                "lastTransitionTime": now(),
                "reason": "NoConflicts",
                "message": "no conflicts found",
            },
            {
                "type": "Established",
                "status": "True",
                "lastTransitionTime": now(),
                "reason": "InitialNamesAccepted",
                "message": "the initial names have been accepted",
            },
        ],
        "acceptedNames": names,
        "storedVersions": [v["name"] for v in spec.get("versions") or () if v.get("storage")],
    }


_DEFAULTS: Final[dict[str, Callable[[Object], None]]] = {
    "namespaces": _namespace,
    "pods": _pod,
    "secrets": _secret,
    "services": _service,
    "persistentvolumeclaims": _claim,
    "persistentvolumes": _volume,
    "resourcequotas": _quota,
    "limitranges": _limit_range,
    "statefulsets": _stateful_set,
    "jobs": _job,
    "ingresses": _ingress,
    "storageclasses": _storage_class,
    "priorityclasses": _priority_class,
    "networkpolicies": _network_policy,
    "customresourcedefinitions": _definition,
}


def apply(resource: str, obj: Object) -> None:
    """Fill an object's defaults in place. Raises ApiError 400 for a field of the wrong shape."""
    fill = _DEFAULTS.get(resource)
    if not fill:
        return
    try:
        fill(obj)
    except (AttributeError, TypeError, KeyError) as error:
        kind = obj.get("kind", resource)
        text = f'{kind} in version "v1" cannot be handled as a {kind}: a field has the wrong type ({error})'
        raise ApiError(400, text) from error
