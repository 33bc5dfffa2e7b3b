"""What the lists and forms of everything in queues share."""

from __future__ import annotations

from django.utils.functional import cached_property
from django.utils.translation import gettext as _

from apps.core.actors import Actor
from apps.core.errors import Forbidden
from apps.core.pages import Choice, FilterField, ListPage
from apps.tenants import selectors
from apps.tenants.access import Acting
from apps.tenants.models import Queue


class QueuedList(ListPage):
    """A list of what lives in queues: who is a mere viewer everywhere is offered nothing to make."""

    @cached_property
    def acting(self) -> Acting:
        """The person's roles, in one statement for the whole page (none for administrators)."""
        return Acting(self.actor)

    def may_make(self) -> bool:
        return self.acting.anywhere


def by_queue(actor: Actor) -> FilterField:
    """One of the queues that the actor sees, by name."""
    names = selectors.usable_queues(actor).values_list("name", flat=True)
    return FilterField(name="queue", label=_("Queue"), choices=[Choice(value=name, label=name) for name in names])


def by_owner(actor: Actor) -> FilterField:
    """One's own."""
    return FilterField(name="owner", label=_("Owner"), choices=[Choice(value=actor.name, label=_("mine"))])


def to_work_in(actor: Actor) -> list[Queue]:
    """The queues that a form for something new offers. Raises ``Forbidden`` before anybody types in vain."""
    found = list(selectors.work_queues(actor))
    if not found:
        raise Forbidden(
            _("There is no queue in which you may make something."),
            code="no_queue",
            next=_("Ask an administrator of your team for a queue, or for the role of a member in the team."),
        )
    return found
