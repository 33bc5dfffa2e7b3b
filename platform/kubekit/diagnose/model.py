"""What a diagnosis reads and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

from kubekit.diagnose.codes import MAY_PASS
from kubekit.errors import KubeError
from kubekit.events import EventNote
from kubekit.observe import ClaimObservation, ContainerObservation, PodObservation

_EVIDENCE = 5
_EVIDENCE_LENGTH = 500


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One cause. ``next`` says what helps, as a code: ``free_quota``, ``smaller_size``, ``fix_image`` ..."""

    code: str
    params: Mapping[str, Any] = field(default_factory=dict)
    evidence: tuple[str, ...] = ()
    next: str = "ask_admin"

    @property
    def may_pass(self) -> bool:
        """Whether waiting is sensible: nothing about the object itself has to change."""
        return self.code in MAY_PASS


@dataclass(frozen=True, kw_only=True)
class Context:
    """All that is known about one instance or attempt at one moment.

    ``events`` may hold those of the StatefulSet, its pods and claims; what is older than ``since`` (when the start was
    asked for) or about an earlier pod of the same name is ignored. ``claims`` are the claims it mounts, as observed;
    ``wanted_claims`` their names. ``error`` is the last refusal when something was to be made. ``waited_s`` counts from
    when the start was asked for. ``cluster_silent_s`` is the age of the last contact. ``log_tail`` is the end of the
    log as text.
    """

    pod: PodObservation | None = None
    events: Sequence[EventNote] = ()
    since: datetime | None = None
    claims: Sequence[ClaimObservation] = ()
    wanted_claims: Sequence[str] = ()
    error: KubeError | None = None
    log_tail: str = ""
    waited_s: float = 0.0
    start_timeout_s: float = 600.0
    cluster_silent_s: float = 0.0
    cluster_silent_after_s: float = 60.0
    namespace_terminating: bool = False
    image: str = ""

    @cached_property
    def recent(self) -> tuple[EventNote, ...]:
        """The events that are about this start and this pod, in order of time."""
        uid = self.pod.uid if self.pod is not None else ""
        return tuple(
            note
            for note in self.events
            if (self.since is None or note.time >= self.since.replace(microsecond=0))
            and (not uid or note.object_kind != "Pod" or note.object_uid in ("", uid))
        )

    def said(self, *reasons: str) -> EventNote | None:
        """The latest event with one of the reasons."""
        return next((note for note in reversed(self.recent) if note.reason in reasons), None)

    def pod_refused(self) -> str:
        """What was said when the pod itself could not be made; empty once there is one."""
        last = self.said("FailedCreate", "SuccessfulCreate") if self.pod is None else None
        return last.message if last is not None and last.reason == "FailedCreate" else ""

    def warnings(self) -> tuple[str, ...]:
        """The last few warnings' own texts, newest last."""
        return tuple(excerpt(note.message) for note in self.recent if note.warning)[-_EVIDENCE:]


Rule = Callable[[Context], Finding | None]


def ended_container(context: Context) -> ContainerObservation | None:
    """How the main container ended last: now, or before its present restart."""
    main = context.pod.main if context.pod is not None else None
    if main is None:
        return None
    return main if main.state == "terminated" else main.previous


def restarts(pod: PodObservation) -> int:
    """How often the main container was started again."""
    return pod.main.restarts if pod.main is not None else 0


def error_text(error: KubeError | None) -> tuple[str, ...]:
    """The refusal as evidence."""
    return (error.message,) if error is not None else ()


def excerpt(text: str) -> str:
    """A text short enough for a page."""
    return text[:_EVIDENCE_LENGTH]


def strip(*texts: str) -> tuple[str, ...]:
    """The texts that say something, each once, as evidence."""
    return tuple(dict.fromkeys(excerpt(text.strip()) for text in texts if text.strip()))


def lines(text: str) -> tuple[str, ...]:
    """The last lines that say something: a traceback's end tells more than its beginning."""
    return tuple(excerpt(row.rstrip()) for row in text.splitlines() if row.strip())[-_EVIDENCE:]
