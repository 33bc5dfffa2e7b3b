"""Nodes and what pods ask of them, read from raw objects. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from kubekit.errors import SpecError
from kubekit.quantities import parse_bytes, parse_count, parse_cpu

Raw = Mapping[str, Any]
Sums = dict[str, int]
_TERMINAL = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, kw_only=True)
class NodeFacts:
    """What the portal stores of a node."""

    name: str
    ready: bool
    schedulable: bool
    allocatable: Sums
    labels: dict[str, str] = field(default_factory=dict)
    taints: tuple[dict[str, str], ...] = ()


def node_facts(raw: Raw) -> NodeFacts:
    """From a Node object."""
    metadata, spec, status = raw.get("metadata") or {}, raw.get("spec") or {}, raw.get("status") or {}
    conditions = {entry.get("type"): entry.get("status") for entry in status.get("conditions") or ()}
    return NodeFacts(
        name=metadata.get("name", ""),
        ready=conditions.get("Ready") == "True",
        schedulable=not spec.get("unschedulable", False),
        allocatable=amounts(status.get("allocatable") or {}),
        labels=dict(metadata.get("labels") or {}),
        taints=tuple(
            {"key": taint.get("key", ""), "value": taint.get("value", ""), "effect": taint.get("effect", "")}
            for taint in spec.get("taints") or ()
        ),
    )


def amounts(resources: Raw) -> Sums:
    """A resource list as integers: ``cpu_millis``, ``memory_bytes``, ``pods`` and extended resources by name."""
    found = (_amount(name, text) for name, text in resources.items())
    return {entry[0]: entry[1] for entry in found if entry is not None}


@lru_cache(maxsize=4096)
def _amount(name: str, text: str | int | float) -> tuple[str, int] | None:
    """Thousands of pods ask for the same few amounts, so each is read once."""
    try:
        if name == "cpu":
            return "cpu_millis", parse_cpu(text)
        if name == "memory":
            return "memory_bytes", parse_bytes(text)
        return (name, parse_count(text)) if name == "pods" or "/" in name else None
    except SpecError:
        return None  # a quantity that we cannot read must not hide the others


@dataclass(frozen=True, kw_only=True)
class PodRequest:
    """What a pod takes of its node; ``node`` is empty while it is not scheduled."""

    node: str
    amounts: Sums


def pod_request(raw: Raw) -> PodRequest | None:
    """What the scheduler counts for a pod, None when it counts nothing (ended).

    The larger of: all containers together; each init container with the restartable ones before it
    (k8s.io/kubernetes/pkg/api/v1/resource). Overhead is added.
    """
    spec, status = raw.get("spec") or {}, raw.get("status") or {}
    if status.get("phase") in _TERMINAL:
        return None
    total = _sum(_requests(container) for container in spec.get("containers") or ())
    if first := spec.get("initContainers"):
        peak: Sums = {}
        sidecars: Sums = {}
        for container in first:
            wants = _requests(container)
            if container.get("restartPolicy") == "Always":
                sidecars = _sum((sidecars, wants))
                peak = _max(peak, sidecars)
            else:
                peak = _max(peak, _sum((sidecars, wants)))
        total = _max(_sum((total, sidecars)), peak)
    total = _sum((total, amounts(spec.get("overhead") or {}), {"pods": 1}))
    return PodRequest(node=spec.get("nodeName") or "", amounts=total)


def requested_by_node(pods: Iterable[PodRequest]) -> dict[str, Sums]:
    """Sums per node over all scheduled pods."""
    found: dict[str, Sums] = {}
    for pod in pods:
        if pod.node:
            found[pod.node] = _sum((found.get(pod.node, {}), pod.amounts))
    return found


def resources_of(requested: Mapping[str, int], allocatable: Mapping[str, int]) -> list[tuple[str, int, int]]:
    """``(resource, requested, allocatable)`` as pages show them: CPU, memory, then GPUs."""
    names: list[str] = [name for name in ("cpu_millis", "memory_bytes") if name in allocatable]
    names += sorted(name for name in allocatable if "/" in name)
    return [(name, requested.get(name, 0), allocatable[name]) for name in names]


def _requests(container: Raw) -> Sums:
    resources = container.get("resources") or {}
    return amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def _sum(parts: Iterable[Sums]) -> Sums:
    total: Sums = {}
    for part in parts:
        for name, count in part.items():
            total[name] = total.get(name, 0) + count
    return total


def _max(one: Sums, other: Sums) -> Sums:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {*one, *other}}
