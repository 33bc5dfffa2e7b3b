"""What an attempt waits for, told at the attempt and at its run alike; and the moment when it runs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from apps.core import actors, reconciling
from apps.core.claims import Claim
from apps.core.reasons import Reason
from apps.core.transitions import transition
from apps.flows import selectors
from apps.flows.models import Attempt
from apps.flows.states import AttemptState, RunState
from kubekit.observe import AttemptObservation

KIND = "attempt"
RECONCILER = actors.system("reconciler")
ON_ITS_WAY = Reason(code="pod_starting")
#: The watch reports at once; this is when the sweep looks if it does not.
WATCHED_S = 60.0
_OPEN = {AttemptState.QUEUED, AttemptState.RUNNING, AttemptState.CANCELLING}


def note_waiting(attempt: Attempt, claim: Claim, reason: Reason | None) -> None:
    """Keep the state, change the reason. A stop keeps its own reason: it says why the portal ends it."""
    if attempt.state == AttemptState.CANCELLING:
        return
    with transaction.atomic():
        run = attempt.run
        shown = {RunState.QUEUED} if attempt.state == AttemptState.QUEUED else {RunState.RUNNING}
        transition(run, attempt_to_run(attempt), actor=RECONCILER, reason=reason, expect=shown)
        transition(attempt, attempt.state, actor=RECONCILER, reason=reason, claim=claim, expect={attempt.state})


def wake_next(queue_id: UUID) -> None:
    """Room came, or may be left: the attempt that waits longest looks first. Once admitted it wakes the next one, so
    they start in their order; smaller ones behind one that does not fit find their room by themselves.
    """
    for pk in selectors.waiting_in_queue(queue_id, limit=1):
        reconciling.send_hint(KIND, pk)


def attempt_to_run(attempt: Attempt) -> RunState:
    """The run's state that goes with an attempt that has not ended."""
    return RunState.QUEUED if attempt.state == AttemptState.QUEUED else RunState.RUNNING


def running_values(
    attempt: Attempt, seen: AttemptObservation, *, timeout_s: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the run and the attempt note when the program begins: from here its time-out counts, with its end stored."""
    started_at = seen.started_at or timezone.now()
    deadline_at = started_at + timedelta(seconds=timeout_s)
    return {"started_at": started_at}, {
        "started_at": started_at,
        "deadline_at": deadline_at,
        "pod_uid": seen.pod.uid,
        "due_at": min(deadline_at, timezone.now() + timedelta(seconds=WATCHED_S)),
    }


def note_running(attempt: Attempt, claim: Claim, seen: AttemptObservation, *, timeout_s: int) -> None:
    """The program runs: the attempt and the run say so."""
    of_run, of_attempt = running_values(attempt, seen, timeout_s=timeout_s)
    with transaction.atomic():
        run = attempt.run
        values = {} if run.started_at else of_run
        transition(run, RunState.RUNNING, actor=RECONCILER, expect={RunState.QUEUED, RunState.RUNNING}, values=values)
        expect = {AttemptState.QUEUED}
        transition(attempt, AttemptState.RUNNING, actor=RECONCILER, claim=claim, expect=expect, values=of_attempt)
