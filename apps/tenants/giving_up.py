"""Queues of a cluster that was lost: they end without their namespaces, and nothing holds quota in them."""

from __future__ import annotations

from uuid import UUID

from django.utils.translation import ngettext

from apps.clusters.abandoning import Part, give_up
from apps.core.actors import Actor
from apps.core.reasons import Reason
from apps.tenants import ledger
from apps.tenants.models import Queue, Reservation
from apps.tenants.states import QueueState


def _end(cluster_pk: UUID, actor: Actor, reason: Reason) -> None:
    rows = Queue.objects.as_system().select_for_update(of=("self",)).filter(cluster_id=cluster_pk)
    for queue in rows.exclude(state=QueueState.DELETED).order_by("pk"):
        held = Reservation.objects.as_system().filter(queue_id=queue.pk, released_at__isnull=True)
        for kind, object_id in held.values_list("kind", "object_id").distinct():
            ledger.release(kind=kind, object_id=object_id)
        give_up(queue, QueueState.DELETING, QueueState.DELETED, actor=actor, reason=reason, verb="queue.abandon")


def _lost(cluster_pk: UUID) -> list[str]:
    count = Queue.objects.as_system().filter(cluster_id=cluster_pk).exclude(state=QueueState.DELETED).count()
    return [ngettext("%(count)d queue", "%(count)d queues", count) % {"count": count}] if count else []


PART = Part(order=40, end=_end, lost=_lost)
