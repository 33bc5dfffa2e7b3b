"""What admission, quota and scheduler need to know about a pod: its resource sums, its class, whether it ended."""

from __future__ import annotations

from typing import Any

from localkube.quantity import ZERO, Quantity, parse
from localkube.status import Object

Amounts = dict[str, Quantity]


def containers(spec: Object) -> list[Object]:
    """Init containers, then containers."""
    return [*spec.get("initContainers", []), *spec.get("containers", [])]


def _amounts(container: Object, section: str) -> Amounts:
    return {name: parse(value) for name, value in (container.get("resources", {}).get(section) or {}).items()}


def _merge(total: Amounts, more: Amounts, combine: Any) -> None:
    for name, amount in more.items():
        total[name] = combine(total.get(name, ZERO), amount)


def resources(spec: Object, section: str) -> Amounts:
    """Requests or limits of a whole pod: the sum over containers, at least each init container's own.

    Init containers that restart always (sidecars) run beside the others and are added.
    """
    total: Amounts = {}
    for container in spec.get("containers", []):
        _merge(total, _amounts(container, section), Quantity.__add__)
    beside: Amounts = {}
    highest: Amounts = {}
    for container in spec.get("initContainers", []):
        if container.get("restartPolicy") == "Always":
            _merge(beside, _amounts(container, section), Quantity.__add__)
            _merge(total, _amounts(container, section), Quantity.__add__)
            _merge(highest, beside, max)
        else:
            alone = dict(beside)
            _merge(alone, _amounts(container, section), Quantity.__add__)
            _merge(highest, alone, max)
    _merge(total, highest, max)
    return total


def ended(pod: Object) -> bool:
    """Succeeded or Failed: holds no resources any more."""
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def qos_class(spec: Object) -> str:
    """Guaranteed, Burstable or BestEffort, as the server writes into the status of a new pod."""
    requests, limits, guaranteed = False, False, True
    for container in containers(spec):
        section = container.get("resources", {})
        requested = {k: parse(v) for k, v in (section.get("requests") or {}).items() if k in ("cpu", "memory")}
        limited = {k: parse(v) for k, v in (section.get("limits") or {}).items() if k in ("cpu", "memory")}
        requests = requests or any(requested.values())
        limits = limits or any(limited.values())
        guaranteed = (
            guaranteed
            and limited.keys() == {"cpu", "memory"}
            and all(requested.get(name, amount) == amount for name, amount in limited.items())
        )
    if not requests and not limits:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


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
