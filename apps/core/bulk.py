"""Many changed rows of one table, and the audit entries that belong to them, in one statement.

Columns travel as arrays (``unnest``), so the statement's text is the same for one row and for five thousand, and each
value is converted by its own field as a save would.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django.db import connection
from django.utils import timezone

from apps.core.models import AuditEntry


def write(model: Any, rows: Sequence[Any], names: Sequence[str], entries: Sequence[AuditEntry] = ()) -> None:
    """Write the columns ``names`` of ``rows``, which the caller has locked, with ``updated_at``; insert ``entries``.

    Every row gets every column, from memory: rows must have been read whole.
    """
    now = timezone.now()
    for row in rows:
        row.updated_at = now
    _run(model, rows, [*names, "updated_at"], *(_insert(entries, now) if entries else ("", [])))


def update(model: Any, rows: Sequence[Any], names: Sequence[str]) -> None:
    """The same for a model that has no ``updated_at``."""
    _run(model, rows, names, "", [])


def _run(model: Any, rows: Sequence[Any], names: Sequence[str], before: str, given: list[Any]) -> None:
    changed = [model._meta.get_field(name) for name in names]
    key = model._meta.pk
    arrays, params = _arrays([key, *changed], rows)
    assignments = ", ".join(f"{_quoted(one.column)} = v.c{number}" for number, one in enumerate(changed, 1))
    text = (
        f"UPDATE {_quoted(model._meta.db_table)} t SET {assignments} "  # noqa: S608 - names of our own columns
        f"FROM unnest({arrays}) AS v({_names(len(changed) + 1)}) WHERE t.{_quoted(key.column)} = v.c0"
    )
    with connection.cursor() as cursor:
        cursor.execute(before + text, [*given, *params])


def _insert(entries: Sequence[AuditEntry], now: Any) -> tuple[str, list[Any]]:
    for entry in entries:
        entry.at = now
    meta = AuditEntry._meta
    fields = [one for one in meta.concrete_fields if not one.primary_key]
    arrays, params = _arrays(fields, entries)
    columns = ", ".join(_quoted(one.column) for one in fields)
    text = (
        f"WITH told AS (INSERT INTO {_quoted(meta.db_table)} ({columns}) "  # noqa: S608 - names of our own columns
        f"SELECT * FROM unnest({arrays}) AS a({_names(len(fields))})) "
    )
    return text, params


def _arrays(fields: Iterable[Any], rows: Sequence[Any]) -> tuple[str, list[Any]]:
    """One typed array a column: the placeholders, and the values as the database takes them."""
    casts, params = [], []
    for one in fields:
        kind = str(one.db_type(connection)).partition("(")[0]  # a cast to varchar(20) would cut without a word
        casts.append(f"%s::{kind}[]")
        params.append([one.get_db_prep_save(getattr(row, one.attname), connection) for row in rows])
    return ", ".join(casts), params


def _names(count: int) -> str:
    return ", ".join(f"c{number}" for number in range(count))


def _quoted(name: str | None) -> str:
    return str(connection.ops.quote_name(str(name)))
