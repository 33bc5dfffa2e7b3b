"""What people do with flows: save, pause, resume, delete; run, cancel, run again."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from apps.alerts import signing
from apps.core import audit, crashpoints, live, reconciling, wake
from apps.core.actors import Actor
from apps.core.api import idempotent_id
from apps.core.errors import Conflict, Forbidden
from apps.core.reasons import Reason
from apps.core.transitions import transition
from apps.flows import schedule
from apps.flows.document import FlowDoc, parse, parse_parameters
from apps.flows.models import Attempt, Flow, FlowVersion, Run, Schedule, Trigger
from apps.flows.resolve import find_queue, resolve
from apps.flows.states import AttemptState, FlowState, RunState, StopCause
from apps.tenants import access
from apps.tenants.models import Queue
from apps.tenants.states import QueueState


def create_flow(*, actor: Actor, document: Any, flow_id: UUID | None = None) -> Flow:
    """Save a new flow from its document. The same ``flow_id`` again answers the flow that exists.

    Raises ``Invalid`` (every fault with its place), ``Forbidden``, and ``Conflict`` ``name_taken``.
    """
    doc = parse(document)
    queue = find_queue(actor, doc.queue)
    access.require(actor, queue)
    if actor.user_id is None:
        raise Forbidden(_("A flow needs an owner who is a person."))
    flow_id = flow_id or uuid4()
    mine = Flow.objects.for_actor(actor).filter(pk=flow_id)
    if (before := mine.first()) is not None:
        return before
    full, ids = resolve(doc, actor=actor, queue=queue)
    now = timezone.now()
    try:
        with transaction.atomic():
            _require_queue(queue)
            flow = Flow.objects.create(
                id=flow_id,
                name=full.name,
                queue=queue,
                owner_id=actor.user_id,
                state=FlowState.ACTIVE,
                state_since=now,
                webhook_secret=signing.new_secret(),
            )
            _save_version(flow, full, ids, actor=actor, number=1, now=now)
            audit.record(actor=actor, verb="flow.create", obj=flow, detail={"version": 1})
            live.announce(flow)
    except IntegrityError as error:
        if (before := mine.first()) is not None:  # the same request twice in one instant
            return before
        raise _name_taken(full.name, queue.name) from error
    return flow


def update_flow(*, actor: Actor, flow: Flow, document: Any) -> Flow:
    """Save the next version. Runs that were started keep theirs. The queue of a flow never changes."""
    access.require_act_on(actor, flow.queue, flow.owner_id)
    doc = parse(document)
    queue = find_queue(actor, doc.queue)
    if queue.pk != flow.queue_id:
        raise Conflict(
            _("A flow stays in its queue."),
            code="queue_fixed",
            next=_("Make a new flow in the other queue."),
            errors={"queue": _("This cannot be changed.")},
        )
    full, ids = resolve(doc, actor=actor, queue=queue)
    try:
        with transaction.atomic():
            _lock_schedules(flow)
            row = Flow.objects.as_system().select_for_update(of=("self",)).select_related("queue").get(pk=flow.pk)
            _require_alive(row)
            last = FlowVersion.objects.as_system().filter(flow=row).order_by("-number").first()
            assert last is not None
            if last.document == full.as_json() and last.resolved == ids:
                return row
            row.name = full.name
            row.save(update_fields=["name", "updated_at"])
            _save_version(row, full, ids, actor=actor, number=last.number + 1, now=timezone.now())
            audit.record(actor=actor, verb="flow.update", obj=row, detail={"version": last.number + 1})
            live.announce(row)
    except IntegrityError as error:
        raise _name_taken(full.name, queue.name) from error
    return row


def set_paused(*, actor: Actor, flow: Flow, paused: bool) -> Flow:
    """Pause or resume. A resumed flow fires from now on; nothing is caught up."""
    access.require_act_on(actor, flow.queue, flow.owner_id)
    with transaction.atomic():
        _lock_schedules(flow)
        to = FlowState.PAUSED if paused else FlowState.ACTIVE
        if not transition(flow, to, actor=actor, expect=(FlowState.ACTIVE, FlowState.PAUSED)):
            _require_alive(flow)
        _plan(flow, timezone.now())
    return flow


def delete_flow(*, actor: Actor, flow: Flow) -> Flow:
    """Delete: nothing fires any more, what runs is cancelled; past runs and their logs stay readable."""
    access.require_act_on(actor, flow.queue, flow.owner_id)
    with transaction.atomic():
        _lock_schedules(flow)
        transition(flow, FlowState.DELETED, actor=actor)
        Schedule.objects.as_system().filter(flow=flow).update(next_fire_at=None)
        running = Run.objects.as_system().filter(flow=flow, state__in=(RunState.QUEUED, RunState.RUNNING))
        for run in running.select_related("queue", "flow").order_by("pk"):
            _cancel(run, actor=actor)
    return flow


def rotate_secret(*, actor: Actor, flow: Flow) -> str:
    """A new secret for the flow's webhooks, shown this once; the old one signs nothing any more."""
    access.require_act_on(actor, flow.queue, flow.owner_id)
    secret = signing.new_secret()
    with transaction.atomic():
        _require_alive(flow)
        flow.webhook_secret = secret
        flow.save(update_fields=["webhook_secret", "updated_at"])
        audit.record(actor=actor, verb="flow.rotate-secret", obj=flow)
    return secret


def run_now(
    *,
    actor: Actor,
    flow: Flow,
    parameters: Mapping[str, Any] | None = None,
    run_id: UUID | None = None,
    trigger: Trigger = Trigger.MANUAL,
    rerun_of: Run | None = None,
) -> Run:
    """Start a run of the current version (of the old run's version for a rerun).

    The same ``run_id`` again answers the run that exists, so a repeated request is one run.
    """
    access.require(actor, flow.queue)
    values = parse_parameters(parameters)
    version = rerun_of.version if rerun_of is not None else flow.version
    assert version is not None
    with transaction.atomic():
        row = Flow.objects.as_system().select_for_update(no_key=True, of=("self",)).get(pk=flow.pk)
        if run_id is not None:
            before = Run.objects.for_actor(actor).filter(pk=run_id).first()
            if before is not None:
                return before
        _require_alive(row)
        now = timezone.now()
        run = Run.objects.create(
            id=run_id or uuid4(),
            flow=flow,
            version=version,
            queue=flow.queue,
            trigger=trigger,
            starter_id=actor.user_id,
            rerun_of=rerun_of,
            parameters=values,
            state=RunState.QUEUED,
            state_since=now,
        )
        attempt = first_attempt(run, node=version.document["nodes"][0]["name"], now=now)
        audit.record(actor=actor, verb="run.start", obj=run, detail={"trigger": trigger, "version": version.number})
        live.announce(run)
        live.announce(flow)
        crashpoints.reach("run-inserted")
        transaction.on_commit(lambda: crashpoints.reach("run-committed"))
        reconciling.hint("attempt", attempt.pk)
    return run


def run_id_for(actor: Actor, flow: Flow, key: str | None) -> UUID:
    """The id of a run that a request with this idempotency key makes: another flow with the same key is another run."""
    return idempotent_id(actor, f"run:{flow.pk}", key)


def first_attempt(run: Run, *, node: str, now: datetime) -> Attempt:
    """The first attempt of a node, due at once; inside the transaction that makes the run."""
    return Attempt.objects.create(
        run=run, queue_id=run.queue_id, node=node, number=1, state=AttemptState.QUEUED, state_since=now,
        not_before=now, due_at=now,
    )  # fmt: skip


def rerun(*, actor: Actor, run: Run, run_id: UUID | None = None) -> Run:
    """The same version with the same parameters once more, as a run of its own."""
    if run.state not in run.TABLE.terminal:
        raise Conflict(
            _("The run has not ended yet."), code="run_active", next=_("Wait for its end, or cancel it first.")
        )
    return run_now(
        actor=actor,
        flow=run.flow,
        parameters=run.parameters,
        run_id=run_id,
        trigger=Trigger.RERUN,
        rerun_of=run,
    )


def cancel(*, actor: Actor, run: Run) -> Run:
    """End a run. It is cancelled once its pod is gone; a run that has ended stays as it is."""
    access.require_act_on(actor, run.queue, run.starter_id or run.flow.owner_id)
    with transaction.atomic():
        _cancel(run, actor=actor)
    if run.state in run.TABLE.terminal:
        raise Conflict(_("The run has ended already."), code="run_ended", next=_("Run it again if you need it."))
    return run


def _cancel(run: Run, *, actor: Actor) -> None:
    # The order everywhere is run, then attempt: two writers can never wait for each other.
    reason = Reason(code="cancelled_by", params={"who": actor.name})
    active = (RunState.QUEUED, RunState.RUNNING, RunState.CANCELLING)
    if not transition(run, RunState.CANCELLING, actor=actor, reason=reason, expect=active, verb="run.cancel"):
        return
    transaction.on_commit(lambda: crashpoints.reach("run-cancel-committed"))
    alive = Attempt.objects.as_system().filter(run=run, state__in=(AttemptState.QUEUED, AttemptState.RUNNING))
    for attempt in alive.select_related("queue", "run", "run__flow").select_for_update(of=("self",)):
        transition(
            attempt,
            AttemptState.CANCELLING,
            actor=actor,
            reason=reason,
            expect=(AttemptState.QUEUED, AttemptState.RUNNING),
            values={"stop_cause": StopCause.CANCEL, **reconciling.look_now(attempt)},
        )
        reconciling.hint("attempt", attempt.pk)


def _save_version(
    flow: Flow, doc: FlowDoc, ids: Mapping[str, Any], *, actor: Actor, number: int, now: datetime
) -> FlowVersion:
    version = FlowVersion.objects.create(
        flow=flow, number=number, document=doc.as_json(), resolved=ids, author_id=actor.user_id
    )
    flow.version = version
    flow.save(update_fields=["version", "updated_at"])
    Schedule.objects.as_system().filter(flow=flow).delete()
    Schedule.objects.bulk_create(
        Schedule(
            flow=flow,
            position=position,
            cron=entry.cron,
            timezone=entry.timezone,
            misfire=entry.misfire,
            enabled=entry.enabled,
        )
        for position, entry in enumerate(doc.schedules)
    )
    _plan(flow, now)
    return version


def _plan(flow: Flow, now: datetime) -> None:
    """Write the next fire of each schedule, or none for a flow that is not active; then wake the scheduler."""
    rows = list(Schedule.objects.as_system().filter(flow=flow))
    for row in rows:
        fires = flow.state == FlowState.ACTIVE and row.enabled
        row.next_fire_at = schedule.after(row.cron, row.timezone, now) if fires else None
    Schedule.objects.as_system().bulk_update(rows, ["next_fire_at"])
    wake.notify(wake.SCHEDULE)


def _lock_schedules(flow: Flow) -> None:
    # The tick locks schedules and then, by its foreign key, the flow: take them in the same order.
    list(Schedule.objects.as_system().select_for_update().filter(flow=flow).order_by("pk").values_list("pk"))


def _require_queue(queue: Queue) -> None:
    """Hold the queue until the transaction ends: its deletion counts the flows in it under the same lock."""
    row = Queue.objects.as_system().select_for_update(of=("self",)).get(pk=queue.pk)
    if row.state in {QueueState.DELETING, QueueState.DELETED}:
        raise Conflict(
            _("The queue “%(queue)s” is being deleted.") % {"queue": queue.name},
            code="queue_deleted",
            next=_("Choose another queue."),
            errors={"queue": _("This queue is being deleted.")},
        )


def _require_alive(flow: Flow) -> None:
    if flow.state == FlowState.DELETED:
        raise Conflict(_("The flow was deleted."), code="flow_deleted", next=_("Make a new flow."))


def _name_taken(name: str, queue: str) -> Conflict:
    return Conflict(
        _("There is a flow “%(name)s” in the queue “%(queue)s” already.") % {"name": name, "queue": queue},
        code="name_taken",
        next=_("Choose another name, or change the flow that exists."),
        errors={"name": _("This name is taken.")},
    )
