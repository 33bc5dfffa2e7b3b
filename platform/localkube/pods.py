"""What admission, quota and scheduler need to know about a pod: its resource sums, its class, whether it ended."""

from __future__ import annotations

from localkube.quantity import ZERO, Quantity, parse
from localkube.status import Object

Amounts = dict[str, Quantity]


def _amounts(container: Object, section: str) -> Amounts:
    return {name: parse(value) for name, value in (container.get("resources", {}).get(section) or {}).items()}


def resources(spec: Object, section: str) -> Amounts:
    """Requests or limits of a whole pod: the sum over its containers."""
    total: Amounts = {}
    for container in spec.get("containers", []):
        for name, amount in _amounts(container, section).items():
            total[name] = total.get(name, ZERO) + amount
    return total


def ended(pod: Object) -> bool:
    """Succeeded or Failed: holds no resources any more."""
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def condition(obj: Object, type_: str) -> Object | None:
    """One condition of an object's status."""
    return next((c for c in obj.get("status", {}).get("conditions") or () if c.get("type") == type_), None)


def is_ready(pod: Object) -> bool:
    found = condition(pod, "Ready")
    return found is not None and found.get("status") == "True"


def set_condition(obj: Object, type_: str, value: str, *, reason: str = "", message: str = "", at: str) -> bool:
    """Set a condition in the status, keeping lastTransitionTime while its value stays. False if nothing changed."""
    conditions = obj.setdefault("status", {}).setdefault("conditions", [])
    wanted = {"type": type_, "status": value, "lastTransitionTime": at}
    wanted |= {key: text for key, text in (("reason", reason), ("message", message)) if text}
    for index, found in enumerate(conditions):
        if found["type"] == type_:
            if found["status"] == value:
                wanted["lastTransitionTime"] = found.get("lastTransitionTime", at)
            merged = {k: v for k, v in found.items() if k not in ("reason", "message")} | wanted
            conditions[index] = merged
            return bool(merged != found)
    conditions.append(wanted)
    return True
