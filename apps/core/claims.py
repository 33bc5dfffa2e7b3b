"""Claims on rows: one worker at a time, a lease, and a token that fences whoever comes late.

The lease is a column, not a lock held open, so that no network call happens inside a transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection, models, transaction
from django.db.models import F, Q
from django.utils import timezone

from apps.core import wake

LEASE = timedelta(seconds=settings.PORTAL_LEASE_S)
"""So long after a worker died with a row, another one takes it up: within a minute the row has recovered.

No shorter than a quarter of itself and one request to a cluster, so that a write that began in time ends in time.
"""


@dataclass(frozen=True)
class Claim:
    """A right to act on one row until the lease ends; ``token`` must still match at each write.

    ``failures`` counts the holders before this one that failed, without one between them that did not.
    """

    pk: UUID
    token: int
    pokes: int
    failures: int = 0


class ClaimLost(Exception):
    """Another worker claimed the row meanwhile; the late one stops without writing."""


_TAKE = """
UPDATE {table} AS row
   SET claim_token = row.claim_token + CASE WHEN seen.free THEN 1 ELSE 0 END,
       claimed_until = CASE WHEN seen.free THEN %(until)s ELSE row.claimed_until END,
       due_at = CASE WHEN seen.free THEN %(now)s ELSE row.due_at END,
       pokes = row.pokes + CASE WHEN seen.free THEN 0 ELSE 1 END
  FROM (SELECT id, claimed_until IS NULL OR claimed_until <= %(now)s AS free
          FROM {table} WHERE id = %(pk)s{only} FOR NO KEY UPDATE) AS seen
 WHERE row.id = seen.id
RETURNING seen.free, row.claim_token, row.pokes, row.failures
"""
_ONLY_DUE = " AND due_at <= %(now)s AND (claimed_until IS NULL OR claimed_until <= %(now)s)"
_RELEASE = """
UPDATE {table}
   SET claimed_until = NULL,
       due_at = CASE WHEN pokes = %(pokes)s THEN %(due_at)s ELSE %(now)s END,
       failures = CASE WHEN %(failed)s THEN failures + 1 ELSE 0 END
 WHERE id = %(pk)s AND claim_token = %(token)s
RETURNING pokes <> %(pokes)s,
          CASE WHEN pokes = %(pokes)s AND %(rings)s THEN pg_notify(%(channel)s, %(at)s)::text END
"""


def take(
    model: type[models.Model],
    pk: UUID,
    *,
    lease: timedelta = LEASE,
    now: datetime | None = None,
    only_due: bool = False,
) -> Claim | None:
    """Claim the row, or return None when it is gone or claimed; then the poke makes the holder look again.

    With ``only_due`` a row that is claimed, or is no longer due because somebody has looked at it, is left as it is.
    One statement, in which the row is locked and judged.
    """
    now = now or timezone.now()
    # Due until the holder says otherwise: should it die, nobody knows any more why it looked.
    found = _one(model, _TAKE, only=_ONLY_DUE if only_due else "", now=now, until=now + lease, pk=pk)
    if found is None or not found[0]:
        return None
    return Claim(pk=pk, token=found[1], pokes=found[2], failures=found[3])


def take_due(
    model: type[models.Model], *, limit: int, lease: timedelta = LEASE, now: datetime | None = None
) -> list[Claim]:
    """Claim up to ``limit`` due rows in one statement each way; rows that others hold are skipped."""
    now = now or timezone.now()
    rows: Any = model.objects.as_system()  # type: ignore[attr-defined]
    free = Q(claimed_until__isnull=True) | Q(claimed_until__lte=now)
    with transaction.atomic():
        found = list(
            rows.select_for_update(skip_locked=True)
            .filter(free, due_at__lte=now)
            .order_by("due_at")
            .values_list("pk", "claim_token", "pokes", "failures")[:limit]
        )
        rows.filter(pk__in=[pk for pk, *_ in found]).update(
            claim_token=F("claim_token") + 1,
            claimed_until=now + lease,
        )
    return [Claim(pk=pk, token=token + 1, pokes=pokes, failures=failures) for pk, token, pokes, failures in found]


def release(model: type[models.Model], claim: Claim, *, due_at: datetime | None, failed: bool = False) -> bool:
    """Give the row back and say when it is due again; True when a poke came meanwhile (look again now).

    The sweep is told of the time in the same statement. Does nothing when the claim was lost: the new holder decides.
    """
    found = _one(
        model,
        _RELEASE,
        pk=claim.pk,
        token=claim.token,
        pokes=claim.pokes,
        due_at=due_at,
        now=timezone.now(),
        failed=failed,
        rings=due_at is not None,
        channel=wake.DUE,
        at=wake.moment(due_at),
    )
    return found is not None and bool(found[0])


def release_many(model: type[models.Model], ends: Mapping[Claim, datetime | None]) -> set[UUID]:
    """`release` for many that did not fail, in one statement; the ids of those that were poked meanwhile."""
    table, now = connection.ops.quote_name(model._meta.db_table), timezone.now()
    text = (
        f"UPDATE {table} t SET claimed_until = NULL, failures = 0, "  # noqa: S608 - a table of our own
        "due_at = CASE WHEN t.pokes = v.pokes THEN v.due ELSE %s END "
        "FROM unnest(%s::uuid[], %s::bigint[], %s::bigint[], %s::timestamptz[]) AS v(id, token, pokes, due) "
        "WHERE t.id = v.id AND t.claim_token = v.token RETURNING t.id, t.pokes <> v.pokes"
    )
    rows = [(one.pk, one.token, one.pokes, due_at) for one, due_at in ends.items()]
    columns: list[list[Any]] = [list(column) for column in zip(*rows, strict=True)]
    with connection.cursor() as cursor:
        cursor.execute(text, [now, *columns])
        return {pk for pk, poked in cursor.fetchall() if poked}


def extend(model: type[models.Model], claim: Claim, *, lease: timedelta = LEASE) -> None:
    """Lengthen the lease before a long step. Raises ``ClaimLost``."""
    rows: Any = model.objects.as_system()  # type: ignore[attr-defined]
    if not rows.filter(pk=claim.pk, claim_token=claim.token).update(claimed_until=timezone.now() + lease):
        raise ClaimLost(str(claim.pk))


def _one(model: type[models.Model], text: str, *, only: str = "", **params: Any) -> tuple[Any, ...] | None:
    """The one row that the statement, written for this model's table, answers."""
    table = connection.ops.quote_name(model._meta.db_table)
    with connection.cursor() as cursor:
        cursor.execute(text.format(table=table, only=only), params)
        found: tuple[Any, ...] | None = cursor.fetchone()
    return found
