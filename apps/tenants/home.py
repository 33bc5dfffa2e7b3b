"""What tenants give to the pages of the base: the sign-in check, the queue switcher, quota on the home page."""

from __future__ import annotations

from collections.abc import Sequence

from apps.core import nav, signing_in
from apps.core.actors import Actor
from apps.tenants import passwords
from apps.tenants.models import Queue
from apps.tenants.states import QueueState


def register() -> None:
    """Called once, when the app is ready."""
    signing_in.register(passwords.sign_in)
    nav.register_queues(_choices)


def _choices(actor: Actor) -> Sequence[nav.QueueChoice]:
    queues = Queue.objects.for_actor(actor).exclude(state=QueueState.DELETED).select_related("team").order_by("name")
    return [nav.QueueChoice(name=queue.name, detail=queue.team.name) for queue in queues[:200]]
