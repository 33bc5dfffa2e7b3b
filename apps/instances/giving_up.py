"""Instances of a cluster that was lost: whatever runs there, nobody enters it from here any more."""

from __future__ import annotations

from uuid import UUID

from django.utils.translation import ngettext

from apps.clusters.abandoning import Part, give_up
from apps.core.actors import Actor
from apps.core.reasons import Reason
from apps.instances.models import Instance
from apps.instances.spec import KIND
from apps.instances.states import Desired, InstanceState
from apps.tenants import ledger


def _end(cluster_pk: UUID, actor: Actor, reason: Reason) -> None:
    rows = Instance.objects.as_system().select_for_update(of=("self",)).filter(queue__cluster_id=cluster_pk)
    values = {"desired": Desired.DELETED, "key": "", "next_key": "", "start_deadline_at": None, "at_rest": True}
    for instance in rows.exclude(state=InstanceState.DELETED).select_related("queue").order_by("pk"):
        give_up(
            instance, InstanceState.DELETING, InstanceState.DELETED,
            actor=actor, reason=reason, verb="instance.abandon", values=values,
        )  # fmt: skip
        ledger.release(kind=KIND, object_id=instance.pk)


def _lost(cluster_pk: UUID) -> list[str]:
    rows = Instance.objects.as_system().filter(queue__cluster_id=cluster_pk)
    count = rows.exclude(state=InstanceState.DELETED).count()
    return [ngettext("%(count)d instance", "%(count)d instances", count) % {"count": count}] if count else []


PART = Part(order=20, end=_end, lost=_lost)
