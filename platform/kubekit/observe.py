"""Raw Kubernetes objects -> frozen observations. Pure: no clock, no network, tolerant of missing fields.

An observation says what the cluster said, in the portal's words and units; what it *means* is `kubekit.diagnose`'s
business. Times are aware datetimes in UTC (the server gives whole seconds).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from kubekit import names
from kubekit.build.pod import CONTAINER
from kubekit.errors import SpecError
from kubekit.quantities import parse_bytes

Raw = Mapping[str, Any]
Situation = Literal["absent", "stopped", "stopping", "starting", "running", "crashing", "unreachable"]
ContainerState = Literal["waiting", "running", "terminated"]

#: The steps of a start in the order in which a node takes them.
STAGES = ("scheduled", "volume", "image", "started", "ready")
_LOST_REASONS = frozenset({"NodeLost", "NodeStatusUnknown"})


def parse_time(text: str | None) -> datetime | None:
    """RFC 3339 as the server writes it (up to nanoseconds) -> aware UTC datetime; None for nothing or nonsense."""
    if not text:
        return None
    head, dot, tail = text.partition(".")
    if dot:
        digits = len(tail) - len(tail.lstrip("0123456789"))
        text = f"{head}.{tail[: min(digits, 6)].ljust(6, '0')}{tail[digits:]}"
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except ValueError:
        return None


@dataclass(frozen=True, kw_only=True)
class Condition:
    """One row of ``status.conditions``."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    since: datetime | None = None

    @property
    def true(self) -> bool:
        """Whether the status is exactly "True"."""
        return self.status == "True"


@dataclass(frozen=True, kw_only=True)
class ContainerObservation:
    """One container's present state. ``previous`` is how it ended before the last restart."""

    name: str
    state: ContainerState
    reason: str = ""
    message: str = ""
    exit_code: int | None = None
    signal: int | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    restarts: int = 0
    ready: bool = False
    image: str = ""
    init: bool = False
    previous: ContainerObservation | None = None


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A step of a start; ``at`` is when it was done, None when it is not (or nothing tells)."""

    name: str
    at: datetime | None


@dataclass(frozen=True, kw_only=True)
class PodObservation:
    """A pod. ``reason`` and ``message`` are the pod's own (Evicted, DeadlineExceeded), not a container's."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    labels: Mapping[str, str]
    phase: str
    ready: bool
    reason: str = ""
    message: str = ""
    node: str | None = None
    ip: str | None = None
    created_at: datetime | None = None
    started_at: datetime | None = None
    deleted_at: datetime | None = None
    grace_s: int = 0
    finalizers: tuple[str, ...] = ()
    conditions: Mapping[str, Condition] = field(default_factory=dict)
    containers: tuple[ContainerObservation, ...] = ()
    memory_limit_bytes: int | None = None
    node_selector: Mapping[str, str] = field(default_factory=dict)
    claims: tuple[str, ...] = ()

    @property
    def main(self) -> ContainerObservation | None:
        """The container that matters; None while the node has reported nothing."""
        return next((c for c in self.containers if c.name == CONTAINER and not c.init), None)

    @property
    def deleting(self) -> bool:
        """Whether somebody has asked for its deletion."""
        return self.deleted_at is not None

    @property
    def delete_requested_at(self) -> datetime | None:
        """When the deletion was asked for (the server stores that instant plus the grace period)."""
        return None if self.deleted_at is None else self.deleted_at - timedelta(seconds=self.grace_s)

    @property
    def finished(self) -> bool:
        """Whether the pod has come to its end for good."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def unreachable(self) -> bool:
        """Whether the node has stopped reporting, so that nothing said here is certain."""
        readiness = self.conditions.get("Ready")
        lost = readiness is not None and not readiness.true and readiness.reason in _LOST_REASONS
        return self.phase == "Unknown" or self.reason in _LOST_REASONS or lost


@dataclass(frozen=True, kw_only=True)
class ClaimObservation:
    """A PersistentVolumeClaim: ``phase`` is Pending, Bound or Lost."""

    namespace: str
    name: str
    uid: str
    labels: Mapping[str, str]
    phase: str
    capacity_bytes: int | None
    requested_bytes: int | None
    storage_class: str | None
    deleting: bool
    resize_pending: bool


@dataclass(frozen=True, kw_only=True)
class InstanceObservation:
    """A dev instance as the cluster has it: its StatefulSet (None fields when there is none) and its pod."""

    exists: bool
    uid: str | None
    id: str | None
    generation: int | None
    replicas: int
    deleting: bool
    settled: bool
    pod: PodObservation | None

    @property
    def situation(self) -> Situation:
        """One word for what is going on."""
        pod = self.pod
        if pod is None:
            if not self.exists:
                return "absent"
            return "starting" if self.replicas else "stopped"
        if pod.unreachable:
            return "unreachable"
        if pod.deleting or not self.replicas or not self.exists:
            return "stopping"
        if pod.ready:
            return "running"
        return "crashing" if pod.finished or _crashing(pod.main) else "starting"


@dataclass(frozen=True, kw_only=True)
class AttemptObservation:
    """A task attempt's pod: how far it came and how it ended."""

    pod: PodObservation
    attempt_id: str
    number: int | None
    started: bool
    started_at: datetime | None
    finished_at: datetime | None
    exit_code: int | None
    signal: int | None
    reason: str
    message: str

    @property
    def finished(self) -> bool:
        """Whether the pod's phase is final; a container may have ended a moment earlier."""
        return self.pod.finished


_READ_OF_SPEC = ("nodeName", "nodeSelector", "overhead", "volumes")
_READ_OF_CONTAINERS = ("name", "resources", "restartPolicy")


def trimmed_pod(raw: dict[str, Any]) -> dict[str, Any]:
    """The parts of a pod that anybody here reads, for lists of thousands; the rest may be let go.

    What the kubelet is told and the bookkeeping of field managers are two thirds of a pod.
    """
    spec = raw.get("spec") or {}
    kept = {name: spec[name] for name in _READ_OF_SPEC if name in spec}
    for group in ("containers", "initContainers"):
        if spec.get(group):
            kept[group] = [{name: row[name] for name in _READ_OF_CONTAINERS if name in row} for row in spec[group]]
    metadata = {name: value for name, value in (raw.get("metadata") or {}).items() if name != "managedFields"}
    return {**raw, "metadata": metadata, "spec": kept}


class Glance(NamedTuple):
    """What lists of thousands of pods are compared by; `observe_pod` says the same and more, at ten times the cost."""

    id: str
    uid: str
    up: bool
    """Ready, and not on its way out."""
    restarts: int


def glance(raw: Raw) -> Glance:
    """A pod at a glance."""
    metadata, status = raw.get("metadata") or {}, raw.get("status") or {}
    ready = any(row.get("type") == "Ready" and row.get("status") == "True" for row in status.get("conditions") or ())
    main: Raw = next((row for row in status.get("containerStatuses") or () if row.get("name") == CONTAINER), {})
    return Glance(
        id=(metadata.get("labels") or {}).get(names.ID, ""),
        uid=metadata.get("uid", ""),
        up=ready and not metadata.get("deletionTimestamp"),
        restarts=int(main.get("restartCount") or 0),
    )


def _conditions(rows: Iterable[Raw]) -> Mapping[str, Condition]:
    found = {
        str(row.get("type")): Condition(
            type=str(row.get("type")),
            status=str(row.get("status")),
            reason=row.get("reason") or "",
            message=row.get("message") or "",
            since=parse_time(row.get("lastTransitionTime")),
        )
        for row in rows
    }
    return MappingProxyType(found)


def _container(raw: Raw, *, init: bool) -> ContainerObservation:
    state, body = _state(raw.get("state") or {})
    last, last_body = _state(raw.get("lastState") or {})
    common: dict[str, Any] = {"name": raw.get("name", ""), "image": raw.get("image") or "", "init": init}
    return ContainerObservation(
        state=state,
        previous=ContainerObservation(state="terminated", **_ending(last_body), **common)
        if last == "terminated"
        else None,
        restarts=int(raw.get("restartCount") or 0),
        ready=bool(raw.get("ready")),
        **_ending(body),
        **common,
    )


def _state(raw: Raw) -> tuple[ContainerState, Raw]:
    if "terminated" in raw:
        return "terminated", raw["terminated"] or {}
    if "running" in raw:
        return "running", raw["running"] or {}
    return "waiting", raw.get("waiting") or {}


def _ending(body: Raw) -> dict[str, Any]:
    return {
        "reason": body.get("reason") or "",
        "message": body.get("message") or "",
        "exit_code": body.get("exitCode"),
        "signal": body.get("signal") or None,
        "started_at": parse_time(body.get("startedAt")),
        "finished_at": parse_time(body.get("finishedAt")),
    }


def _crashing(main: ContainerObservation | None) -> bool:
    if main is None:
        return False
    return main.state == "terminated" or (main.state == "waiting" and main.previous is not None)


def _memory_limit(spec: Raw) -> int | None:
    for container in spec.get("containers") or ():
        if container.get("name") == CONTAINER:
            return _bytes_or_none(((container.get("resources") or {}).get("limits") or {}).get("memory"))
    return None


def _bytes_or_none(text: str | int | None) -> int | None:
    if text is None:
        return None
    try:
        return parse_bytes(text)
    except SpecError:
        return None


def observe_pod(raw: Raw) -> PodObservation:
    """A Pod object of the API."""
    metadata, spec, status = raw.get("metadata") or {}, raw.get("spec") or {}, raw.get("status") or {}
    conditions = _conditions(status.get("conditions") or ())
    ready = conditions.get("Ready")
    volumes = spec.get("volumes") or ()
    return PodObservation(
        namespace=metadata.get("namespace", ""),
        name=metadata.get("name", ""),
        uid=metadata.get("uid", ""),
        resource_version=metadata.get("resourceVersion", ""),
        labels=MappingProxyType(dict(metadata.get("labels") or {})),
        phase=status.get("phase") or "Pending",
        ready=ready is not None and ready.true,
        reason=status.get("reason") or "",
        message=status.get("message") or "",
        node=spec.get("nodeName") or None,
        ip=status.get("podIP") or None,
        created_at=parse_time(metadata.get("creationTimestamp")),
        started_at=parse_time(status.get("startTime")),
        deleted_at=parse_time(metadata.get("deletionTimestamp")),
        grace_s=int(metadata.get("deletionGracePeriodSeconds") or 0),
        finalizers=tuple(metadata.get("finalizers") or ()),
        conditions=conditions,
        containers=(
            *(_container(row, init=True) for row in status.get("initContainerStatuses") or ()),
            *(_container(row, init=False) for row in status.get("containerStatuses") or ()),
        ),
        memory_limit_bytes=_memory_limit(spec),
        node_selector=MappingProxyType(dict(spec.get("nodeSelector") or {})),
        claims=tuple(v["persistentVolumeClaim"]["claimName"] for v in volumes if v.get("persistentVolumeClaim")),
    )


def observe_claim(raw: Raw) -> ClaimObservation:
    """A PersistentVolumeClaim object of the API."""
    metadata, spec, status = raw.get("metadata") or {}, raw.get("spec") or {}, raw.get("status") or {}
    conditions = _conditions(status.get("conditions") or ())
    return ClaimObservation(
        namespace=metadata.get("namespace", ""),
        name=metadata.get("name", ""),
        uid=metadata.get("uid", ""),
        labels=MappingProxyType(dict(metadata.get("labels") or {})),
        phase=status.get("phase") or "Pending",
        capacity_bytes=_bytes_or_none((status.get("capacity") or {}).get("storage")),
        requested_bytes=_bytes_or_none(((spec.get("resources") or {}).get("requests") or {}).get("storage")),
        storage_class=spec.get("storageClassName"),
        deleting=bool(metadata.get("deletionTimestamp")),
        resize_pending=any(kind in conditions for kind in ("Resizing", "FileSystemResizePending")),
    )


def observe_instance(stateful_set: Raw | None, pod: Raw | None) -> InstanceObservation:
    """A StatefulSet and its pod, either of which may be missing."""
    metadata = (stateful_set or {}).get("metadata") or {}
    spec, status = (stateful_set or {}).get("spec") or {}, (stateful_set or {}).get("status") or {}
    marks = metadata.get("labels") or ((pod or {}).get("metadata") or {}).get("labels") or {}
    generation = str(marks.get(names.GENERATION, ""))
    return InstanceObservation(
        exists=stateful_set is not None,
        uid=metadata.get("uid"),
        id=marks.get(names.ID),
        generation=int(generation) if generation.isdecimal() else None,
        replicas=int(spec.get("replicas", 1)) if stateful_set is not None else 0,
        deleting=bool(metadata.get("deletionTimestamp")),
        settled=int(status.get("observedGeneration") or 0) >= int(metadata.get("generation") or 0),
        pod=observe_pod(pod) if pod is not None else None,
    )


def observe_attempt(raw: Raw) -> AttemptObservation:
    """A task attempt's Pod object."""
    pod = observe_pod(raw)
    main = pod.main
    number = pod.labels.get(names.ATTEMPT, "")
    ended = main if main is not None and main.state == "terminated" else None
    # A container that failed to start is "terminated" too, with the epoch or nothing as its start.
    began = main is not None and main.started_at is not None and main.started_at.year > 1970
    return AttemptObservation(
        pod=pod,
        attempt_id=pod.labels.get(names.ID, ""),
        number=int(number) if number.isdecimal() else None,
        started=began,
        started_at=main.started_at if main is not None and began else None,
        finished_at=ended.finished_at if ended is not None else None,
        exit_code=ended.exit_code if ended is not None else None,
        signal=_signal(ended),
        reason=main.reason if main is not None else "",
        message=main.message if main is not None else "",
    )


def _signal(ended: ContainerObservation | None) -> int | None:
    if ended is None or ended.exit_code is None:
        return None
    if ended.signal:
        return ended.signal
    return ended.exit_code - 128 if 128 < ended.exit_code <= 128 + 64 else None
