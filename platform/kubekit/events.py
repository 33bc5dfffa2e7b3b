"""Events of the cluster in plain words, and the stages of a start read from them. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from kubekit.observe import STAGES, PodObservation, Stage, parse_time

_EPOCH = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, kw_only=True)
class EventNote:
    """One event. ``sentence`` is plain English, ``message`` the cluster's own text, ``count`` how often it came."""

    time: datetime
    reason: str
    sentence: str
    message: str
    count: int
    type: str
    object_kind: str
    object_name: str
    object_uid: str

    @property
    def warning(self) -> bool:
        """Whether the cluster flagged it as a warning."""
        return self.type == "Warning"


_QUOTED = re.compile(r'"([^"]+)"')


def _quoted(message: str, otherwise: str) -> str:
    found = _QUOTED.search(message)
    return found[1] if found else otherwise


def _seconds(message: str) -> str:
    found = re.search(r"in ([0-9.]+m?s)\b", message)
    return f" in {found[1]}" if found else ""


def _node(message: str) -> str:
    found = re.search(r"to (\S+)$", message)
    return f" on {found[1]}" if found else ""


def _failed(message: str) -> str:
    if "failed to pull" in message.lower() or "ErrImagePull" in message or "ImagePullBackOff" in message:
        return f"The image {_quoted(message, 'of this pod')} could not be pulled."
    if "executable file not found" in message or "no such file or directory" in message:
        return "The command does not exist in the image."
    return f"The container could not be started: {message}"


def _back_off(message: str) -> str:
    if "pulling image" in message:
        return f"Waiting before the image {_quoted(message, 'of this pod')} is pulled again."
    return "The program keeps ending; waiting before it is started again."


#: Reason -> sentence. What is not here is shown as the cluster wrote it.
_SENTENCES: Mapping[str, Callable[[str], str]] = {
    "Scheduled": lambda m: f"A place was found{_node(m)}.",
    "FailedScheduling": lambda m: f"No node can take it yet: {m}",
    "NotTriggerScaleUp": lambda m: "No further node can be added that would fit it.",
    "TriggeredScaleUp": lambda m: "A further node is being added for it.",
    "Preempted": lambda m: "It had to make room for something of a higher priority.",
    "Preempting": lambda m: "The node made room for something of a higher priority.",
    "Pulling": lambda m: f"Pulling the image {_quoted(m, 'of this pod')}.",
    "Pulled": lambda m: (
        f"The image is already on the node: {_quoted(m, 'image')}."
        if "already present" in m
        else f"The image {_quoted(m, 'of this pod')} was pulled{_seconds(m)}."
    ),
    "ErrImageNeverPull": lambda m: f"The image {_quoted(m, 'of this pod')} is not on the node and may not be pulled.",
    "InspectFailed": lambda m: f"The image's name is not valid: {_quoted(m, 'image')}.",
    "Created": lambda m: "The container was made.",
    "Started": lambda m: "The program was started.",
    "Killing": lambda m: "The program is being stopped.",
    "BackOff": _back_off,
    "Failed": _failed,
    "Unhealthy": lambda m: f"It does not answer yet: {m}",
    "FailedMount": lambda m: f"A volume could not be mounted: {m}",
    "FailedAttachVolume": lambda m: f"A volume could not be attached to the node: {m}",
    "SuccessfulAttachVolume": lambda m: "The volume was attached to the node.",
    "FailedBinding": lambda m: f"The volume has no storage behind it yet: {m}",
    "ProvisioningFailed": lambda m: f"Storage for the volume could not be made: {m}",
    "Provisioning": lambda m: "Storage for the volume is being made.",
    "ExternalProvisioning": lambda m: "Waiting for the storage system to make the volume.",
    "ProvisioningSucceeded": lambda m: "Storage for the volume was made.",
    "WaitForFirstConsumer": lambda m: "The volume will be made where its first user runs.",
    "FailedCreate": lambda m: f"The pod could not be made: {m}",
    "SuccessfulCreate": lambda m: "The pod was made.",
    "SuccessfulDelete": lambda m: "The pod was deleted.",
    "FailedCreatePodSandBox": lambda m: f"The node could not prepare the pod's network: {m}",
    "Evicted": lambda m: f"The node threw it out: {m}",
    "TaintManagerEviction": lambda m: "The node may not run it any longer.",
    "NodeNotReady": lambda m: "The node has stopped answering.",
    "DeadlineExceeded": lambda m: "It ran longer than allowed.",
    "OOMKilling": lambda m: "The node ran out of memory and killed a program.",
    "Rebooted": lambda m: "The node was restarted.",
}


def observe_event(raw: Mapping[str, Any]) -> EventNote:
    """An Event object (core/v1, with or without the fields of events.k8s.io)."""
    about = raw.get("involvedObject") or raw.get("regarding") or {}
    message = str(raw.get("message") or raw.get("note") or "").strip()
    reason = str(raw.get("reason") or "")
    series = raw.get("series") or {}
    stamps = (
        series.get("lastObservedTime"),
        raw.get("lastTimestamp"),
        raw.get("eventTime"),
        raw.get("firstTimestamp"),
        (raw.get("metadata") or {}).get("creationTimestamp"),
    )
    say = _SENTENCES.get(reason)
    return EventNote(
        time=next((moment for moment in map(parse_time, stamps) if moment is not None), _EPOCH),
        reason=reason,
        sentence=say(message) if say is not None else message or reason,
        message=message,
        count=int(series.get("count") or raw.get("count") or 1),
        type=str(raw.get("type") or "Normal"),
        object_kind=str(about.get("kind") or ""),
        object_name=str(about.get("name") or ""),
        object_uid=str(about.get("uid") or ""),
    )


def observe_events(raws: Iterable[Mapping[str, Any]]) -> tuple[EventNote, ...]:
    """Events in order of time, and within one second (most have no fractions) in the order they were stored."""
    rows = sorted(((observe_event(raw), _version(raw)) for raw in raws), key=lambda row: (row[0].time, row[1]))
    return tuple(note for note, _ in rows)


def _version(raw: Mapping[str, Any]) -> int:
    text = str((raw.get("metadata") or {}).get("resourceVersion") or "")
    return int(text) if text.isdecimal() else 0


def stages(pod: PodObservation, events: Sequence[EventNote] = ()) -> tuple[Stage, ...]:
    """When each step of the pod's start was done, in the order of `STAGES`.

    Conditions and container states tell most of it; events fill in what a node only says once ("Pulled"). A later
    step that is done proves the earlier ones; their missing time is then that of the step before.
    """
    mine = [note for note in events if not note.object_uid or note.object_uid == pod.uid]
    main = pod.main
    running_since = None
    if main is not None:
        running_since = main.started_at or (main.previous.started_at if main.previous else None)
    found: dict[str, datetime | None] = {
        "scheduled": _since(pod, "PodScheduled") or _first(mine, "Scheduled") or _first(mine, "Assigned"),
        "volume": _since(pod, "PodReadyToStartContainers") or _first(mine, "Pulling", "Pulled"),
        "image": _first(mine, "Pulled") or _first(mine, "Created"),
        "started": running_since or _first(mine, "Started"),
        "ready": _since(pod, "Ready"),
    }
    return _filled(found)


def _since(pod: PodObservation, condition: str) -> datetime | None:
    row = pod.conditions.get(condition)
    return row.since if row is not None and row.true else None


def _first(events: Sequence[EventNote], *reasons: str) -> datetime | None:
    return next((note.time for note in events if note.reason in reasons), None)


def _filled(found: Mapping[str, datetime | None]) -> tuple[Stage, ...]:
    last_done = max((index for index, name in enumerate(STAGES) if found[name] is not None), default=-1)
    done: list[Stage] = []
    before: datetime | None = None
    for index, name in enumerate(STAGES):
        at = found[name]
        if at is None and index < last_done:
            at = before
        if at is not None and before is not None:
            at = max(at, before)
        before = at or before
        done.append(Stage(name=name, at=at))
    return tuple(done)
