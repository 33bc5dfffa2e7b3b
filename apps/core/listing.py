"""Lists that pages and API share: filters, sort and a cursor, with the same number of SQL statements at any size.

The cursor holds the sort value and id of the last row (keyset paging), so that page 1,000 costs what
page 1 costs and rows that appear meanwhile shift nothing.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.core.exceptions import ValidationError
from django.db.models import Q, QuerySet
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext_lazy as _

from apps.core.errors import Invalid

DEFAULT_LIMIT = 50
MAX_LIMIT = 200
Filter = Callable[[str], Q]


@dataclass(frozen=True, kw_only=True)
class ListSpec:
    """What a list can do: ``filters`` by query name, ``sorts`` by query name -> column (never nullable).

    ``default_sort`` is a sort name, with ``-`` in front for descending.
    """

    filters: Mapping[str, Filter] = field(default_factory=dict)
    sorts: Mapping[str, str] = field(default_factory=lambda: {"created": "created_at", "name": "name"})
    default_sort: str = "-created"


@dataclass(frozen=True, kw_only=True)
class Page:
    """Some rows and how to get the next ones; ``active`` are the filters in force, for the filter bar."""

    items: Sequence[Any]
    next: str | None
    sort: str
    active: Mapping[str, str]
    limit: int


def page(rows: QuerySet[Any], spec: ListSpec, query: Mapping[str, str]) -> Page:
    """Apply filters, sort and cursor from the query string. Raises ``Invalid`` for what it cannot read."""
    active = {name: value for name in spec.filters if (value := query.get(name, "").strip())}
    for name, value in active.items():
        if "\0" in value:  # PostgreSQL takes no text with it
            raise Invalid(
                _("The filter “%(name)s” cannot be read.") % {"name": name},
                code="filter_invalid",
                errors={name: _("unreadable")},
            )
        rows = rows.filter(spec.filters[name](value))
    sort = query.get("sort") or spec.default_sort
    column = spec.sorts.get(sort.lstrip("-"))
    if column is None:
        raise Invalid(
            _("This list cannot be sorted by “%(sort)s”.") % {"sort": sort},
            code="sort_unknown",
            next=_("Choose one of: %(names)s.") % {"names": ", ".join(spec.sorts)},
            errors={"sort": _("unknown")},
        )
    limit = _limit(query.get("limit"))
    down = sort.startswith("-")
    if query.get("cursor"):
        rows = rows.filter(_beyond(rows, query["cursor"], column, "lt" if down else "gt"))
    sign = "-" if down else ""
    found = list(rows.order_by(f"{sign}{column}", f"{sign}pk")[: limit + 1])
    more = len(found) > limit
    found = found[:limit]
    return Page(
        items=found,
        next=_encode(_value(found[-1], column), found[-1].pk) if more else None,
        sort=sort,
        active=active,
        limit=limit,
    )


def refuse_unknown(spec: ListSpec, query: Mapping[str, str]) -> None:
    """Raise ``Invalid`` for a filter that is none: with a typing error a program would be told of all rows."""
    known = [*spec.filters, "sort", "limit", "cursor"]
    unknown = {name: _("This filter is not known.") for name in query if name not in known}
    if unknown:
        raise Invalid(
            _("This list has no such filter."),
            code="filter_unknown",
            next=_("Leave it out, or choose from: %(names)s.") % {"names": ", ".join(known)},
            errors=unknown,
        )


def _value(row: Any, column: str) -> Any:
    for part in column.split("__"):
        row = getattr(row, part)
    return row


def _limit(text: str | None) -> int:
    if not text:
        return DEFAULT_LIMIT
    if not text.isascii() or not text.isdigit() or len(text) > len(str(MAX_LIMIT)) or not 1 <= int(text) <= MAX_LIMIT:
        raise Invalid(
            _("The limit must be a number from 1 to %(max)d.") % {"max": MAX_LIMIT},
            code="limit_invalid",
            errors={"limit": _("out of range")},
        )
    return int(text)


def _encode(value: Any, pk: Any) -> str:
    raw = value.isoformat() if isinstance(value, datetime) else value
    return base64.urlsafe_b64encode(json.dumps([isinstance(value, datetime), raw, str(pk)]).encode()).decode()


def _beyond(rows: QuerySet[Any], cursor: str, column: str, beyond: str) -> Q:
    """The rows after the cursor's. Raises ``Invalid`` for a cursor that no list of this sort gave out."""
    try:
        is_time, value, pk = json.loads(base64.urlsafe_b64decode(cursor.encode()))
        value = parse_datetime(value) if is_time else value
        if "\0" in str(value):
            raise ValueError("a zero byte")
        found = Q(**{f"{column}__{beyond}": value}) | Q(**{column: value, f"pk__{beyond}": str(pk)})
        rows.filter(found)  # checks the values against the columns, and asks nothing
    except (ValueError, TypeError, RecursionError, binascii.Error, ValidationError) as error:
        raise Invalid(
            _("The cursor of this list cannot be read."),
            code="cursor_invalid",
            next=_("Start again from the first page."),
            errors={"cursor": _("unreadable")},
        ) from error
    return found
