"""The one writer of every state."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from apps.core import audit, bulk, live
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
        _keep_related(obj, row)
        if expect is not None and row.state not in expect:
            _copy(row, obj)
            return False
        before = row.state
        fields = _take_step(row, Step(to=to, reason=reason, values=values or {}))
        if not fields:
            _copy(row, obj)
            return True
        row.save(update_fields=[*fields, "updated_at"])
        if before != to:
            audit.record(actor=actor, verb=verb or _verb(row), obj=row, detail=_detail(row, before))
            for hook in _hooks.get(row.TABLE.kind, ()):
                hook(row, before, to)
        live.announce(row)
        _copy(row, obj)
    return True


@dataclass(frozen=True, kw_only=True)
class Step:
    """Where one row of many goes: the same as the arguments of ``transition``.

    ``unless_poked`` are columns that are written only while nobody has asked for another look at the row: its
    ``due_at`` is not past.
    """

    to: str
    reason: Reason | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    unless_poked: Mapping[str, Any] = field(default_factory=dict)


def transition_many(
    model: Any,
    pks: Iterable[UUID],
    plan: Callable[[Any], Step | None],
    *,
    actor: Actor,
    joins: Collection[str] = (),
    skip_locked: bool = False,
) -> None:
    """Move many rows of one model, each as ``transition`` moves one, in two statements whatever their number.

    ``plan(row)`` is called with each locked row (``joins`` are read with it) and answers its step, or None to leave
    it; it must be pure, since it runs inside the transaction. With ``skip_locked`` rows that another transaction holds
    are left out instead of waited for. There is no claim: what this may write is what a watch may, whoever has the row.

    Raises ``IllegalStep`` and writes nothing when the table lacks one of the steps.
    """
    with transaction.atomic():
        locked = model.objects.as_system().select_for_update(of=("self",), skip_locked=skip_locked)
        written, entries = [], []
        names: set[str] = set()
        moved: list[tuple[Any, str]] = []
        for row in locked.select_related(*joins).filter(pk__in=list(pks)).order_by("pk"):
            step = plan(row)
            if step is None:
                continue
            before = row.state
            fields = _take_step(row, step)
            if not fields:
                continue
            names.update(fields)
            written.append(row)
            if before != row.state:
                moved.append((row, before))
                entries.append(audit.entry(actor=actor, verb=_verb(row), obj=row, detail=_detail(row, before)))
        if written:
            bulk.write(model, written, sorted(names), entries)
            for row, before in moved:
                for hook in _hooks.get(row.TABLE.kind, ()):
                    hook(row, before, row.state)
            live.announce_many(written)


def _take_step(row: Any, step: Step) -> list[str]:
    """Change the locked row in memory; the names of the columns that differ. Raises ``IllegalStep``."""
    before, before_reason = row.state, (row.reason_code, row.reason_params, row.reason_evidence)
    if not row.TABLE.allows(before, step.to):
        raise IllegalStep(f"{row.TABLE.kind}: {before} -> {step.to}")
    row.set_reason(step.reason)
    moved = before != step.to
    changed = moved or before_reason != (row.reason_code, row.reason_params, row.reason_evidence)
    fields = ["state", "reason_code", "reason_params", "reason_evidence"] if changed else []
    values = dict(step.values)
    if step.unless_poked and (row.due_at is None or row.due_at > timezone.now()):
        values |= step.unless_poked
    for name, value in values.items():
        if getattr(row, name) != value:
            setattr(row, name, value)
            fields.append(name)
    if moved:
        row.state, row.state_since = step.to, timezone.now()
        fields.append("state_since")
    return fields


def _verb(row: Any) -> str:
    return f"{row.TABLE.kind}.{row.state}"


def _detail(row: Any, before: str) -> dict[str, Any]:
    return {"from": before, "to": row.state, "reason": row.reason_code, "params": row.reason_params}


def _keep_related(obj: Any, row: Any) -> None:
    """What ``obj`` has loaded of what audit and listeners are told by, if ``row`` still refers to it."""
    for name in row.scope_through:
        field = row._meta.get_field(name)
        if field.is_cached(obj) and getattr(obj, field.attname) == getattr(row, field.attname):
            field.set_cached_value(row, field.get_cached_value(obj))


def _copy(row: Any, obj: Any) -> None:
    for column in row._meta.concrete_fields:
        setattr(obj, column.attname, getattr(row, column.attname))
