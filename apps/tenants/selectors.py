"""What people may read of teams, people and queues, joined for lists."""

from __future__ import annotations

from collections.abc import Sequence

from django.conf import settings
from django.db.models import Count, Q, QuerySet
from django.db.models.functions import Lower

from apps.core.actors import Actor
from apps.core.listing import ListSpec
from apps.core.refs import named
from apps.tenants.models import ApiToken, Membership, Queue, Role, SshKey, Team, User
from apps.tenants.states import QueueState

QUEUE_LIST = ListSpec(
    filters={
        "team": lambda text: named(text, "team"),
        "cluster": lambda text: named(text, "cluster"),
        "state": lambda text: Q(state=text),
        "name": lambda text: Q(name__icontains=text),
    },
    sorts={"name": "name", "created": "created_at", "team": "team__name"},
    default_sort="name",
)
TEAM_LIST = ListSpec(
    filters={"name": lambda text: Q(name__icontains=text)},
    sorts={"name": "name", "created": "created_at"},
    default_sort="name",
)
USER_LIST = ListSpec(
    filters={
        "name": lambda text: Q(username__icontains=text),
        "active": lambda text: Q(is_active=text == "yes"),
        "admin": lambda text: Q(is_platform_admin=text == "yes"),
    },
    sorts={"name": "username", "created": "date_joined"},
    default_sort="name",
)


def queues(actor: Actor) -> QuerySet[Queue]:
    """Living queues of the actor's teams."""
    rows: QuerySet[Queue] = Queue.objects.for_actor(actor)
    return rows.exclude(state=QueueState.DELETED).select_related("team", "cluster")


def queues_ever(actor: Actor) -> QuerySet[Queue]:
    """The same with deleted ones, whose pages still tell why they ended."""
    rows: QuerySet[Queue] = Queue.objects.for_actor(actor)
    return rows.select_related("team", "cluster")


def usable_queues(actor: Actor) -> QuerySet[Queue]:
    """The queues of the actor's teams that are not going away, by name."""
    return queues(actor).exclude(state=QueueState.DELETING).order_by("name")


def work_queues(actor: Actor) -> QuerySet[Queue]:
    """Those among them in which the actor may make things, being more than a viewer there."""
    rows = usable_queues(actor)
    if actor.is_admin:
        return rows
    makers = (Role.MEMBER, Role.ADMIN)
    return rows.filter(team__memberships__user=actor.user_id, team__memberships__role__in=makers)


def teams(actor: Actor) -> QuerySet[Team]:
    """The actor's teams with how many members and living queues they have."""
    rows: QuerySet[Team] = Team.objects.for_actor(actor)
    return rows.annotate(
        member_count=Count("memberships", distinct=True),
        queue_count=Count("queues", filter=~Q(queues__state=QueueState.DELETED), distinct=True),
    )


def members(team: Team) -> QuerySet[Membership]:
    """The team's members by name; for whoever may see the team."""
    rows: QuerySet[Membership] = Membership.objects.as_system().filter(team=team)
    return rows.select_related("user").order_by("user__username")


def users(actor: Actor) -> QuerySet[User]:
    """Everybody for administrators, one's team mates for others."""
    return User.objects.for_actor(actor)


def language_of(person: User) -> str:
    """The language in which the portal writes to somebody: the one chosen, else the portal's own."""
    return person.language if person.language in dict(settings.LANGUAGES) else settings.LANGUAGE_CODE


def administrators() -> QuerySet[User]:
    """Platform administrators who may sign in."""
    rows: QuerySet[User] = User.objects.as_system().filter(is_platform_admin=True, is_active=True)
    return rows.order_by("pk")


def languages_by_mail(addresses: Sequence[str]) -> dict[str, str]:
    """The languages of those addresses that belong to people who chose one; in one statement."""
    wanted = {address.casefold(): address for address in addresses}
    if not wanted:
        return {}
    rows = User.objects.as_system().exclude(language="").annotate(address=Lower("email")).filter(address__in=wanted)
    return {wanted[row.email.casefold()]: language_of(row) for row in rows.only("email", "language")}


def tokens(actor: Actor) -> QuerySet[ApiToken]:
    """The actor's own tokens, newest first."""
    rows: QuerySet[ApiToken] = ApiToken.objects.for_actor(actor)
    return rows.order_by("-created_at")


def ssh_keys(actor: Actor) -> QuerySet[SshKey]:
    """The actor's own public keys, newest first."""
    rows: QuerySet[SshKey] = SshKey.objects.for_actor(actor)
    return rows.order_by("-created_at")
