"""What flows show on the home page: what failed since the person last looked, what runs next, the last first step."""

from __future__ import annotations

from typing import Any

from django.urls import reverse
from django.utils.translation import gettext as _

from apps.core import home
from apps.core.actors import Actor
from apps.core.home import FirstStep, Look, Panel
from apps.flows.models import Flow, Run, Schedule
from apps.flows.states import FlowState, RunState

SHOWN = 8


def register() -> None:
    """Called once, when the app is ready."""
    home.register(
        Panel(
            name="failed",
            template="flows/panel_failed.html",
            context=_failed,
            order=20,
            live=Run._meta.model_name or "",
        )
    )
    home.register(
        Panel(name="next", template="flows/panel_next.html", context=_next, order=110, side=True, live="run flow")
    )
    home.register_step(30, _first_step)


def _failed(actor: Actor, look: Look) -> dict[str, Any]:
    runs = Run.objects.for_actor(actor).filter(
        flow__owner_id=actor.user_id, state=RunState.FAILED, finished_at__gt=look.since
    )
    if look.queue:
        runs = runs.filter(queue__name=look.queue)
    found = list(runs.select_related("flow", "queue").order_by("-finished_at")[: SHOWN + 1])
    return {"runs": found[:SHOWN], "more": len(found) > SHOWN, "since": look.since, "empty": not found}


def _next(actor: Actor, look: Look) -> dict[str, Any]:
    due = Schedule.objects.for_actor(actor).filter(
        flow__owner_id=actor.user_id, flow__state=FlowState.ACTIVE, next_fire_at__isnull=False
    )
    if look.queue:
        due = due.filter(flow__queue__name=look.queue)
    found = list(due.select_related("flow").order_by("next_fire_at")[:SHOWN])
    return {"schedules": found, "empty": not found}


def _first_step(actor: Actor) -> FirstStep | None:
    return FirstStep(
        title=_("Let a task run by the clock"),
        text=_("A flow runs a command in a container of its own at the times you say, and tells you when it fails."),
        url=reverse("flows:new"),
        button=_("New flow"),
        icon="plus",
        done=Flow.objects.for_actor(actor).filter(owner_id=actor.user_id).exists(),
    )
