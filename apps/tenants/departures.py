"""Somebody loses the right to use queues: what they have running there must not outlive it.

An instance's key and cookies stand outside of the portal's sessions, so a person who was deactivated or taken out of a
team could go on using them. Apps above say here what they end then; tenants knows none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from uuid import UUID

from apps.core.actors import Actor
from apps.tenants.models import Queue

QueueIds = Collection[UUID] | None
"""The queues concerned; None means all of them."""


@dataclass(frozen=True, kw_only=True)
class Departure:
    """What one app has running for people.

    ``end(user_id, queue_ids, actor)`` ends it inside the caller's transaction. ``names(user_ids, queue_ids)`` tells
    beforehand what that would be, by person and as people read it, in one statement.
    """

    end: Callable[[UUID, QueueIds, Actor], None]
    names: Callable[[Collection[UUID], QueueIds], Mapping[UUID, list[str]]]


_registry: list[Departure] = []


def register(departure: Departure) -> None:
    """Add an app's part; called from ``AppConfig.ready``."""
    _registry.append(departure)


def end(*, user_id: UUID, queue_ids: QueueIds, actor: Actor) -> None:
    """End what the person has running in these queues. Call it inside the transaction that takes the right away."""
    for departure in _registry:
        departure.end(user_id, queue_ids, actor)


def names(user_ids: Collection[UUID], queue_ids: QueueIds = None) -> dict[UUID, list[str]]:
    """What `end` would end, by person; people who have nothing running are left out."""
    found: dict[UUID, list[str]] = {}
    for departure in _registry:
        for user_id, texts in departure.names(user_ids, queue_ids).items():
            found.setdefault(user_id, []).extend(texts)
    return found


def queues_of_team(team_id: UUID) -> list[UUID]:
    """The queues that a person loses with a team."""
    return list(Queue.objects.as_system().filter(team_id=team_id).values_list("pk", flat=True))


def queues_of_no_team(user_id: UUID) -> list[UUID]:
    """The queues that a platform administrator loses with that role: those of teams without this person."""
    elsewhere = Queue.objects.as_system().exclude(team__memberships__user_id=user_id)
    return list(elsewhere.values_list("pk", flat=True))
