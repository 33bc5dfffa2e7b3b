"""What the app registers with the base and the layers below when Django starts."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from apps.clusters import abandoning, events, watching
from apps.core import reasons, reconciling
from apps.storage import giving_up, reconcile, selectors, wording
from apps.storage.models import Volume
from apps.storage.states import VolumeState
from apps.tenants import events as queue_events
from apps.tenants import uses
from kubekit import names


def _claim_changed(cluster_pk: UUID, event_type: str, raw: dict[str, Any]) -> None:
    pk = _id(raw)
    if pk is not None:
        reconciling.send_hint(reconcile.KIND, pk)


def _claims_listed(cluster_pk: UUID, items: list[dict[str, Any]]) -> None:
    """A living volume whose claim is not in the list lost it while nobody watched."""
    there = {_id(raw) for raw in items}
    alive = Volume.objects.as_system().filter(queue__cluster_id=cluster_pk, state=VolumeState.BOUND)
    for pk in alive.values_list("pk", flat=True):
        if pk not in there:
            reconciling.send_hint(reconcile.KIND, pk)


def _alive(cluster_pk: UUID, pk: UUID) -> Volume | None:
    alive = Volume.objects.as_system().exclude(state=VolumeState.DELETED)
    found: Volume | None = alive.filter(pk=pk, queue__cluster_id=cluster_pk).first()
    return found


def _id(raw: dict[str, Any]) -> UUID | None:
    return names.parse_id(((raw.get("metadata") or {}).get("labels") or {}).get(names.ID))


def _in_queue(queue_id: UUID) -> list[str]:
    alive = Volume.objects.as_system().filter(queue_id=queue_id).exclude(state=VolumeState.DELETED)
    return [f"{Volume._meta.verbose_name} {name}" for name in alive.order_by("name").values_list("name", flat=True)]


def register() -> None:
    """Called once from ``AppConfig.ready``."""
    reasons.register(wording.WORDINGS)
    reconciling.register(reconcile.RECONCILER)
    watching.on_object("persistentvolumeclaims", reconcile.KIND, _claim_changed)
    watching.on_resync("persistentvolumeclaims", reconcile.KIND, _claims_listed)
    watching.on_event(events.keeper(reconcile.KIND, _alive))
    uses.register(_in_queue)
    abandoning.register(giving_up.PART)
    queue_events.register(selectors.events_in)
