"""The one writer of every state."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from django.db import transaction
from django.utils import timezone

from apps.core import audit, live
from apps.core.actors import Actor
from apps.core.claims import Claim, ClaimLost
from apps.core.reasons import Reason
from apps.core.states import IllegalStep

R = TypeVar("R", bound=Any)
Hook = Callable[[Any, str, str], None]
_hooks: dict[str, list[Hook]] = {}


def on_transition(kind: str, hook: Hook) -> None:
    """Call ``hook(obj, before, after)`` inside the transaction of each change of this kind's state."""
    _hooks.setdefault(kind, []).append(hook)


def transition(
    obj: R,
    to: str,
    *,
    actor: Actor,
    reason: Reason | None = None,
    claim: Claim | None = None,
    expect: Collection[str] | None = None,
    values: Mapping[str, Any] | None = None,
    verb: str | None = None,
) -> bool:
    """Move ``obj`` to state ``to``: lock, check, write, audit, announce, in one transaction.

    ``expect`` guards against stale decisions: when the locked row is in none of these states nothing is
    written and the answer is False. ``claim`` fences late workers (raises ``ClaimLost``). ``values`` are
    other columns that change with the state. Staying in the state with the same reason writes only the
    ``values`` that differ and no audit row. ``obj`` is refreshed from what was written.

    Raises ``IllegalStep`` when the table has no such step.
    """
    model = type(obj)
    with transaction.atomic():
        row: Any = model.objects.as_system().select_for_update(of=("self",)).get(pk=obj.pk)
        if claim is not None and row.claim_token != claim.token:
            raise ClaimLost(f"{model.__name__} {row.pk}")
        if expect is not None and row.state not in expect:
            _copy(row, obj)
            return False
        before, before_reason = row.state, (row.reason_code, row.reason_params, row.reason_evidence)
        if not row.TABLE.allows(before, to):
            raise IllegalStep(f"{row.TABLE.kind}: {before} -> {to}")
        row.set_reason(reason)
        moved = before != to
        changed = moved or before_reason != (row.reason_code, row.reason_params, row.reason_evidence)
        fields = ["state", "reason_code", "reason_params", "reason_evidence"] if changed else []
        for name, value in (values or {}).items():
            if getattr(row, name) != value:
                setattr(row, name, value)
                fields.append(name)
        if not fields:
            _copy(row, obj)
            return True
        if moved:
            row.state, row.state_since = to, timezone.now()
            fields.append("state_since")
        row.save(update_fields=[*fields, "updated_at"])
        if moved:
            audit.record(
                actor=actor,
                verb=verb or f"{row.TABLE.kind}.{to}",
                obj=row,
                detail={"from": before, "to": to, "reason": row.reason_code, "params": row.reason_params},
            )
            for hook in _hooks.get(row.TABLE.kind, ()):
                hook(row, before, to)
        live.announce(row)
        _copy(row, obj)
    return True


def _copy(row: Any, obj: Any) -> None:
    for field in row._meta.concrete_fields:
        setattr(obj, field.attname, getattr(row, field.attname))
