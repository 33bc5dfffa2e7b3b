"""One loop for every kind that has something outside: claim, run, release, look again when poked.

An app registers ``Reconciler(kind, model, run)`` in ``AppConfig.ready``. ``hint`` makes it quick, ``sweep``
makes it right: both end in ``reconcile_one``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from celery import current_app
from celery.exceptions import CeleryError
from django.db import transaction
from django.db.models import F, Value
from django.db.models.functions import Coalesce, Greatest
from django.utils import timezone
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from apps.core import claims, standing, wake
from apps.core.claims import Claim, ClaimLost

log = logging.getLogger(__name__)

BACKOFF_S = (1, 2, 5, 10, 20, 40, 60)
TOLD_AFTER = 5
"""So many faults in a row, and administrators see it."""
#: A hint that nobody has followed for so long is sent again: it may be lost, or wait behind many others. Each time
#: after twice as long, so that what waits for its turn does not fill the queue in which it waits.
TELL_AGAIN = timedelta(seconds=5)
LONGEST_TELL_AGAIN = timedelta(seconds=20)
#: For so long the hint of a service alone is under way; the sweep would only send another one.
UNDER_WAY = timedelta(seconds=2)
#: So many rows that want a look of their own are looked at by whoever claimed many; the last one's look begins well
#: before the lease ends. For the others there are other workers.
MOST_ALONE = 8
#: When a sweep comes back that found as much due as it takes at once.
FULL_BATCH = timedelta(seconds=1)


@dataclass(frozen=True, kw_only=True)
class Reconciler:
    """How one kind is brought to its desired state.

    ``run(pk, claim)`` does the work outside any transaction and returns when the row is due again
    (None: only when something changes). It may raise: the row is then retried with back-off.
    """

    kind: str
    model: Any
    run: Callable[[UUID, Claim], datetime | None]
    lease: timedelta = claims.LEASE
    together: Callable[[Sequence[Claim]], Mapping[Claim, datetime | None]] | None = None
    """The same for as many of these rows as share their work, with when each is due again; ``run`` does the others."""


@dataclass(frozen=True, kw_only=True)
class Swept:
    """Rows that nobody reconciles and that are due at times all the same; ``hint`` tells a worker of one."""

    kind: str
    model: Any
    hint: Callable[[UUID], None]


_registry: dict[str, Reconciler] = {}
_swept: dict[str, Swept] = {}


def register(reconciler: Reconciler) -> None:
    """Add a kind; one reconciler per kind."""
    if reconciler.kind in _registry:
        raise ValueError(f"the kind {reconciler.kind!r} has a reconciler already")
    _registry[reconciler.kind] = reconciler


def sweep_also(swept: Swept) -> None:
    """Have the sweep look at these rows too, in its one statement. Their model has ``due_at``."""
    _swept[swept.kind] = swept


def look_now(row: Any) -> dict[str, Any]:
    """Columns that a service writes with its change of a locked row: it is due, and its holder looks once more.

    A hint may be lost, and a holder's release overwrites ``due_at``; the poke survives both.
    """
    return {"due_at": timezone.now(), "pokes": row.pokes + 1}


def hint(kind: str, pk: UUID) -> None:
    """After commit, ask a worker to look at the row now. Losing the hint costs seconds, never work."""
    transaction.on_commit(lambda: send_hint(kind, pk))


def send_hint(kind: str, pk: UUID, *, only_due: bool = False) -> None:
    """Send the hint at once; for callers that hold no transaction.

    ``only_due``: it is followed only if the row is still due by then. The hints of a sweep wait behind thousands of
    others when much is due at once, and most of their rows have been looked at when their turn comes.
    """
    args = (kind, str(pk), True) if only_due else (kind, str(pk))
    try:
        current_app.send_task("core.reconcile", args, retry=False, ignore_result=True)
    except (OperationalError, RedisError, CeleryError, OSError) as error:
        log.warning("hint for %s %s was not sent, the sweep will find it: %s", kind, pk, error)


def reconcile_one(kind: str, pk: UUID, *, only_due: bool = False) -> bool:
    """Claim the row and run its reconciler until no poke is left; False when another worker holds it.

    With ``only_due`` also False when it is not due (any more).
    """
    reconciler = _registry[kind]
    claim = claims.take(reconciler.model, pk, lease=reconciler.lease, only_due=only_due)
    if claim is None:
        return False
    _run_claimed(reconciler, claim)
    return True


def reconcile_due(kind: str, *, limit: int, before: Callable[[], None] = lambda: None) -> int:
    """Claim up to ``limit`` due rows at once and run each; how many there were.

    ``before`` is called after claiming and before running when the batch is full, so that another worker can begin
    with the rest meanwhile.
    """
    reconciler = _registry[kind]
    found = claims.take_due(reconciler.model, limit=limit, lease=reconciler.lease)
    if len(found) == limit:
        before()
    left = _run_together(reconciler, found)
    for claim in left[:MOST_ALONE]:
        _run_claimed(reconciler, claim)
    if later := left[MOST_ALONE:]:
        claims.release_many(reconciler.model, dict.fromkeys(later, timezone.now()))
        for claim in later:
            send_hint(kind, claim.pk)
    return len(found)


def _run_together(reconciler: Reconciler, found: list[Claim]) -> list[Claim]:
    """Those that are left for one after the other."""
    if reconciler.together is None or len(found) < 2:
        return found
    try:
        done = reconciler.together(found)
    except Exception:  # a fault in one row of many must not keep the others: each is tried by itself
        log.exception("%d rows of %s: reconcile together failed", len(found), reconciler.kind)
        return found
    if done:
        for pk in claims.release_many(reconciler.model, done):
            send_hint(reconciler.kind, pk)
        if dues := [due for due in done.values() if due is not None]:
            wake.notify(wake.DUE, at=min(dues))
    return [claim for claim in found if claim not in done]


def _run_claimed(reconciler: Reconciler, claim: Claim) -> None:
    failed, due = False, None
    try:
        due = reconciler.run(claim.pk, claim)
    except ClaimLost:
        log.info("%s %s: another worker took over", reconciler.kind, claim.pk)
        return
    except Exception as error:  # a fault in one row must neither stop the worker nor lose the row
        log.exception("%s %s: reconcile failed", reconciler.kind, claim.pk)
        failed, due = True, _retry_at(reconciler, claim.pk)
        if claim.failures + 1 >= TOLD_AFTER and not getattr(error, "retryable", False):
            _tell(reconciler, claim.pk, claim.failures + 1, f"{type(error).__name__}: {error}"[:500])
    if not failed and claim.failures >= TOLD_AFTER:
        standing.over(standing.SET_ASIDE, f"{reconciler.kind}:{claim.pk}")
    if claims.release(reconciler.model, claim, due_at=due, failed=failed) and not failed:
        send_hint(reconciler.kind, claim.pk)


def _tell(reconciler: Reconciler, pk: UUID, times: int, evidence: str) -> None:
    row = reconciler.model.objects.as_system().filter(pk=pk).first()
    name = f"{reconciler.model._meta.verbose_name} {row}"
    params = {"what": name, "times": times, "url": row.get_absolute_url() if hasattr(row, "get_absolute_url") else ""}
    standing.note(standing.SET_ASIDE, f"{reconciler.kind}:{pk}", params=params, evidence=(evidence,), lasting=None)


def _retry_at(reconciler: Reconciler, pk: UUID) -> datetime:
    failures = reconciler.model.objects.as_system().filter(pk=pk).values_list("failures", flat=True).first() or 0
    return timezone.now() + timedelta(seconds=BACKOFF_S[min(failures, len(BACKOFF_S) - 1)])


def due_soonest(*, limit: int = 500) -> list[tuple[str, UUID, datetime]]:
    """The rows with the earliest ``due_at``, past or future, up to ``limit`` of each kind, in one statement.

    No kind waits behind another one's backlog. Rows that a worker holds count from the end of their lease, so that a
    dead worker's row comes back.
    """
    parts = [
        _due_of(kind, reconciler.model, limit, Greatest("due_at", Coalesce("claimed_until", "due_at")))
        for kind, reconciler in _registry.items()
    ]
    parts += [_due_of(kind, swept.model, limit, F("due_at")) for kind, swept in _swept.items()]
    if not parts:
        return []
    found = parts[0].union(*parts[1:], all=True).order_by("when") if len(parts) > 1 else parts[0]
    return list(found)


def _due_of(kind: str, model: Any, limit: int, when: Any) -> Any:
    rows = model.objects.as_system().filter(due_at__isnull=False).annotate(row_kind=Value(kind), when=when)
    return rows.order_by("when").values_list("row_kind", "pk", "when")[:limit]


class Told:
    """What one sweeper has hinted lately. A row that waits for a free worker is not hinted again at each wake: with
    many of them the workers would do little else than read hints."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, UUID], tuple[datetime, datetime, timedelta]] = {}

    def again_at(self, kind: str, pk: UUID, when: datetime, now: datetime) -> datetime | None:
        """When to hint this row again if it is still due as it is; None when it should be hinted now, which is noted.

        A clock that went back makes every hint an old one.
        """
        due, told_at, pause = self._known.get((kind, pk), (None, now, timedelta()))
        if due == when and timedelta() <= now - told_at < pause:
            return told_at + pause
        again = due == when and now >= told_at
        self._known[kind, pk] = when, now, min(2 * pause, LONGEST_TELL_AGAIN) if again else TELL_AGAIN
        return None

    def forget(self, now: datetime) -> None:
        """Drop what is too old to matter."""
        kept = 2 * LONGEST_TELL_AGAIN
        self._known = {key: row for key, row in self._known.items() if timedelta() <= now - row[1] < kept}


def sweep(told: Told | None = None, *, limit: int = 500) -> datetime | None:
    """Hint every due row but those that ``told`` knows; answers when to come back. Level-triggered: safe at any time.

    Behind a full batch there may be more that is due, so it comes back at once.
    """
    now, told = timezone.now(), told or Told()
    told.forget(now)
    found = due_soonest(limit=limit)
    back: list[datetime] = []
    for kind, pk, when in found:
        if when > now:
            return min([when, *back])
        if (again := told.again_at(kind, pk, when, now)) is not None:
            back.append(again)
        elif kind in _swept:
            _swept[kind].hint(pk)
        else:
            send_hint(kind, pk, only_due=True)
    if len(found) >= limit:
        back.append(now + FULL_BATCH)
    return min(back, default=None)


def clock_jumped() -> None:
    """After this machine's clock was set: everything that is not due yet is due now, and no lease ends after its time.

    Rows hold instants of the clock as it was. When it went back, what was to be looked at in seconds would wait for as
    long as it went back, and so would the row of a worker that died. Whoever holds a row lengthens its lease anyway.
    """
    now = timezone.now()
    for model in [*(one.model for one in _registry.values()), *(one.model for one in _swept.values())]:
        model.objects.as_system().filter(due_at__gt=now).update(due_at=now)
    for reconciler in _registry.values():
        end = now + reconciler.lease
        reconciler.model.objects.as_system().filter(claimed_until__gt=end).update(claimed_until=end)
