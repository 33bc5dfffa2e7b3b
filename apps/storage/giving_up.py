"""Volumes of a cluster that was lost: their data is out of reach, and they hold no quota."""

from __future__ import annotations

from uuid import UUID

from django.db.models import Count, Sum
from django.utils.translation import ngettext

from apps.clusters.abandoning import Part, give_up
from apps.core.actors import Actor
from apps.core.quantities import size
from apps.core.reasons import Reason
from apps.storage.models import Volume
from apps.storage.reconcile import KIND
from apps.storage.states import VolumeState
from apps.tenants import ledger


def _end(cluster_pk: UUID, actor: Actor, reason: Reason) -> None:
    rows = Volume.objects.as_system().select_for_update(of=("self",)).filter(queue__cluster_id=cluster_pk)
    for volume in rows.exclude(state=VolumeState.DELETED).select_related("queue").order_by("pk"):
        give_up(volume, VolumeState.DELETING, VolumeState.DELETED, actor=actor, reason=reason, verb="volume.abandon")
        ledger.release(kind=KIND, object_id=volume.pk)


def _lost(cluster_pk: UUID) -> list[str]:
    rows = Volume.objects.as_system().filter(queue__cluster_id=cluster_pk).exclude(state=VolumeState.DELETED)
    found = rows.aggregate(count=Count("pk"), size=Sum("size_bytes"))
    if not found["count"]:
        return []
    text = ngettext(
        "%(count)d volume with all data on it (%(size)s)",
        "%(count)d volumes with all data on them (%(size)s)",
        found["count"],
    )
    return [text % {"count": found["count"], "size": size(found["size"])}]


PART = Part(order=30, end=_end, lost=_lost)
