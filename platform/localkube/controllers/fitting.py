"""Which node a pod fits, and why not: the filters of the real scheduler, as pure functions with its words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from localkube import pods
from localkube.quantity import ZERO, Quantity, parse
from localkube.status import Object

_ONE = Quantity(10**9)


@dataclass
class NodeRoom:
    """A node and what the pods on it hold."""

    node: Object
    used: pods.Amounts = field(default_factory=dict)

    @property
    def name(self) -> str:
        return str(self.node["metadata"]["name"])

    def take(self, requests: pods.Amounts) -> None:
        """Count a pod in."""
        for name, amount in requests.items():
            self.used[name] = self.used.get(name, ZERO) + amount

    def free_share(self) -> float:
        """The smaller free share of CPU and memory, to spread pods by."""
        shares = []
        for name in ("cpu", "memory"):
            total = parse((self.node.get("status", {}).get("allocatable") or {}).get(name, "0"))
            shares.append(1 - self.used.get(name, ZERO).nano / total.nano if total else 0.0)
        return min(shares)


def requests_of(pod: Object) -> pods.Amounts:
    """What a pod takes of a node, itself (`pods`) included."""
    return pods.resources(pod["spec"], "requests") | {"pods": _ONE}


def _tolerates(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return True
    return bool(toleration.get("key")) and toleration.get("value", "") == taint.get("value", "")


def _untolerated(pod: Object, taints: list[Object]) -> bool:
    """Whether a pod does not tolerate one of the taints that keep pods away."""
    tolerations = pod["spec"].get("tolerations") or ()
    keeping = [taint for taint in taints if taint.get("effect") in ("NoSchedule", "NoExecute")]
    return any(not any(_tolerates(toleration, taint) for toleration in tolerations) for taint in keeping)


def _selects(spec: Object, node: Object) -> bool:
    labels = node["metadata"].get("labels") or {}
    return all(labels.get(key) == value for key, value in (spec.get("nodeSelector") or {}).items())


def reasons(pod: Object, room: NodeRoom, requests: pods.Amounts) -> list[str]:
    """Why a pod does not fit a node, as the scheduler counts it; empty when it fits."""
    node = room.node
    ready = pods.condition(node, "Ready")
    taints = node.get("spec", {}).get("taints") or []
    if ready and ready["status"] != "True":
        taints = [*taints, _NOT_READY]
    if node.get("spec", {}).get("unschedulable") and _untolerated(pod, [_CORDONED]):
        return ["node(s) were unschedulable"]
    if _untolerated(pod, taints):
        return ["node(s) had untolerated taint(s)"]
    if not _selects(pod["spec"], node):
        return ["node(s) didn't match Pod's node affinity/selector"]
    allocatable = node.get("status", {}).get("allocatable") or {}
    short = []
    for name, amount in sorted(requests.items()):
        total = parse(allocatable.get(name, "0"))
        if amount > ZERO and room.used.get(name, ZERO) + amount > total:
            short.append("Too many pods" if name == "pods" else f"Insufficient {name}")
    return short


_CORDONED: Object = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
_NOT_READY: Object = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
"""What a real node controller writes into a silent node's taints; here it goes without saying."""


def explain(pod: Object, rooms: Iterable[NodeRoom], requests: pods.Amounts) -> str:
    """The scheduler's sentence for a pod that fits nowhere."""
    rooms = list(rooms)
    if not rooms:
        return "no nodes available to schedule pods"
    counts = Counter(reason for room in rooms for reason in reasons(pod, room, requests))
    text = ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
    helpless = sum(1 for room in rooms if reasons(pod, NodeRoom(room.node), requests))
    parts = []
    if len(rooms) - helpless:
        parts.append(f"{len(rooms) - helpless} No preemption victims found for incoming pod")
    if helpless:
        parts.append(f"{helpless} Preemption is not helpful for scheduling")
    head = f"0/{len(rooms)} nodes are available: "
    return f"{head}{text}. no new claims to deallocate, preemption: {head}{', '.join(sorted(parts))}."
