"""Who may do what in a queue. Visibility is each model's ``visible_to``; this is about acting."""

from __future__ import annotations

from functools import cached_property
from uuid import UUID

from django.db import connection
from django.utils.translation import gettext_lazy as _

from apps.core.actors import Actor
from apps.core.errors import Forbidden
from apps.tenants.models import Membership, Queue, Role, User

RANK = {Role.VIEWER: 0, Role.MEMBER: 1, Role.ADMIN: 2}


def role_in(actor: Actor, queue: Queue) -> Role | None:
    """The actor's role in the queue's team; platform administrators count as team administrators."""
    if actor.is_admin:
        return Role.ADMIN
    found = (
        Membership.objects.as_system()
        .filter(team_id=queue.team_id, user_id=actor.user_id)
        .values_list("role", flat=True)
        .first()
    )
    return Role(found) if found else None


def may(actor: Actor, queue: Queue, role: Role) -> bool:
    """True when the actor has at least this role in the queue."""
    have = role_in(actor, queue)
    return have is not None and RANK[have] >= RANK[role]


def require(actor: Actor, queue: Queue, role: Role = Role.MEMBER) -> None:
    """Raise ``Forbidden`` unless the actor has at least ``role`` in the queue."""
    require_role(role_in(actor, queue), queue, role)


def require_role(have: Role | None, queue: Queue, role: Role = Role.MEMBER) -> None:
    """The same for a role that is known, such as the one that `hold` found."""
    if have is None or RANK[have] < RANK[role]:
        raise Forbidden(
            _("Your role in the team of the queue “%(queue)s” does not allow this.") % {"queue": queue.name},
            code="role_too_low",
            next=_("Ask an administrator of the team for the role “%(role)s”.") % {"role": Role(role).label},
        )


_HOLD = """
WITH person AS (SELECT is_platform_admin FROM {user} WHERE id = %(person)s AND is_active FOR SHARE),
     mine AS (SELECT role FROM {membership} WHERE team_id = %(team)s AND user_id = %(person)s FOR SHARE)
SELECT (SELECT is_platform_admin FROM person), (SELECT role FROM mine)
"""


def hold(actor: Actor, queue: Queue) -> Role | None:
    """Keep the actor's rights in the queue as they are until the transaction ends; call it before anything is locked.

    Whoever takes such a right away ends what it was used for (`departures`), and waits here: so that either finds what
    the other did. Those who use the same right at once do not wait for each other. Answers the role, to be looked at
    after this. Raises ``Forbidden`` when the person may do less than a moment ago.
    """
    if actor.user_id is None:
        return role_in(actor, queue)
    text = _HOLD.format(user=User._meta.db_table, membership=Membership._meta.db_table)
    with connection.cursor() as cursor:
        cursor.execute(text, {"person": actor.user_id, "team": queue.team_id})
        is_platform_admin, role = cursor.fetchone()
    if is_platform_admin is None or (actor.is_admin and not is_platform_admin):
        raise Forbidden(
            _("Your rights were changed just now."),
            code="rights_changed",
            next=_("Reload the page to see what you may do."),
        )
    if actor.is_admin:
        return Role.ADMIN
    return Role(role) if role else None


def may_act_on(actor: Actor, queue: Queue, owner_id: object) -> bool:
    """Owners act on what is theirs (as members), team administrators on everything of the team."""
    return may(actor, queue, Role.MEMBER if owner_id == actor.user_id else Role.ADMIN)


class Acting:
    """``may`` and ``may_act_on`` for many objects, with one statement for all of them."""

    def __init__(self, actor: Actor) -> None:
        self.actor = actor

    @cached_property
    def _roles(self) -> dict[UUID, Role]:
        rows = Membership.objects.as_system().filter(user_id=self.actor.user_id).values_list("team_id", "role")
        return {team_id: Role(role) for team_id, role in rows}

    @property
    def anywhere(self) -> bool:
        """Whether the actor is more than a viewer in any team."""
        return self.actor.is_admin or any(RANK[role] >= RANK[Role.MEMBER] for role in self._roles.values())

    def may(self, queue: Queue, role: Role = Role.MEMBER) -> bool:
        """`may` of this module."""
        if self.actor.is_admin:
            return True
        have = self._roles.get(queue.team_id)
        return have is not None and RANK[have] >= RANK[role]

    def on(self, queue: Queue, owner_id: object) -> bool:
        """Whether the actor may act on what ``owner_id`` has in the queue."""
        return self.may(queue, Role.MEMBER if owner_id == self.actor.user_id else Role.ADMIN)


def require_act_on(actor: Actor, queue: Queue, owner_id: object) -> None:
    """Raise ``Forbidden`` unless ``may_act_on``."""
    require_act_with(role_in(actor, queue), actor, owner_id)


def require_act_with(have: Role | None, actor: Actor, owner_id: object) -> None:
    """The same for a role that is known, such as the one that `hold` found."""
    needed = Role.MEMBER if owner_id == actor.user_id else Role.ADMIN
    if have is None or RANK[have] < RANK[needed]:
        raise Forbidden(
            _("Only its owner or an administrator of the team may do this."),
            code="not_owner",
            next=_("Ask the owner, or an administrator of the team."),
        )
