"""Reads of this app, with what their callers show or need already joined."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from django.db.models import Min, OuterRef, QuerySet, Subquery

from apps.core.actors import Actor
from apps.flows.models import Attempt, Flow, Run, Schedule
from apps.flows.states import AttemptState, FlowState

LAST_RUNS = 10


def flows(actor: Actor) -> QuerySet[Flow]:
    """The living flows that the actor sees, each with ``next_fire_at``."""
    soonest = (
        Schedule.objects.as_system()
        .filter(flow=OuterRef("pk"))
        .order_by()
        .values("flow")
        .annotate(at=Min("next_fire_at"))
        .values("at")
    )
    return (
        Flow.objects.for_actor(actor)
        .exclude(state=FlowState.DELETED)
        .select_related("queue", "queue__cluster", "owner", "version")
        .annotate(next_fire_at=Subquery(soonest))
    )


def any_flow(actor: Actor) -> QuerySet[Flow]:
    """Deleted ones too: a run's page leads to its flow."""
    return Flow.objects.for_actor(actor).select_related("queue", "queue__cluster", "owner", "version")


def runs(actor: Actor) -> QuerySet[Run]:
    """The runs that the actor sees."""
    return Run.objects.for_actor(actor).select_related("flow", "flow__owner", "queue", "version", "starter")


def attempts(actor: Actor) -> QuerySet[Attempt]:
    """The attempts that the actor sees."""
    return Attempt.objects.for_actor(actor).select_related(
        "run", "run__flow", "run__version", "queue", "queue__cluster"
    )


def attempt(pk: UUID) -> Attempt | None:
    """One attempt with all that its reconciler needs."""
    rows = Attempt.objects.as_system().select_related("run", "run__flow", "run__version", "queue", "queue__cluster")
    return rows.filter(pk=pk).first()


def last_runs(flow_ids: Iterable[UUID], *, limit: int = LAST_RUNS) -> dict[UUID, list[Run]]:
    """The newest runs of each flow, oldest first, in one statement."""
    ids = list(flow_ids)
    found: dict[UUID, list[Run]] = {pk: [] for pk in ids}
    if not ids:
        return found
    newest: Any = Run.objects.as_system().filter(flow=OuterRef("flow_id")).order_by("-created_at").values("pk")[:limit]
    rows = Run.objects.as_system().filter(flow__in=ids, pk__in=newest).order_by("created_at")
    for run in rows.only("pk", "flow_id", "state", "scheduled_at", "created_at", "started_at", "finished_at"):
        found[run.flow_id].append(run)
    return found


def to_collect(cluster_id: UUID | None = None) -> list[UUID]:
    """Attempts whose program runs and whose log is not complete."""
    rows = Attempt.objects.as_system().filter(state=AttemptState.RUNNING, log_complete=False)
    if cluster_id is not None:
        rows = rows.filter(queue__cluster_id=cluster_id)
    return list(rows.values_list("pk", flat=True))


def waiting_in_queue(queue_id: UUID, *, limit: int = 20) -> list[UUID]:
    """The attempts that wait for room in a queue, the longest waiting first."""
    rows = Attempt.objects.as_system().filter(queue_id=queue_id, state=AttemptState.QUEUED, pod_name="")
    return list(rows.exclude(reason_code="").order_by("created_at").values_list("pk", flat=True)[:limit])
