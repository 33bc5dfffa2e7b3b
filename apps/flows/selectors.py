"""Reads of this app, with what their callers show or need already joined."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import Min, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce, JSONObject
from django.utils.translation import gettext as _

from apps.clusters import events
from apps.core import refs
from apps.core.actors import Actor
from apps.core.listing import ListSpec
from apps.flows.models import Attempt, Flow, Run, Schedule
from apps.flows.states import AttemptState, FlowState
from apps.tenants.models import Queue

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


def with_last_runs(rows: QuerySet[Flow]) -> QuerySet[Flow]:
    """With ``last``: ids and states of the newest runs, newest first, in the same statement."""
    newest = (
        Run.objects.as_system()
        .filter(flow=OuterRef("pk"))
        .order_by("-created_at")
        .annotate(cell=JSONObject(id="pk", state="state", at=Coalesce("scheduled_at", "created_at")))
        .values("cell")[:LAST_RUNS]
    )
    return rows.annotate(last=ArraySubquery(newest))


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


def attempts_of(ids: Iterable[UUID]) -> dict[UUID, Attempt]:
    """The same for many, in one statement."""
    rows = Attempt.objects.as_system().select_related("run", "run__flow", "run__version", "queue", "queue__cluster")
    return {row.pk: row for row in rows.filter(pk__in=list(ids))}


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


def attempts_of_latest(actor: Actor, *, runs: int = LAST_RUNS, **where: Any) -> QuerySet[Attempt]:
    """The attempts of the newest runs ``where`` (``flow=…``, ``queue=…``), the newest first; one statement."""
    newest: Any = Run.objects.for_actor(actor).filter(**where).order_by("-created_at").values("pk")[:runs]
    rows = Attempt.objects.for_actor(actor).filter(run__in=newest).select_related("run", "run__flow")
    return rows.order_by("-run__created_at", "-number")


def events_of_run(attempts: Iterable[Attempt]) -> list[events.Row]:
    """What the cluster said of one run's pods; each line leads to its attempt."""
    return events.newest(
        row
        for attempt in attempts
        for row in events.shown(
            attempt.last_events,
            about=_("Attempt %(number)d") % {"number": attempt.number},
            url=attempt.get_absolute_url(),
        )
    )


def events_of_flow(actor: Actor, flow: Flow) -> list[events.Row]:
    """What the cluster said of the latest runs of a flow, in one statement."""
    return _events_of_runs(attempts_of_latest(actor, flow=flow))


def _events_of_runs(attempts: Iterable[Attempt]) -> list[events.Row]:
    return events.newest(
        row
        for attempt in attempts
        for row in events.shown(
            attempt.last_events,
            about=_("%(run)s, attempt %(number)d") % {"run": attempt.run.name, "number": attempt.number},
            url=attempt.run.get_absolute_url(),
        )
    )


def events_in(queue: Queue, actor: Actor) -> list[events.Row]:
    """What the cluster said of the latest runs in a queue, in one statement."""
    return _events_of_runs(attempts_of_latest(actor, runs=events.MOST_SHOWN, queue=queue))


def alive_in(queue_id: UUID) -> QuerySet[Flow]:
    """The flows of a queue that can still fire or run."""
    return Flow.objects.as_system().filter(queue_id=queue_id).exclude(state=FlowState.DELETED).order_by("name")


def free_name(queue_id: UUID, wanted: str) -> str:
    """The name if the queue has it free, else with the first number from 2 on that makes it so: ``train-2``."""
    taken = set(alive_in(queue_id).filter(name__startswith=wanted[:50]).values_list("name", flat=True))
    numbered = (f"{wanted[:50]}-{number}" for number in itertools.count(2))
    return next(name for name in itertools.chain((wanted,), numbered) if name not in taken)


def mounting(volume_id: UUID) -> list[tuple[Flow, str, bool]]:
    """The living flows whose present version mounts a volume, with path and read-only."""
    wanted = str(volume_id)
    rows = Flow.objects.as_system().filter(queue__volumes=volume_id).exclude(state=FlowState.DELETED)
    found = []
    for flow in rows.select_related("version").order_by("name"):
        if flow.version is None:
            continue
        for node in flow.version.document["nodes"]:
            ids = flow.version.resolved.get(node["name"], {}).get("volumes", ())
            entries = zip(ids, node.get("volumes", ()), strict=True)
            found += [(flow, entry["path"], bool(entry.get("read_only"))) for pk, entry in entries if pk == wanted]
    return found


def to_collect() -> list[UUID]:
    """Attempts whose program runs and whose log is not complete."""
    rows = Attempt.objects.as_system().filter(state=AttemptState.RUNNING, log_complete=False)
    return list(rows.values_list("pk", flat=True))


def waiting_in_queue(queue_id: UUID, *, limit: int = 20) -> list[UUID]:
    """The attempts that wait for room in a queue, the longest waiting first."""
    rows = Attempt.objects.as_system().filter(queue_id=queue_id, state=AttemptState.QUEUED, pod_name="")
    return list(rows.exclude(reason_code="").order_by("created_at").values_list("pk", flat=True)[:limit])


def by_id(column: str, text: str) -> Q:
    """A filter by id alone; what is no id matches nothing."""
    try:
        return Q(**{f"{column}_id": UUID(text)})
    except ValueError:
        return Q(pk__in=[])


FLOW_LIST = ListSpec(
    filters={
        "state": lambda text: Q(state__in=text.split(",")),
        "queue": lambda text: refs.named(text, "queue"),
        "owner": lambda text: Q(owner__username=text),
        "name": lambda text: Q(name=text),
        "text": lambda text: Q(name__icontains=text),
    },
    sorts={
        "name": "name",
        "created": "created_at",
        "state": "state",
        "owner": "owner__username",
        "queue": "queue__name",
    },
    default_sort="name",
)
RUN_LIST = ListSpec(
    filters={
        "state": lambda text: Q(state__in=text.split(",")),
        "flow": lambda text: refs.named(text, "flow"),
        "queue": lambda text: refs.named(text, "queue"),
        "trigger": lambda text: Q(trigger=text),
        "text": lambda text: Q(flow__name__icontains=text),
    },
    sorts={"created": "created_at", "state": "state", "flow": "flow__name", "queue": "queue__name"},
    default_sort="-created",
)
ATTEMPT_LIST = ListSpec(
    filters={
        "run": lambda text: by_id("run", text),
        "state": lambda text: Q(state__in=text.split(",")),
    },
    sorts={"created": "created_at", "number": "number"},
    default_sort="created",
)
