"""Verdicts on what a cluster says of itself: version, permissions, classes, metrics, GPUs, clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from kubekit.checkup.model import Line, Result
from kubekit.errors import KubeError, NotFound, SpecError
from kubekit.permissions import Permission, grant
from kubekit.quantities import parse_count
from kubekit.specs import NVIDIA

Raw = Mapping[str, Any]

OLDEST_MINOR = 29
"""The oldest Kubernetes 1.x on which the fields, texts and interfaces that the portal uses are the same."""
LOGIN_SOON = timedelta(days=14)
MOST_CLOCK_DIFFERENCE_S = 5.0
DEFAULT_STORAGE = "storageclass.kubernetes.io/is-default-class"
DEFAULT_INGRESS = "ingressclass.kubernetes.io/is-default-class"
GATEWAY_GROUP = "gateway.networking.k8s.io"

_METRICS_URL = "https://github.com/kubernetes-sigs/metrics-server/releases/latest/download/components.yaml"
_GATEWAY_URL = "https://github.com/kubernetes-sigs/gateway-api/releases/latest/download/standard-install.yaml"
_NVIDIA_URL = (
    "https://raw.githubusercontent.com/NVIDIA/k8s-device-plugin/main/deployments/static/nvidia-device-plugin.yml"
)
_MODEL_LABELS = ("nvidia.com/gpu.product", "amd.com/gpu.product-name", "gpu.intel.com/product")
#: Set by node-feature-discovery where a card of NVIDIA's is on the bus.
_CARD_LABEL = "feature.node.kubernetes.io/pci-10de.present"


def too_old(answer: Raw) -> bool:
    """Whether a server's ``/version`` is of a Kubernetes that the portal does not work with; unreadable is not."""
    minor = _minor(answer)
    return minor is not None and str(answer.get("major", "1")) == "1" and minor < OLDEST_MINOR


def parse_version(git_version: str) -> dict[str, str]:
    """``v1.36.1+k3s1`` as ``/version`` has it in parts; nothing for what is no version."""
    parts = git_version.removeprefix("v").split(".")
    return {"major": parts[0], "minor": parts[1]} if len(parts) > 1 else {}


def version(answer: Raw) -> Line:
    """The server's version."""
    params = {"version": str(answer.get("gitVersion", "?")), "oldest": f"1.{OLDEST_MINOR}"}
    if too_old(answer):
        return Line(topic="version", code="version_too_old", result="missing", params=params)
    known = _minor(answer) is not None
    return Line(
        topic="version",
        code="version_good" if known else "version_unreadable",
        result="good" if known else "unknown",
        params=params,
    )


def _minor(answer: Raw) -> int | None:
    digits = ""
    for char in str(answer.get("minor", "")):
        if not char.isdigit():
            break
        digits += char
    return int(digits) if digits else None


def login(end: datetime | None, now: datetime) -> Line:
    """How long the credentials last."""
    if end is None:
        return Line(topic="login", code="login_lasting", result="good")
    params = {"end": f"{end:%Y-%m-%d %H:%M} UTC", "days": max(0, (end - now).days)}
    soon = end - now < LOGIN_SOON
    return Line(
        topic="login",
        code="login_soon" if soon else "login_until",
        result="missing" if soon else "good",
        params=params,
        command="kubectl create token NAME -n NAMESPACE --duration=8760h" if soon else "",
    )


def permission(entry: Permission, missing: Sequence[str], *, account: str, exposure: str) -> Line:
    """Whether the account may do what one entry of the list says; not all is needed for each ``exposure``."""
    params = {"what": entry.full_name, "verbs": ", ".join(entry.verbs), "missing": ", ".join(missing)}
    if not missing:
        return Line(topic="permission", code="permission_good", result="good", params=params)
    needed = entry.needed_with(exposure)
    unneeded = "permission_optional" if entry.optional else "permission_unused"
    return Line(
        topic="permission",
        code="permission_missing" if needed else unneeded,
        result="missing" if needed else "note",
        params=params,
        command=grant(entry, account),
    )


def default_storage(classes: Sequence[Raw], *, chosen: str) -> Line:
    """Whether there is a class for volumes: the chosen one, else the cluster's default."""
    return _class("storage_class", "storageclass", classes, chosen=chosen, default=DEFAULT_STORAGE, needed=True)


def ingress(classes: Sequence[Raw], *, chosen: str, needed: bool) -> Line:
    """Whether there is a class for instances' routes."""
    return _class("ingress", "ingressclass", classes, chosen=chosen, default=DEFAULT_INGRESS, needed=needed)


def _class(topic: str, kind: str, classes: Sequence[Raw], *, chosen: str, default: str, needed: bool) -> Line:
    known = [_name(obj) for obj in classes]
    defaults = [_name(obj) for obj in classes if _annotations(obj).get(default) == "true"]
    params = {"names": ", ".join(known), "name": chosen or ", ".join(defaults)}
    absent: Result = "missing" if needed else "note"
    if not known:
        return Line(topic=topic, code=f"{topic}_none", result=absent, params=params)
    if chosen and chosen not in known:
        return Line(topic=topic, code=f"{topic}_not_there", result=absent, params=params)
    if not chosen and not defaults:
        command = f"kubectl annotate {kind} {known[0]} {default}=true"
        return Line(topic=topic, code=f"{topic}_no_default", result=absent, params=params, command=command)
    return Line(topic=topic, code=f"{topic}_good", result="good", params=params)


def gateway(versions: Sequence[str], classes: Sequence[Raw], *, needed: bool) -> Line:
    """Whether the Gateway API is served in version 1 and somebody answers for it."""
    accepted = [_name(obj) for obj in classes if _condition(obj, "Accepted") == "True"]
    params = {"versions": ", ".join(versions), "names": ", ".join(accepted)}
    absent: Result = "missing" if needed else "note"
    if "v1" not in versions:
        command = f"kubectl apply --server-side -f {_GATEWAY_URL}"
        return Line(topic="gateway", code="gateway_none", result=absent, params=params, command=command)
    if not accepted:
        return Line(topic="gateway", code="gateway_no_controller", result=absent, params=params)
    return Line(topic="gateway", code="gateway_good", result="good", params=params)


def metrics(found: int | KubeError, *, nodes: int) -> Line:
    """Whether use is measured; ``found`` is for how many nodes, or what the server answered instead."""
    command = f"kubectl apply -f {_METRICS_URL}"
    if isinstance(found, NotFound):
        return Line(topic="metrics", code="metrics_none", result="note", command=command)
    if isinstance(found, KubeError):
        return Line(topic="metrics", code="metrics_silent", result="unknown", evidence=(found.message,))
    code = "metrics_good" if found else "metrics_empty"
    return Line(topic="metrics", code=code, result="good" if found else "note", params={"count": found, "nodes": nodes})


def gpus(nodes: Iterable[Raw]) -> list[Line]:
    """One line for each model, and one for each thing about GPU nodes that should be otherwise."""
    sums: dict[tuple[str, str], list[int]] = {}
    open_nodes: dict[str, list[str]] = {}
    without_plugin: list[str] = []
    for node in nodes:
        labels = (node.get("metadata") or {}).get("labels") or {}
        resources = _devices(node)
        for resource, count in resources.items():
            row = sums.setdefault((resource, _model(labels)), [0, 0])
            row[0] += count
            row[1] += 1
            if count and not _keeps_away(node, resource):
                open_nodes.setdefault(resource, []).append(_name(node))
        if labels.get(_CARD_LABEL) == "true" and NVIDIA not in resources:
            without_plugin.append(_name(node))
    lines = [_gpu_line(resource, model, *row) for (resource, model), row in sorted(sums.items())]
    if without_plugin:
        params = {"nodes": ", ".join(without_plugin[:5]), "count": len(without_plugin)}
        command = f"kubectl apply -f {_NVIDIA_URL}"
        lines.append(Line(topic="gpu", code="gpu_no_plugin", result="missing", params=params, command=command))
    for resource, names in sorted(open_nodes.items()):
        params = {"resource": resource, "nodes": ", ".join(names[:5]), "count": len(names)}
        command = f"kubectl taint nodes {' '.join(names[:20])} {resource}=present:NoSchedule"
        lines.append(Line(topic="gpu", code="gpu_open", result="note", params=params, command=command))
    return lines or [Line(topic="gpu", code="gpu_none", result="note")]


def _gpu_line(resource: str, model: str, count: int, nodes: int) -> Line:
    code = "gpu_model" if model else "gpu_unnamed"
    params = {"resource": resource, "model": model, "count": count, "nodes": nodes}
    return Line(topic="gpu", code=code, result="good", params=params)


def _devices(node: Raw) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, text in ((node.get("status") or {}).get("allocatable") or {}).items():
        if "/" not in name or name.endswith("kubernetes.io/batch-cpu"):
            continue
        try:
            found[name] = parse_count(text)
        except SpecError:
            continue  # a count that nobody can read must not hide the others
    return found


def _model(labels: Mapping[str, str]) -> str:
    return next((labels[key] for key in _MODEL_LABELS if labels.get(key)), "")


def _keeps_away(node: Raw, resource: str) -> bool:
    """Whether a taint keeps pods off the node that do not ask for its GPUs; any other taint keeps all off."""
    taints = (node.get("spec") or {}).get("taints") or ()
    return any(taint.get("effect") in ("NoSchedule", "NoExecute") for taint in taints)


def priorities(classes: Sequence[Raw]) -> Line:
    """The priority classes beside the system's own."""
    own = {_name(obj): obj.get("value", 0) for obj in classes if not _name(obj).startswith("system-")}
    names = ", ".join(f"{name} ({value})" for name, value in sorted(own.items(), key=lambda row: -row[1]))
    code = "priority_some" if own else "priority_none"
    return Line(topic="priority", code=code, result="note", params={"names": names})


def clock(theirs: datetime | None, ours: datetime) -> Line:
    """Whether the cluster's clock, read from what it stamped just now, agrees with the portal's. Stamps are whole
    seconds."""
    if theirs is None:
        return Line(topic="clock", code="clock_unreadable", result="unknown")
    apart = abs((theirs - ours).total_seconds())
    if apart <= MOST_CLOCK_DIFFERENCE_S:
        return Line(topic="clock", code="clock_good", result="good")
    ahead = theirs > ours
    return Line(
        topic="clock",
        code="clock_ahead" if ahead else "clock_behind",
        result="missing",
        params={"seconds": int(apart)},
        command="timedatectl set-ntp true",
    )


def _name(obj: Raw) -> str:
    return str((obj.get("metadata") or {}).get("name", ""))


def _annotations(obj: Raw) -> Mapping[str, str]:
    return (obj.get("metadata") or {}).get("annotations") or {}


def _condition(obj: Raw, kind: str) -> str:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((str(row.get("status")) for row in conditions if row.get("type") == kind), "")
