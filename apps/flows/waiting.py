"""What an attempt waits for, told at the attempt and at its run alike; and the moment when it runs."""

from __future__ import annotations

from datetime import timedelta
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
WATCHER = actors.system("watcher")
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


def note_on_its_way(attempt: Attempt) -> None:
    """Its pod is there and waits for nothing but its turn, as a watch tells; a worker looks if that is all it tells."""
    if attempt.reason_code == ON_ITS_WAY.code:
        return
    with transaction.atomic():
        expect = {AttemptState.QUEUED}
        transition(attempt.run, RunState.QUEUED, actor=WATCHER, reason=ON_ITS_WAY, expect={RunState.QUEUED})
        transition(attempt, AttemptState.QUEUED, actor=WATCHER, reason=ON_ITS_WAY, expect=expect)


def note_running(attempt: Attempt, claim: Claim | None, seen: AttemptObservation, *, timeout_s: int) -> None:
    """The program runs: the attempt and the run say so, with the deadline stored. A watch has no claim."""
    started_at = seen.started_at or timezone.now()
    deadline_at = started_at + timedelta(seconds=timeout_s)
    with transaction.atomic():
        run = attempt.run
        values = {} if run.started_at else {"started_at": started_at}
        transition(run, RunState.RUNNING, actor=RECONCILER, expect={RunState.QUEUED, RunState.RUNNING}, values=values)
        transition(
            attempt,
            AttemptState.RUNNING,
            actor=RECONCILER,
            claim=claim,
            expect={AttemptState.QUEUED},
            values={
                "started_at": started_at,
                "deadline_at": deadline_at,
                "pod_uid": seen.pod.uid,
                "due_at": min(deadline_at, timezone.now() + timedelta(seconds=WATCHED_S)),
            },
        )
