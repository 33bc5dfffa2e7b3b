"""What pods tell of attempts that go forward, stored for all of them at once and without a look of their own.

An attempt has one pod in its life, so that nothing a watch says of it, however late, is about another one.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from uuid import UUID

from django.db import transaction

from apps.core import actors
from apps.core.states import IllegalStep
from apps.core.transitions import Step, transition_many
from apps.flows import pods, selectors, waiting
from apps.flows.models import Attempt, Run
from apps.flows.states import AttemptState, RunState
from kubekit.diagnose import Context, diagnose
from kubekit.observe import AttemptObservation

log = logging.getLogger(__name__)
WATCHER = actors.system("watcher")


def take_in(cluster_id: UUID, told: Mapping[UUID, AttemptObservation]) -> set[UUID]:
    """Store that pods are on their way and that programs have begun; the ids of those that need no worker's look."""
    known = selectors.attempts_of(told) if told else {}
    settled: set[UUID] = set()
    steps: dict[UUID, tuple[Step, Step]] = {}
    nodes = pods.nodes_of(known.values())
    for pk, attempt in known.items():
        seen = told[pk]
        if not _is_its_own(attempt, cluster_id, seen):
            continue
        if seen.started and attempt.state == AttemptState.QUEUED:
            steps[pk] = _begun(attempt, seen, nodes[pk].timeout_s)
        elif seen.started:
            if attempt.state == AttemptState.RUNNING and not attempt.reason_code:
                settled.add(pk)
        elif attempt.state == AttemptState.QUEUED and diagnose(Context(pod=seen.pod)) is None:
            if attempt.reason_code == waiting.ON_ITS_WAY.code:
                settled.add(pk)
            else:
                steps[pk] = _on_its_way()
    return settled | _move({pk: known[pk] for pk in steps}, steps)


def _is_its_own(attempt: Attempt, cluster_id: UUID, seen: AttemptObservation) -> bool:
    here = attempt.queue.cluster_id == cluster_id and attempt.ending is None
    return here and attempt.pod_name == seen.pod.name and attempt.pod_uid in ("", seen.pod.uid)


def _begun(attempt: Attempt, seen: AttemptObservation, timeout_s: int) -> tuple[Step, Step]:
    of_run, of_attempt = waiting.running_values(attempt, seen, timeout_s=timeout_s)
    return Step(to=RunState.RUNNING, values=of_run), Step(to=AttemptState.RUNNING, values=of_attempt)


def _on_its_way() -> tuple[Step, Step]:
    return (
        Step(to=RunState.QUEUED, reason=waiting.ON_ITS_WAY),
        Step(to=AttemptState.QUEUED, reason=waiting.ON_ITS_WAY),
    )


def _move(attempts: Mapping[UUID, Attempt], steps: Mapping[UUID, tuple[Step, Step]]) -> set[UUID]:
    """Each run and its attempt, in one transaction; the ids of the attempts that are as told by then.

    Rows that another transaction holds are left out: a worker looks at those.
    """
    if not steps:
        return set()
    by_run = {attempt.run_id: pk for pk, attempt in attempts.items()}
    met: set[UUID] = set()
    done: set[UUID] = set()

    def plan_run(run: Run) -> Step | None:
        step = steps[by_run[run.pk]][0]
        met.add(run.pk)
        if run.state not in {RunState.QUEUED, step.to}:
            return None
        return Step(to=step.to, reason=step.reason, values={} if run.started_at else step.values)

    def plan_attempt(attempt: Attempt) -> Step | None:
        if attempt.run_id not in met or attempt.state != AttemptState.QUEUED or attempt.ending is not None:
            return None
        done.add(attempt.pk)
        return steps[attempt.pk][1]

    try:
        with transaction.atomic():
            transition_many(Run, by_run, plan_run, actor=WATCHER, joins=("flow", "queue"), skip_locked=True)
            transition_many(Attempt, steps, plan_attempt, actor=WATCHER, joins=("queue",), skip_locked=True)
    except IllegalStep:
        log.exception("what a watch said of %d attempts is looked at one by one", len(steps))
        return set()
    return done
