"""The defaults that the real server writes into new objects, for the fields somebody here or a client reads."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Final

from localkube.quantity import canonical
from localkube.status import ApiError, Object
from localkube.store import now


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
    if "readinessProbe" in container:
        probe = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
        container["readinessProbe"] = probe = probe | container["readinessProbe"]
        if "httpGet" in probe:
            probe["httpGet"] = {"scheme": "HTTP", "path": "/"} | probe["httpGet"]


def pod_spec(spec: Object, *, kind: str = "Pod") -> None:
    """Defaults of a pod's spec that a template gets as well."""
    for container in spec.get("containers", []):
        _container(container, kind)
    spec.setdefault("restartPolicy", "" if kind == "Job" else "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    for volume in spec.get("volumes") or ():
        for source in ("secret", "configMap"):
            if source in volume:
                volume[source].setdefault("defaultMode", 0o644)
        if len(volume) == 1:
            volume["emptyDir"] = {}


def _pod(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    pod_spec(spec)
    spec.setdefault("serviceAccountName", spec.get("serviceAccount") or "default")
    spec["serviceAccount"] = spec["serviceAccountName"]
    spec.setdefault("enableServiceLinks", True)
    obj.setdefault("status", {}).setdefault("phase", "Pending")


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


def _quota(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    if spec.get("hard"):
        spec["hard"] = dict(sorted(canonical(spec["hard"], "ResourceQuota").items()))
    obj.setdefault("status", {})


def _limit_range(obj: Object) -> None:
    for item in obj.setdefault("spec", {}).setdefault("limits", []):
        for section in ("max", "min", "default", "defaultRequest"):
            if item.get(section):
                item[section] = canonical(item[section], "LimitRange")
        # As SetDefaults_LimitRangeItem: a maximum is the default limit, and that the default request.
        limits = (item.get("max") or {}) | (item.get("default") or {})
        asked = (item.get("min") or {}) | limits | (item.get("defaultRequest") or {})
        item |= {name: amounts for name, amounts in (("default", limits), ("defaultRequest", asked)) if amounts}


def _template(spec: Object, kind: str) -> None:
    template = spec.setdefault("template", {})
    template.setdefault("metadata", {})
    pod_spec(template.setdefault("spec", {}), kind=kind)


def _stateful_set(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    spec.setdefault("podManagementPolicy", "OrderedReady")
    spec.setdefault("updateStrategy", {}).setdefault("type", "RollingUpdate")
    spec.setdefault("revisionHistoryLimit", 10)
    _template(spec, "StatefulSet")
    obj.setdefault("status", {"replicas": 0, "availableReplicas": 0})


def _job(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 6)
    _template(spec, "Job")
    obj.setdefault("status", {})


def job_selector(obj: Object) -> None:
    """The selector and labels that a job gets from its own uid. Call after the uid is known."""
    metadata, spec = obj["metadata"], obj["spec"]
    uid, name = metadata["uid"], metadata["name"]
    labels = {"controller-uid": uid, "job-name": name}
    labels |= {f"batch.kubernetes.io/{key}": value for key, value in labels.items()}
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
    told = (("NamesAccepted", "NoConflicts", "no conflicts found"),
            ("Established", "InitialNamesAccepted", "the initial names have been accepted"))  # fmt: skip
    obj["status"] = {
        "conditions": [
            {"type": kind, "status": "True", "lastTransitionTime": now(), "reason": reason, "message": message}
            for kind, reason, message in told
        ],
        "acceptedNames": names,
        "storedVersions": [version.get("name") for version in spec.get("versions") or ()],
    }


_DEFAULTS: Final[dict[str, Callable[[Object], None]]] = {
    "namespaces": _namespace,
    "pods": _pod,
    "secrets": _secret,
    "services": _service,
    "persistentvolumeclaims": _claim,
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
