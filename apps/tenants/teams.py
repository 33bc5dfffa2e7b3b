"""Services for teams and their members."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID, uuid4

from django.db import IntegrityError, transaction
from django.utils.translation import gettext as _

from apps.clusters.services import require_admin
from apps.core import audit, live, names
from apps.core.actors import Actor
from apps.core.errors import Conflict, Forbidden, Invalid
from apps.tenants import departures
from apps.tenants.models import Membership, Queue, Role, Team, User
from apps.tenants.states import QueueState

MAX_LINES = 1000
_SEPARATOR = re.compile(r"[,;\t ]+")


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of a pasted list: who, as what, or what is wrong with it."""

    number: int
    name: str
    role: str = Role.MEMBER
    error: str = ""


def create(
    *,
    actor: Actor,
    id: UUID | None = None,  # noqa: A002 - the field's name in the API
    name: str,
    description: str = "",
) -> Team:
    """A new team without members; platform administrators only."""
    require_admin(actor)
    name = names.check(name)
    pk = id or uuid4()
    same = Team.objects.as_system().filter(pk=pk)
    known: Team | None = same.first()
    if known is not None:
        return known
    try:
        with transaction.atomic():
            team: Team = Team.objects.create(pk=pk, name=name, description=description[:300])
            audit.record(actor=actor, verb="team.create", obj=team)
            live.announce(team)
    except IntegrityError as error:
        again: Team | None = same.first()
        if again is not None:  # the same request twice in one instant
            return again
        raise _taken(name) from error
    return team


def update(*, actor: Actor, team: Team, name: str | None = None, description: str | None = None) -> None:
    """Rename or describe the team; its administrators may."""
    require_team_admin(actor, team)
    changes: dict[str, str] = {}
    if name is not None and name != team.name:
        changes["name"] = names.check(name)
    if description is not None and description != team.description:
        changes["description"] = description[:300]
    if not changes:
        return
    try:
        with transaction.atomic():
            Team.objects.as_system().filter(pk=team.pk).update(**changes)
            audit.record(actor=actor, verb="team.update", obj=team, detail=changes)
    except IntegrityError as error:
        raise _taken(changes.get("name", team.name)) from error
    team.refresh_from_db()


def delete(*, actor: Actor, team: Team) -> None:
    """Remove a team that has no queue any more."""
    require_admin(actor)
    with transaction.atomic():
        queues = Queue.objects.as_system().select_for_update(of=("self",)).filter(team=team)
        alive = [queue.name for queue in queues if queue.state != QueueState.DELETED]
        if alive:
            raise Conflict(
                _("The team “%(team)s” still has queues: %(queues)s.")
                % {"team": team.name, "queues": ", ".join(alive[:5])},
                code="team_has_queues",
                next=_("Delete these queues first."),
            )
        if queues:
            raise Conflict(
                _("The team “%(team)s” once had queues, and what they used is kept under its name.")
                % {"team": team.name},
                code="team_has_history",
                next=_("Take its members out instead."),
            )
        audit.record(actor=actor, verb="team.delete", obj=team)
        team.delete()


def add_members(*, actor: Actor, team: Team, text: str) -> int:
    """Add people from a pasted list, one a line: ``name`` or ``name role``. Changes roles of those who are in.

    All or nothing: raises `Invalid` with every wrong line. Answers how many memberships were made or changed.
    """
    require_team_admin(actor, team)
    lines = parse(text)
    known = {
        user.username: user for user in User.objects.as_system().filter(username__in={line.name for line in lines})
    }
    wrong = [line for line in lines if line.error or line.name not in known]
    if wrong or not lines:
        raise _bad_lines(wrong)
    changed = 0
    with transaction.atomic():
        for line in lines:
            changed += _put(actor, team, known[line.name], line.role)
    return changed


def set_role(*, actor: Actor, team: Team, user: User, role: str) -> None:
    """Add one person, or change their role."""
    require_team_admin(actor, team)
    if role not in Role.values:
        text = _("A role is one of: %(roles)s.") % {"roles": ", ".join(Role.values)}
        raise Invalid(text, code="role_invalid", errors={"role": text})
    with transaction.atomic():
        _put(actor, team, user, role)


def remove_member(*, actor: Actor, team: Team, user: User) -> None:
    """Take somebody out. Their instances in the team's queues are stopped, so that no key of theirs opens anything.

    What they own there stays: its data, and their tasks, are the team's administrators' to deal with.
    """
    if actor.user_id != user.pk:
        require_team_admin(actor, team)
    with transaction.atomic():
        gone, _by_model = Membership.objects.as_system().filter(team=team, user=user).delete()
        if gone:
            audit.record(actor=actor, verb="team.member.remove", obj=team, detail={"user": user.username})
            live.announce(team)
            if not user.is_platform_admin:
                departures.end(user_id=user.pk, queue_ids=departures.queues_of_team(team.pk), actor=actor)


def is_team_admin(actor: Actor, team: Team) -> bool:
    """Platform administrators, and members with that role."""
    mine = Membership.objects.as_system().filter(team=team, user_id=actor.user_id, role=Role.ADMIN)
    return actor.is_admin or bool(mine.exists())


def require_team_admin(actor: Actor, team: Team) -> None:
    """Raise `Forbidden` unless `is_team_admin`."""
    if not is_team_admin(actor, team):
        raise Forbidden(
            _("Only an administrator of the team may do this."),
            code="role_too_low",
            next=_("Ask an administrator of the team “%(team)s”.") % {"team": team.name},
        )


def parse(text: str) -> list[Line]:
    """Pure: the lines of a pasted list. Empty lines and lines that begin with ``#`` say nothing."""
    found: list[Line] = []
    seen: set[str] = set()
    for number, row in enumerate(text.splitlines(), 1):
        words = [word for word in _SEPARATOR.split(row.strip()) if word]
        if not words or words[0].startswith("#"):
            continue
        name, role, *rest = [*words, Role.MEMBER] if len(words) == 1 else words
        error = ""
        if rest:
            error = _("more than a name and a role")
        elif role.lower() not in Role.values:
            error = _("“%(role)s” is not a role; one of %(roles)s") % {"role": role, "roles": ", ".join(Role.values)}
        elif name in seen:
            error = _("“%(name)s” is in the list twice") % {"name": name}
        seen.add(name)
        found.append(Line(number=number, name=name, role=role.lower(), error=error))
    if len(found) > MAX_LINES:
        return [Line(number=MAX_LINES + 1, name="", error=_("at most %(max)d at once") % {"max": MAX_LINES})]
    return found


def _put(actor: Actor, team: Team, user: User, role: str) -> int:
    memberships = Membership.objects.as_system()
    row, made = memberships.get_or_create(team=team, user=user, defaults={"role": role})
    if not made and row.role == role:
        return 0
    detail = {"user": user.username, "role": [None if made else row.role, role]}
    if not made:
        memberships.filter(pk=row.pk).update(role=role)
    audit.record(actor=actor, verb="team.member.add" if made else "team.member.role", obj=team, detail=detail)
    live.announce(team)
    return 1


def _bad_lines(lines: Sequence[Line]) -> Invalid:
    told = [
        _("Line %(number)d: %(error)s.")
        % {
            "number": line.number,
            "error": line.error or _("there is no user named “%(name)s”") % {"name": line.name},
        }
        for line in lines
    ] or [_("The list is empty.")]
    return Invalid(
        _("The list has lines that cannot be used; nobody was added."),
        code="members_invalid",
        next=_("Correct these lines: one name a line, with a role behind it if it is not “member”."),
        errors={"members": " ".join(told[:20])},
        data={"lines": [{"line": line.number, "name": line.name} for line in lines]},
    )


def _taken(name: str) -> Conflict:
    return Conflict(
        _("There is a team named “%(name)s” already.") % {"name": name},
        code="name_taken",
        next=_("Choose another name."),
        errors={"name": _("taken")},
    )
