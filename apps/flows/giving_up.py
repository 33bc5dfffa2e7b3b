"""Flows of a cluster that was lost: nothing of them fires any more, and how their last attempts ended is not known."""

from __future__ import annotations

from uuid import UUID

from django.utils import timezone
from django.utils.translation import ngettext

from apps.clusters.abandoning import Part, give_up
from apps.core.actors import Actor
from apps.core.reasons import Reason
from apps.core.transitions import transition
from apps.flows import pods
from apps.flows.models import Attempt, Flow, Run, Schedule
from apps.flows.states import ATTEMPT_ALIVE, AttemptState, FlowState, RunState
from apps.tenants import ledger

_ALIVE = (RunState.QUEUED, RunState.RUNNING, RunState.CANCELLING)


def _end(cluster_pk: UUID, actor: Actor, reason: Reason) -> None:
    """In the order of every other writer: schedules, flows, runs, attempts."""
    schedules = Schedule.objects.as_system().filter(flow__queue__cluster_id=cluster_pk)
    list(schedules.select_for_update(of=("self",)).order_by("pk").values_list("pk"))
    schedules.update(next_fire_at=None)
    flows = Flow.objects.as_system().select_for_update(of=("self",)).filter(queue__cluster_id=cluster_pk)
    for flow in flows.exclude(state=FlowState.DELETED).select_related("queue").order_by("pk"):
        transition(flow, FlowState.DELETED, actor=actor, reason=reason, verb="flow.abandon")
    now = timezone.now()
    runs = Run.objects.as_system().select_for_update(of=("self",)).filter(queue__cluster_id=cluster_pk)
    for run in runs.filter(state__in=_ALIVE).select_related("queue", "flow").order_by("pk"):
        cancelled = run.state == RunState.CANCELLING
        for attempt in Attempt.objects.as_system().filter(run=run, state__in=ATTEMPT_ALIVE).select_related("queue"):
            give_up(
                attempt, AttemptState.LOST, actor=actor, reason=reason, verb="attempt.abandon",
                values={"finished_at": now, "log_complete": True},
            )  # fmt: skip
            ledger.release(kind=pods.KIND, object_id=attempt.pk)
        ended = RunState.CANCELLED if cancelled else RunState.FAILED
        transition(run, ended, actor=actor, reason=reason, verb="run.abandon", values={"finished_at": now})


def _lost(cluster_pk: UUID) -> list[str]:
    flows = Flow.objects.as_system().filter(queue__cluster_id=cluster_pk).exclude(state=FlowState.DELETED).count()
    runs = Run.objects.as_system().filter(queue__cluster_id=cluster_pk, state__in=_ALIVE).count()
    said = [ngettext("%(count)d flow", "%(count)d flows", flows) % {"count": flows}] if flows else []
    if runs:
        text = ngettext("%(count)d run that has not ended", "%(count)d runs that have not ended", runs)
        said.append(text % {"count": runs})
    return said


PART = Part(order=10, end=_end, lost=_lost)
