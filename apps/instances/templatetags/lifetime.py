"""``{% lifetime object as life %}``: how long the instance runs, what the reader may say about it, what it holds."""

from __future__ import annotations

from dataclasses import dataclass

from django import template
from django.template import Context

from apps.core.actors import Actor
from apps.instances.lifetime import shown
from apps.instances.lifetime.shown import Held, Shown
from apps.instances.models import Instance
from apps.instances.states import LAUNCHED
from apps.tenants import access
from apps.tenants.lifetimes import Policies

register = template.Library()


@dataclass(frozen=True, kw_only=True)
class Life:
    """``shown`` and, when nothing runs, ``held``; ``may_act``: the reader may keep it or set its end."""

    shown: Shown
    may_act: bool
    launched: bool
    held: Held | None


@register.simple_tag(takes_context=True)
def lifetime(context: Context, instance: Instance) -> Life:
    """Read once for a page, however many of its parts ask."""
    known: Life | None = getattr(instance, "life", None)
    if known is None:
        actor: Actor = context["request"].actor
        known = Life(
            shown=shown.of(instance, Policies().of(instance.queue.team_id)),
            may_act=access.may_act_on(actor, instance.queue, instance.owner_id),
            launched=instance.state in LAUNCHED,
            held=Held.by(instance) if instance.at_rest and instance.state not in LAUNCHED else None,
        )
        instance.life = known  # type: ignore[attr-defined]
    return known
