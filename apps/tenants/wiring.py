"""What the app registers with the base when Django starts."""

from __future__ import annotations

from apps.core import live, reasons, reconciling
from apps.core.actors import Actor
from apps.tenants import reconcile, wording
from apps.tenants.models import Queue


def _groups(actor: Actor) -> set[str]:
    """An actor hears of the queues that it may see."""
    return {live.group(pk.hex) for pk in Queue.objects.for_actor(actor).values_list("pk", flat=True)}


def register() -> None:
    """Called once from ``AppConfig.ready``."""
    reasons.register(wording.WORDINGS)
    reconciling.register(reconcile.RECONCILER)
    live.register_groups(_groups)
