"""What tenants give to the pages of the base: the sign-in check, the queue switcher, quota on the home page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from apps.core import home, nav, signing_in
from apps.core.actors import Actor
from apps.core.home import Look, Panel
from apps.tenants import ledger, passwords, selectors
from apps.tenants.models import Queue
from apps.tenants.states import QueueState

SHOWN = 3


def register() -> None:
    """Called once, when the app is ready."""
    signing_in.register(passwords.sign_in)
    nav.register_queues(_choices)
    home.register(
        Panel(
            name="quota",
            template="tenants/panel_quota.html",
            context=_quota,
            order=100,
            side=True,
            live="queue instance volume run",
        )
    )


def _choices(actor: Actor) -> Sequence[nav.QueueChoice]:
    queues = selectors.usable_queues(actor)[:200]
    return [nav.QueueChoice(name=queue.name, detail=queue.team.name) for queue in queues]


def _quota(actor: Actor, look: Look) -> dict[str, Any]:
    queues = Queue.objects.for_actor(actor).filter(state__in=(QueueState.READY, QueueState.FAILED))
    if not actor.is_admin or not look.queue:
        queues = queues.filter(team__memberships__user=actor.user_id)
    if look.queue:
        queues = queues.filter(name=look.queue)
    found = list(queues.order_by("name")[:SHOWN])
    usages = ledger.usages(found)
    return {"queues": [{"queue": queue, "usage": usages[queue.pk]} for queue in found], "empty": not found}
