"""Who holds a queue's room: the open lines of its ledger with the objects behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.apps import apps

from apps.core import links
from apps.core.actors import Actor
from apps.tenants import amounts
from apps.tenants.ledger import PODS, VOLUMES, Amount
from apps.tenants.models import Queue, Reservation

LIMIT = 200


@dataclass(frozen=True, kw_only=True)
class Holder:
    """A line: ``name`` and ``url`` are empty when the reader may not know the object."""

    kind: str
    kind_name: str
    name: str
    url: str
    owner: str
    amounts: Sequence[str]
    since: Any


def of(queue: Queue, actor: Actor) -> list[Holder]:
    """The newest `LIMIT` open lines; one more statement for each kind among them."""
    lines = (
        Reservation.objects.as_system().filter(queue=queue, released_at__isnull=True).order_by("-created_at")[:LIMIT]
    )
    rows: list[Reservation] = list(lines)
    ids: dict[str, list[UUID]] = {}
    for row in rows:
        ids.setdefault(row.kind, []).append(row.object_id)
    known: dict[UUID, Any] = {}
    for kind, pks in ids.items():
        known |= _visible(kind, pks, actor)
    return [_holder(row, known.get(row.object_id)) for row in rows]


def _visible(kind: str, pks: list[UUID], actor: Actor) -> Mapping[UUID, Any]:
    model: Any = next((model for model in apps.get_models() if model._meta.model_name == kind), None)
    if model is None or not hasattr(model.objects, "for_actor"):
        return {}
    rows = model.objects.for_actor(actor).filter(pk__in=pks)
    if any(field.name == "owner" for field in model._meta.get_fields()):
        rows = rows.select_related("owner")
    return {row.pk: row for row in rows}


def _holder(row: Reservation, obj: Any) -> Holder:
    amount = Amount(
        cpu_millis=row.cpu_millis, memory_bytes=row.memory_bytes, gpus=row.gpus, storage_bytes=row.storage_bytes
    )
    counted = {name: count for name, count in amount.by_resource().items() if name not in {VOLUMES, PODS}}
    owner = getattr(obj, "owner", None)
    return Holder(
        kind=row.kind,
        kind_name=links.kind_name(row.kind),
        name=str(getattr(obj, "name", "") or "") if obj is not None else "",
        url=links.address(row.kind, row.object_id) if obj is not None else "",
        owner=owner.username if owner is not None else "",
        amounts=[amounts.show(name, count) for name, count in counted.items() if count],
        since=row.created_at,
    )
