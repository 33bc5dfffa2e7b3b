"""Filters that the lists of everything in queues share."""

from __future__ import annotations

from django.utils.translation import gettext as _

from apps.core.actors import Actor
from apps.core.pages import Choice, FilterField
from apps.tenants import selectors


def by_queue(actor: Actor) -> FilterField:
    """One of the queues in which the actor may work, by name."""
    names = selectors.usable_queues(actor).values_list("name", flat=True)
    return FilterField(name="queue", label=_("Queue"), choices=[Choice(value=name, label=name) for name in names])


def by_owner(actor: Actor) -> FilterField:
    """One's own."""
    return FilterField(name="owner", label=_("Owner"), choices=[Choice(value=actor.name, label=_("mine"))])
