"""What the app registers with the base when Django starts."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from apps.clusters import abandoning, exposing, leavings, services
from apps.core import control, live, reasons, reconciling
from apps.core.actors import Actor
from apps.tenants import books, drift, giving_up, reconcile, wording
from apps.tenants.models import Queue, Team
from apps.tenants.states import QueueState


def _groups(actor: Actor) -> set[str]:
    """An actor hears of the queues and teams that it may see."""
    rows = Queue.objects.for_actor(actor).values_list("pk").union(Team.objects.for_actor(actor).values_list("pk"))
    return {live.group(pk.hex) for (pk,) in rows}


def _on_cluster(cluster_pk: UUID) -> list[str]:
    alive = Queue.objects.as_system().filter(cluster_id=cluster_pk).exclude(state=QueueState.DELETED)
    return [f"{Queue._meta.verbose_name} {name}" for name in alive.order_by("name").values_list("name", flat=True)]


def _alive(ids: Collection[UUID]) -> set[UUID]:
    """Of some queues those that are not deleted."""
    rows = Queue.objects.as_system().filter(pk__in=ids).exclude(state=QueueState.DELETED)
    return set(rows.values_list("pk", flat=True))


def _write_anew(cluster_pk: UUID) -> None:
    """Have the network policies of a cluster's queues say whom it lets in by now."""
    rows = Queue.objects.as_system().select_for_update(of=("self",)).filter(cluster_id=cluster_pk)
    for queue in rows.exclude(state__in=(QueueState.DELETING, QueueState.DELETED)):
        due = reconciling.look_now(queue)
        Queue.objects.as_system().filter(pk=queue.pk).update(generation=queue.generation + 1, **due)
        reconciling.hint(reconcile.RECONCILER.kind, queue.pk)


def register() -> None:
    """Called once from ``AppConfig.ready``."""
    reasons.register(wording.WORDINGS)
    reconciling.register(reconcile.RECONCILER)
    control.register("books", books.loop)
    live.register_groups(_groups)
    services.register_use(_on_cluster)
    exposing.register_let_in(_write_anew)
    abandoning.register(giving_up.PART)
    leavings.register("queue", _alive)
    control.register("queues", drift.loop)
