"""The columns of `kubectl get`, as the real server computes them for each kind."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from localkube import podcolumns, selectors
from localkube.pods import condition, containers
from localkube.resources import Resource
from localkube.status import Object
from localkube.times import duration, parse_time, since

_NONE: Final = "<none>"
_MODES: Final = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


@dataclass(frozen=True)
class Column:
    """A column and how to fill it; priority 1 shows with `-o wide` alone."""

    name: str
    cell: Callable[[Object], Any]
    priority: int = 0
    type: str = "string"
    format: str = ""


def _name(obj: Object) -> Any:
    return obj["metadata"]["name"]


def _age(obj: Object) -> str:
    return since(obj["metadata"].get("creationTimestamp"))


def _path(*path: str, default: Any = _NONE) -> Callable[[Object], Any]:
    def read(obj: Object) -> Any:
        value: Any = obj
        for part in path:
            value = value.get(part) if isinstance(value, dict) else None
        return default if value in (None, "") else value

    return read


def _joined(values: Iterable[Any]) -> str:
    return ",".join(str(value) for value in values) or _NONE


def _node_status(node: Object) -> str:
    ready = condition(node, "Ready")
    text = {"True": "Ready", "False": "NotReady"}.get(
        (ready or {}).get("status", ""), "NotReady" if ready else "Unknown"
    )
    return text + (",SchedulingDisabled" if node.get("spec", {}).get("unschedulable") else "")


def _node_roles(node: Object) -> str:
    prefix = "node-role.kubernetes.io/"
    labels = node["metadata"].get("labels") or {}
    return _joined(sorted(key.removeprefix(prefix) for key in labels if key.startswith(prefix)))


def _node_address(kind: str) -> Callable[[Object], str]:
    def read(node: Object) -> str:
        addresses = node.get("status", {}).get("addresses") or ()
        return next((str(a["address"]) for a in addresses if a["type"] == kind), _NONE)

    return read


def _service_ports(service: Object) -> str:
    return _joined(f"{port['port']}/{port.get('protocol', 'TCP')}" for port in service["spec"].get("ports") or ())


def _endpoints(obj: Object) -> str:
    found = []
    for subset in obj.get("subsets") or ():
        for address in subset.get("addresses") or ():
            found += [f"{address['ip']}:{port['port']}" for port in subset.get("ports") or ()]
    more = f" + {len(found) - 3} more..." if len(found) > 3 else ""
    return _joined(found[:3]) + more


def _event_object(event: Object) -> str:
    ref = event.get("involvedObject", {})
    return f"{ref.get('kind', '').lower()}/{ref.get('name', '')}"


def _event_seen(field: str) -> Callable[[Object], str]:
    return lambda event: since(event.get(field) or event.get("eventTime") or event["metadata"]["creationTimestamp"])


def _modes(modes: Iterable[str] | None) -> str:
    return ",".join(_MODES.get(mode, mode) for mode in modes or ())


def _claim_capacity(claim: Object) -> Any:
    return _path("status", "capacity", "storage", default="")(claim)


def _claim_modes(claim: Object) -> str:
    return _modes(claim["spec"].get("accessModes")) if claim["spec"].get("volumeName") else ""


def _volume_claim(volume: Object) -> str:
    ref = volume["spec"].get("claimRef") or {}
    return f"{ref.get('namespace')}/{ref.get('name')}" if ref else ""


def _terminating(text: Callable[[Object], Any]) -> Callable[[Object], Any]:
    return lambda obj: "Terminating" if obj["metadata"].get("deletionTimestamp") else text(obj)


def _quota(prefix: bool) -> Callable[[Object], str]:
    def read(quota: Object) -> str:
        status = quota.get("status", {})
        used = status.get("used") or {}
        names = [name for name in sorted(status.get("hard") or {}) if name.startswith("limits.") is prefix]
        return ", ".join(f"{name}: {used.get(name, '0')}/{status['hard'][name]}" for name in names)

    return read


def _template_containers(field: str) -> Callable[[Object], str]:
    return lambda obj: _joined(c.get(field, "") for c in containers(obj["spec"]["template"]["spec"]))


def _job_status(job: Object) -> str:
    for kind, text in (("Complete", "Complete"), ("Failed", "Failed"), ("Suspended", "Suspended")):
        if (condition(job, kind) or {}).get("status") == "True":
            return text
    return "Terminating" if job["metadata"].get("deletionTimestamp") else "Running"


def _job_completions(job: Object) -> str:
    done = job.get("status", {}).get("succeeded", 0)
    wanted = job["spec"].get("completions")
    return f"{done}/{wanted}" if wanted is not None else f"{done}/1 of {job['spec'].get('parallelism', 1)}"


def _job_duration(job: Object) -> str:
    begun, ended = (job.get("status", {}).get(key) for key in ("startTime", "completionTime"))
    if not begun:
        return ""
    return duration((parse_time(ended) - parse_time(begun)).total_seconds()) if ended else since(begun)


def _hosts(ingress: Object) -> str:
    hosts = [rule.get("host") or "*" for rule in ingress.get("spec", {}).get("rules") or ()]
    return ",".join(hosts[:3]) + (f" + {len(hosts) - 3} more..." if len(hosts) > 3 else "") or "*"


def _ingress_address(ingress: Object) -> str:
    entries = ingress.get("status", {}).get("loadBalancer", {}).get("ingress") or ()
    return ",".join(entry.get("ip") or entry.get("hostname", "") for entry in entries)


def _slice_ports(obj: Object) -> str:
    return ",".join(str(port.get("port")) for port in obj.get("ports") or ()) or "<unset>"


def _slice_endpoints(obj: Object) -> str:
    found = [address for endpoint in obj.get("endpoints") or () for address in endpoint.get("addresses") or ()]
    return ",".join(found[:3]) + (f" + {len(found) - 3} more..." if len(found) > 3 else "") or "<unset>"


def _default_mark(obj: Object) -> str:
    annotations = obj["metadata"].get("annotations") or {}
    marked = annotations.get("storageclass.kubernetes.io/is-default-class") == "true"
    return f"{obj['metadata']['name']} (default)" if marked else str(obj["metadata"]["name"])


_NAME: Final = Column("Name", _name, format="name")
_AGE: Final = Column("Age", _age)


def _created(obj: Object) -> Any:
    return obj["metadata"]["creationTimestamp"]


_INFO: Final = ("status", "nodeInfo")
_COLUMNS: Final[dict[str, tuple[Column, ...]]] = {
    "namespaces": (_NAME, Column("Status", _path("status", "phase")), _AGE),
    "pods": (
        _NAME,
        Column("Ready", podcolumns.ready_count),
        Column("Status", podcolumns.status_text),
        Column("Restarts", podcolumns.restarts),
        _AGE,
        Column("IP", _path("status", "podIP"), 1),
        Column("Node", _path("spec", "nodeName"), 1),
        Column("Nominated Node", _path("status", "nominatedNodeName"), 1),
        Column("Readiness Gates", lambda _: _NONE, 1),
    ),
    "services": (
        _NAME,
        Column("Type", _path("spec", "type")),
        Column("Cluster-IP", _path("spec", "clusterIP")),
        Column("External-IP", _path("spec", "externalName")),
        Column("Port(s)", _service_ports),
        _AGE,
        Column("Selector", lambda s: selectors.to_text(s["spec"].get("selector")) or _NONE, 1),
    ),
    "endpoints": (_NAME, Column("Endpoints", _endpoints), _AGE),
    "secrets": (_NAME, Column("Type", _path("type")), Column("Data", lambda s: len(s.get("data") or ())), _AGE),
    "configmaps": (
        _NAME,
        Column("Data", lambda c: len(c.get("data") or ()) + len(c.get("binaryData") or ())),
        _AGE,
    ),
    "events": (
        Column("Last Seen", _event_seen("lastTimestamp")),
        Column("Type", _path("type")),
        Column("Reason", _path("reason")),
        Column("Object", _event_object),
        Column("Subobject", _path("involvedObject", "fieldPath", default=""), 1),
        Column("Source", _path("source", "component", default=""), 1),
        Column("Message", lambda e: str(e.get("message", "")).strip()),
        Column("First Seen", _event_seen("firstTimestamp"), 1),
        Column("Count", _path("count", default=1), 1),
        Column("Name", _name, 1, format="name"),
    ),
    "nodes": (
        _NAME,
        Column("Status", _node_status),
        Column("Roles", _node_roles),
        _AGE,
        Column("Version", _path(*_INFO, "kubeletVersion")),
        Column("Internal-IP", _node_address("InternalIP"), 1),
        Column("External-IP", _node_address("ExternalIP"), 1),
        Column("OS-Image", _path(*_INFO, "osImage", default="<unknown>"), 1),
        Column("Kernel-Version", _path(*_INFO, "kernelVersion", default="<unknown>"), 1),
        Column("Container-Runtime", _path(*_INFO, "containerRuntimeVersion", default="<unknown>"), 1),
    ),
    "persistentvolumeclaims": (
        _NAME,
        Column("Status", _terminating(_path("status", "phase"))),
        Column("Volume", _path("spec", "volumeName", default="")),
        Column("Capacity", _claim_capacity),
        Column("Access Modes", _claim_modes),
        Column("StorageClass", _path("spec", "storageClassName", default="")),
        Column("VolumeAttributesClass", _path("spec", "volumeAttributesClassName", default="<unset>")),
        _AGE,
        Column("VolumeMode", _path("spec", "volumeMode"), 1),
    ),
    "persistentvolumes": (
        _NAME,
        Column("Capacity", _path("spec", "capacity", "storage", default="")),
        Column("Access Modes", lambda v: _modes(v["spec"].get("accessModes"))),
        Column("Reclaim Policy", _path("spec", "persistentVolumeReclaimPolicy")),
        Column("Status", _terminating(_path("status", "phase"))),
        Column("Claim", _volume_claim),
        Column("StorageClass", _path("spec", "storageClassName", default="")),
        Column("VolumeAttributesClass", _path("spec", "volumeAttributesClassName", default="<unset>")),
        Column("Reason", _path("status", "reason", default="")),
        _AGE,
        Column("VolumeMode", _path("spec", "volumeMode"), 1),
    ),
    "serviceaccounts": (_NAME, _AGE),
    "resourcequotas": (_NAME, Column("Request", _quota(False)), Column("Limit", _quota(True)), _AGE),
    "limitranges": (_NAME, Column("Created At", _created, type="date")),
    "statefulsets": (
        _NAME,
        Column("Ready", lambda s: f"{s.get('status', {}).get('readyReplicas', 0)}/{s['spec'].get('replicas', 0)}"),
        _AGE,
        Column("Containers", _template_containers("name"), 1),
        Column("Images", _template_containers("image"), 1),
    ),
    "jobs": (
        _NAME,
        Column("Status", _job_status),
        Column("Completions", _job_completions),
        Column("Duration", _job_duration),
        _AGE,
        Column("Containers", _template_containers("name"), 1),
        Column("Images", _template_containers("image"), 1),
        Column("Selector", lambda j: selectors.to_text(j["spec"].get("selector")) or _NONE, 1),
    ),
    "ingresses": (
        _NAME,
        Column("Class", _path("spec", "ingressClassName")),
        Column("Hosts", _hosts),
        Column("Address", _ingress_address),
        Column("Ports", lambda i: "80, 443" if i.get("spec", {}).get("tls") else "80"),
        _AGE,
    ),
    "ingressclasses": (
        _NAME,
        Column("Controller", _path("spec", "controller")),
        Column("Parameters", lambda _: _NONE),
        _AGE,
    ),
    "networkpolicies": (
        _NAME,
        Column("Pod-Selector", lambda p: selectors.to_text(p["spec"].get("podSelector")) or _NONE),
        _AGE,
    ),
    "endpointslices": (
        _NAME,
        Column("AddressType", _path("addressType")),
        Column("Ports", _slice_ports),
        Column("Endpoints", _slice_endpoints),
        _AGE,
    ),
    "leases": (_NAME, Column("Holder", _path("spec", "holderIdentity", default="")), _AGE),
    "storageclasses": (
        Column("Name", _default_mark, format="name"),
        Column("Provisioner", _path("provisioner")),
        Column("ReclaimPolicy", _path("reclaimPolicy")),
        Column("VolumeBindingMode", _path("volumeBindingMode")),
        Column("AllowVolumeExpansion", lambda s: bool(s.get("allowVolumeExpansion"))),
        _AGE,
    ),
    "priorityclasses": (
        _NAME,
        Column("Value", _path("value", default=0), type="integer"),
        Column("Global-Default", lambda p: bool(p.get("globalDefault")), type="boolean"),
        _AGE,
        Column("PreemptionPolicy", _path("preemptionPolicy")),
    ),
    "roles": (_NAME, Column("Created At", _created, type="date")),
    "rolebindings": (
        _NAME,
        Column("Role", lambda b: f"{b['roleRef']['kind']}/{b['roleRef']['name']}"),
        _AGE,
    ),
    "customresourcedefinitions": (_NAME, Column("Created At", _created, type="date")),
}


def columns_of(resource: Resource) -> tuple[Column, ...]:
    """The columns of a kind; a custom kind's own (`additionalPrinterColumns`), else name and age."""
    if not resource.custom:
        return _COLUMNS[resource.key]
    extra = []
    for column in resource.columns:
        kind = column.get("type", "string")
        cell = _json_path(column.get("jsonPath", ""), as_age=kind == "date")
        shown = "string" if kind == "date" else kind
        extra.append(Column(column["name"], cell, column.get("priority", 0), shown))
    return (_NAME, *extra) if extra else (_NAME, _AGE)


def _json_path(path: str, *, as_age: bool) -> Callable[[Object], Any]:
    """The simple paths that printer columns use: `.a.b`, `.a[0]`, `.conditions[?(@.type=="Ready")].status`."""
    steps = re.findall(r'\.([\w-]+)|\[(\d+)\]|\[\?\(@\.(\w+)==["\'](.*?)["\']\)\]', path)

    def read(obj: Object) -> Any:
        value: Any = obj
        for key, index, filter_key, filter_value in steps:
            if key:
                value = value.get(key) if isinstance(value, dict) else None
            elif not isinstance(value, list):
                return None
            elif index:
                value = value[int(index)] if int(index) < len(value) else None
            else:
                value = next((item for item in value if str(item.get(filter_key)) == filter_value), None)
        return since(value) if as_age and value else value

    return read
