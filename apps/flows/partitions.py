"""Partitions of the log's table: one a week, made ahead and dropped when all of it is older than the setting."""

from __future__ import annotations

import logging
import re
from datetime import date, datetime, timedelta

from django.db import DatabaseError, connection, transaction
from django.utils import timezone

from apps.flows import limits

log = logging.getLogger(__name__)

TABLE = "flows_logchunk"
WEEKS_AHEAD = 2
_NAME = re.compile(rf"{TABLE}_(\d{{8}})")


def keep_up(now: datetime | None = None) -> int:
    """Make the partitions of this week and the next ones, forget what is too old; how many tables were dropped."""
    today = (now or timezone.now()).date()
    monday = today - timedelta(days=today.weekday())
    for week in range(WEEKS_AHEAD + 1):
        _make(monday + timedelta(weeks=week))
    return _forget(today - timedelta(days=limits.log_days()))


def existing() -> dict[date, str]:
    """The weekly partitions by their Monday."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = %s::regclass", [TABLE])
        names = [row[0] for row in cursor.fetchall()]
    return {
        datetime.strptime(found[1], "%Y%m%d").date(): name  # noqa: DTZ007 - a day, not an instant
        for name in names
        if (found := _NAME.fullmatch(name))
    }


def _make(monday: date) -> None:
    if monday in existing():
        return
    name = f"{TABLE}_{monday:%Y%m%d}"
    bounds = f"FROM ('{monday}') TO ('{monday + timedelta(weeks=1)}')"
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"CREATE TABLE {name} PARTITION OF {TABLE} FOR VALUES {bounds}")
    except DatabaseError as error:
        # Rows of that week lie in the default partition already: they stay there.
        log.info("no partition for the week of %s: %s", monday, error)


def _forget(before: date) -> int:
    dropped = 0
    for monday, name in existing().items():
        if monday + timedelta(weeks=1) <= before:
            with connection.cursor() as cursor:
                cursor.execute(f"DROP TABLE {name}")
            dropped += 1
    with connection.cursor() as cursor:
        cursor.execute(f"DELETE FROM {TABLE}_rest WHERE day < %s", [before])  # noqa: S608 - a constant
    return dropped
