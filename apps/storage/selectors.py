"""Volumes that an actor may see, joined for lists."""

from __future__ import annotations

from django.db.models import Q, QuerySet

from apps.clusters import events
from apps.core.actors import Actor
from apps.core.listing import ListSpec
from apps.core.refs import named
from apps.storage.models import Volume
from apps.storage.states import VolumeState
from apps.tenants.models import Queue

VOLUME_LIST = ListSpec(
    filters={
        "queue": lambda text: named(text, "queue"),
        "state": lambda text: Q(state=text),
        "kind": lambda text: Q(kind=text),
        "owner": lambda text: Q(owner__username=text),
        "name": lambda text: Q(name__icontains=text),
    },
    sorts={"name": "name", "created": "created_at", "size": "size_bytes"},
    default_sort="name",
)


def volumes(actor: Actor) -> QuerySet[Volume]:
    """Living volumes: one's own, and the data volumes of one's queues."""
    rows: QuerySet[Volume] = Volume.objects.for_actor(actor)
    return rows.exclude(state=VolumeState.DELETED).select_related("queue__cluster", "owner")


def volumes_ever(actor: Actor) -> QuerySet[Volume]:
    """The same with deleted ones, whose pages still tell why they ended."""
    rows: QuerySet[Volume] = Volume.objects.for_actor(actor)
    return rows.select_related("queue__cluster", "owner")


def events_in(queue: Queue, actor: Actor) -> list[events.Row]:
    """What the cluster said of the volumes in a queue that the actor sees, in one statement."""
    told = Volume.objects.for_actor(actor).filter(queue=queue).exclude(last_events=[]).order_by("-updated_at")
    return [
        row
        for volume in told[: events.MOST_SHOWN]
        for row in events.shown(volume.last_events, about=volume.name, url=volume.get_absolute_url())
    ]
