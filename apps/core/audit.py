"""The audit log's one writer. Call it inside the transaction that makes the change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from apps.core.actors import Actor
from apps.core.models import AuditEntry, Record


def record(*, actor: Actor, verb: str, obj: Record, detail: Mapping[str, Any] | None = None) -> AuditEntry:
    """Write who did ``verb`` (``instance.start``, ``queue.quota`` ...) to ``obj``; ``detail`` holds no secret."""
    made = entry(actor=actor, verb=verb, obj=obj, detail=detail)
    made.save(force_insert=True)
    return made


def entry(*, actor: Actor, verb: str, obj: Record, detail: Mapping[str, Any] | None = None) -> AuditEntry:
    """The same, not written yet: for ``apps.core.bulk``, which writes many at once."""
    return AuditEntry(
        actor_id=actor.user_id,
        actor_name=actor.name,
        token_id=actor.token_id,
        address=actor.address,
        verb=verb,
        object_kind=obj._meta.model_name or "",
        object_id=obj.pk,
        object_name=str(getattr(obj, "name", "") or "")[:200],
        detail=dict(detail or {}),
        **obj.audit_scope(),
    )


def history(obj: Record, *, limit: int = 100) -> list[AuditEntry]:
    """The object's own entries, newest first; whoever may see the object may see them."""
    return list(
        AuditEntry.objects.as_system()
        .filter(object_kind=obj._meta.model_name, object_id=obj.pk)
        .order_by("-at", "-pk")[:limit]
    )
