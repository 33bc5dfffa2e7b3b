"""Reads of instances."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from uuid import UUID

from django.db.models import Prefetch, Q, QuerySet

from apps.clusters import events
from apps.core import refs
from apps.core.actors import Actor
from apps.core.errors import NotFound
from apps.core.listing import ListSpec
from apps.instances.models import Instance, InstanceMount
from apps.instances.states import ALIVE, LAUNCHED, Desired, InstanceState
from apps.tenants.models import Queue
from kubekit.specs import HOME_PATH

JOINS = ("queue__cluster", "queue__team", "owner", "image", "size", "home")
SHOWN = (*JOINS, "lifetime")


def _mounted() -> Prefetch[Any]:
    rows = InstanceMount.objects.as_system().select_related("volume").order_by("path")
    return Prefetch("mounts", queryset=rows, to_attr="mounted")


def visible(actor: Actor) -> QuerySet[Instance]:
    """The instances that the actor may know of, with what pages and API show; deleted ones are left out."""
    return Instance.objects.for_actor(actor).filter(state__in=ALIVE).select_related(*SHOWN)


def visible_with_mounts(actor: Actor) -> QuerySet[Instance]:
    """The same with the mounted volumes, in one statement more."""
    return visible(actor).prefetch_related(_mounted())


def visible_ever(actor: Actor) -> QuerySet[Instance]:
    """The same with deleted ones, whose pages still tell their history."""
    return Instance.objects.for_actor(actor).select_related(*SHOWN)


def for_reconcile(pk: UUID) -> Instance | None:
    """One instance with all that a specification needs."""
    rows = Instance.objects.as_system().select_related(*JOINS).prefetch_related(_mounted())
    return rows.filter(pk=pk).first()


def mine_alive(actor: Actor, *, limit: int = 8) -> list[Instance]:
    """One's own instances, the running ones first."""
    rows = visible(actor).filter(owner_id=actor.user_id)
    order = {InstanceState.RUNNING: 0, InstanceState.STARTING: 1, InstanceState.QUEUED: 2, InstanceState.FAILED: 3}
    found = rows.order_by("-state_since")[: 5 * limit]
    return sorted(found, key=lambda instance: order.get(InstanceState(instance.state), 9))[:limit]


def has_any(actor: Actor) -> bool:
    """Whether this person ever made one."""
    return Instance.objects.as_system().filter(owner_id=actor.user_id).exists()


def has_been_ready(actor: Actor) -> bool:
    """Whether an instance of this person was ever ready to enter."""
    ready = Q(ready_at__isnull=False) | Q(stages__has_key="ready")
    return Instance.objects.as_system().filter(ready, owner_id=actor.user_id).exists()


def zone_of(actor: Actor) -> str:
    """The time zone of what this person made last; empty for none, and for whoever has made nothing yet."""
    mine = Instance.objects.as_system().filter(owner_id=actor.user_id).order_by("-created_at")
    found = mine.values_list("options__time_zone", flat=True).first()
    return found if isinstance(found, str) else ""


def mounting(volume_id: UUID) -> list[tuple[Instance, str, bool]]:
    """The instances that mount a volume, with path and read-only."""
    alive = Instance.objects.as_system().filter(state__in=ALIVE)
    homes = [(instance, HOME_PATH, False) for instance in alive.filter(home_id=volume_id).order_by("name")]
    mounts = InstanceMount.objects.as_system().filter(volume_id=volume_id, instance__state__in=ALIVE)
    return homes + [(mount.instance, mount.path, mount.read_only) for mount in mounts.select_related("instance")]


def alive_ids(ids: Collection[UUID]) -> set[UUID]:
    """Those among the ids that have a live row."""
    return set(Instance.objects.as_system().filter(pk__in=ids, state__in=ALIVE).values_list("pk", flat=True))


def names_in(queue_id: UUID) -> list[str]:
    """The names of the instances that live in a queue."""
    alive = Instance.objects.as_system().filter(queue_id=queue_id, state__in=ALIVE)
    return list(alive.order_by("name").values_list("name", flat=True))


def running_of(user_ids: Collection[UUID], queue_ids: Collection[UUID] | None = None) -> QuerySet[Instance]:
    """What these people have running, or want to run again, in these queues (None: in all)."""
    wanted = Q(state__in=LAUNCHED) | Q(state=InstanceState.STOPPING, desired=Desired.RUNNING)
    rows = Instance.objects.as_system().filter(wanted, owner_id__in=user_ids)
    rows = rows if queue_ids is None else rows.filter(queue_id__in=queue_ids)
    return rows.select_related("queue").order_by("pk")


def on_cluster(cluster_id: UUID, *, states: Collection[InstanceState]) -> QuerySet[Instance]:
    """The instances of one cluster in some states, for what concerns all of them."""
    return Instance.objects.as_system().filter(queue__cluster_id=cluster_id, state__in=states)


def named(actor: Actor, text: str) -> Instance:
    """An instance by id, by ``queue/NAME``, or by ``NAME`` alone, which means one's own. Raises ``NotFound``."""
    rows = visible(actor)
    try:
        found = rows.filter(pk=UUID(text)).first()
    except ValueError:
        queue, slash, name = text.rpartition("/")
        here = Q(queue__name=queue) if slash else Q(owner_id=actor.user_id)
        found = rows.filter(here, name=name).first()
    if found is None:
        raise NotFound()
    return found


def events_in(queue: Queue, actor: Actor) -> list[events.Row]:
    """What the cluster said of the instances in a queue, in one statement."""
    told = Instance.objects.for_actor(actor).filter(queue=queue).exclude(last_events=[]).order_by("-updated_at")
    return [
        row
        for instance in told[: events.MOST_SHOWN]
        for row in events.shown(instance.last_events, about=instance.name, url=instance.get_absolute_url())
    ]


LIST = ListSpec(
    filters={
        "state": lambda text: Q(state__in=text.split(",")),
        "queue": lambda text: refs.named(text, "queue"),
        "owner": lambda text: Q(owner__username=text),
        "text": lambda text: Q(name__icontains=text) | Q(image__name__icontains=text),
    },
    sorts={
        "name": "name",
        "created": "created_at",
        "state": "state",
        "owner": "owner__username",
        "queue": "queue__name",
    },
    default_sort="-created",
)
