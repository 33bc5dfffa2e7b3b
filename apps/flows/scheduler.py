"""The tick: due schedules become runs, each instant exactly once whatever the number of schedulers (F21).

One statement claims the due schedules (rows that another scheduler holds are skipped), one inserts the runs with
their first attempts and audit entries where (flow, instant) is new, one moves the schedules on. A scheduler that dies
in between leaves the rows as they were; the next tick finds them due. Instants that passed while nobody ticked follow
the schedule's misfire policy, and what was left out stands in the run's note.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from celery import current_app
from celery.exceptions import CeleryError
from django.db import connection, transaction
from django.utils import timezone
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from apps.core import control, crashpoints
from apps.core.wake import SCHEDULE, alarms
from apps.flows import schedule
from apps.flows.models import Misfire
from apps.flows.states import RunState

log = logging.getLogger(__name__)

BATCH = 5000
#: A fire this late is still on time: the scheduler was busy or restarted, nothing was missed.
GRACE = timedelta(seconds=60)
#: The most runs that one schedule may catch up at once.
CATCH_UP = 100
LONGEST_SLEEP_S = 300.0


class Due(NamedTuple):
    """A claimed schedule."""

    pk: str
    cron: str
    zone: str
    misfire: str
    first: datetime


class Fire(NamedTuple):
    """One instant of one schedule: a run to make, or one that is noted as skipped."""

    due: Due
    at: datetime
    state: RunState
    note: str = ""
    params: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Ticked:
    """What a tick did: claimed schedules, runs made, and when the next schedule is due (None: none is)."""

    claimed: int
    made: int
    next_at: datetime | None


_CLAIM = """
SELECT id::text, cron, timezone, misfire, next_fire_at FROM flows_schedule
 WHERE next_fire_at <= %s ORDER BY next_fire_at LIMIT %s FOR UPDATE SKIP LOCKED
"""
# The batch goes over as one JSON text, and what the runs take from their flows never leaves the database.
_INSERT = """
WITH fire AS MATERIALIZED (
    SELECT gen_random_uuid() AS id, gen_random_uuid() AS attempt_id, f.id AS flow_id, f.name AS flow_name, f.version_id,
           f.queue_id, q.team_id, v.document->'nodes'->0->>'name' AS node, t.at, t.state, t.note, t.params
      FROM json_to_recordset(%s::json) AS t(pk uuid, at timestamptz, state text, note text, params jsonb)
           JOIN flows_schedule s ON s.id = t.pk JOIN flows_flow f ON f.id = s.flow_id
           JOIN flows_flowversion v ON v.id = f.version_id JOIN tenants_queue q ON q.id = f.queue_id
), made AS (
    INSERT INTO flows_run (id, created_at, updated_at, state, state_since, reason_code, reason_params, reason_evidence,
                           flow_id, version_id, queue_id, scheduled_at, trigger, parameters, note_code, note_params,
                           finished_at)
    SELECT id, %s, %s, state, %s, CASE state WHEN 'skipped' THEN note ELSE '' END,
           CASE state WHEN 'skipped' THEN params ELSE '{}' END, '[]', flow_id, version_id, queue_id, at, 'schedule',
           '{}', note, params, CASE state WHEN 'skipped' THEN %s::timestamptz END
      FROM fire ON CONFLICT (flow_id, scheduled_at) DO NOTHING RETURNING id, state
), attempts AS (
    INSERT INTO flows_attempt (id, created_at, updated_at, state, state_since, reason_code, reason_params,
                               reason_evidence, claim_token, due_at, pokes, failures, run_id, queue_id, node, number,
                               not_before, pod_name, pod_uid, stop_cause, charge, last_events, log_bytes, log_complete,
                               log_truncated)
    SELECT fire.attempt_id, %s, %s, 'queued', %s, '', '{}', '[]', 0, %s, 0, 0, fire.id, fire.queue_id, fire.node, 1,
           %s, '', '', '', '', '[]', 0, false, false
      FROM fire JOIN made USING (id) WHERE made.state = 'queued' RETURNING 1
), audited AS (
    INSERT INTO core_auditentry (at, actor_name, verb, object_kind, object_id, object_name, team_id, queue_id, detail)
    SELECT %s, 'scheduler', 'run.' || CASE made.state WHEN 'skipped' THEN 'skipped' ELSE 'start' END, 'run', fire.id,
           fire.flow_name, fire.team_id, fire.queue_id, jsonb_build_object('trigger', 'schedule', 'at', fire.at)
      FROM fire JOIN made USING (id)
)
SELECT (SELECT count(*) FROM made), (SELECT count(*) FROM attempts)
"""
_ADVANCE = """
WITH moved AS (
    UPDATE flows_schedule s SET next_fire_at = t.at, updated_at = %s
      FROM json_to_recordset(%s::json) AS t(pk uuid, at timestamptz) WHERE s.id = t.pk RETURNING t.at
)
SELECT least((SELECT min(at) FROM moved), (SELECT min(next_fire_at) FROM flows_schedule WHERE next_fire_at > %s))
"""
_NEXT = "SELECT min(next_fire_at) FROM flows_schedule WHERE next_fire_at IS NOT NULL"


def tick(now: datetime | None = None, *, batch: int = BATCH) -> Ticked:
    """Fire all that is due at ``now``, in batches of one transaction each."""
    now = now or timezone.now()
    claimed = made = 0
    while True:
        done = _tick_batch(now, batch)
        claimed, made = claimed + done.claimed, made + done.made
        if done.claimed < batch:
            next_at = done.next_at if done.claimed else next_fire()
            return Ticked(claimed=claimed, made=made, next_at=next_at)


def _tick_batch(now: datetime, batch: int) -> Ticked:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_CLAIM, [now, batch])
        dues = [Due(*row) for row in cursor.fetchall()]
        if not dues:
            return Ticked(claimed=0, made=0, next_at=None)
        crashpoints.reach("tick-claimed")
        cache: dict[tuple[str, str, datetime], datetime] = {}
        fires = [fire for due in dues for fire in fires_of(due, now, cache)]
        made, attempts = _insert(cursor, fires, now)
        crashpoints.reach("tick-inserted")
        later = [{"pk": due.pk, "at": _next(due.cron, due.zone, now, cache).isoformat()} for due in dues]
        cursor.execute(_ADVANCE, [now, json.dumps(later), now])
        next_at: datetime | None = cursor.fetchone()[0]
        if attempts:
            transaction.on_commit(hint_queued)
    crashpoints.reach("tick-committed")
    return Ticked(claimed=len(dues), made=made, next_at=next_at)


def _insert(cursor: Any, fires: Sequence[Fire], now: datetime) -> tuple[int, int]:
    batch = [
        {"pk": due.pk, "at": at.isoformat(), "state": state, "note": note, "params": dict(params)}
        for due, at, state, note, params in fires
    ]
    cursor.execute(_INSERT, [json.dumps(batch), *[now] * 10])
    made, attempts = cursor.fetchone()
    return int(made), int(attempts)


def _next(cron: str, zone: str, now: datetime, cache: dict[tuple[str, str, datetime], datetime]) -> datetime:
    key = (cron, zone, now)
    if key not in cache:
        cache[key] = schedule.after(cron, zone, now)
    return cache[key]


def fires_of(due: Due, now: datetime, cache: dict[tuple[str, str, datetime], datetime]) -> Iterator[Fire]:
    """The fires of one schedule up to ``now``, by its misfire policy. ``cache`` saves work between schedules."""
    key = (due.cron, due.zone, due.first)
    if key not in cache:
        cache[key] = schedule.after(due.cron, due.zone, due.first)
    if cache[key] > now and now - due.first <= GRACE:
        yield Fire(due, due.first, RunState.QUEUED)
        return
    # Some more than the limit (two can be on time) tell whether something has to be left out.
    instants = schedule.missed(due.cron, due.zone, first=due.first, now=now, limit=CATCH_UP + 3)
    late = [at for at in instants if now - at > GRACE]
    on_time = instants[len(late) :]
    if due.misfire == Misfire.ALL:
        more = len(late) > CATCH_UP
        for at in late[-CATCH_UP:]:
            yield Fire(due, at, RunState.QUEUED, *_note("caught_up_capped" if more else "caught_up", late))
    elif due.misfire == Misfire.LATEST and late and not on_time:
        yield Fire(due, late[-1], RunState.QUEUED, *_note("caught_up_latest", late, left_out=len(late) - 1))
    elif late:
        yield Fire(due, late[-1], RunState.SKIPPED, *_note("missed", late))
    for at in on_time:
        yield Fire(due, at, RunState.QUEUED)


def _note(
    code: str, missed: Sequence[datetime], *, left_out: int | None = None
) -> tuple[str, tuple[tuple[str, Any], ...]]:
    number = len(missed) if left_out is None else left_out
    count = f"{CATCH_UP}+" if number > CATCH_UP else str(number)
    span = (("count", count), ("first", missed[0].isoformat()), ("last", missed[-1].isoformat()), ("most", CATCH_UP))
    return code, span


def next_fire() -> datetime | None:
    """When the next schedule is due, past or future: the one statement of an idle tick."""
    with connection.cursor() as cursor:
        cursor.execute(_NEXT)
        found: datetime | None = cursor.fetchone()[0]
        return found


def hint_queued() -> None:
    """One message for all that is queued; losing it costs the seconds until the sweep."""
    try:
        current_app.send_task("flows.start_queued", retry=False, ignore_result=True)
    except (OperationalError, RedisError, CeleryError, OSError) as error:
        log.warning("the hint for new runs was not sent, the sweep will find them: %s", error)


class Scheduler:
    """The control loop around ``tick``: sleeps until the next fire, woken when a schedule changes."""

    def __init__(self, *, clock: Callable[[], datetime] = timezone.now) -> None:
        self.clock = clock

    async def run(self, stop: asyncio.Event) -> None:
        """Tick until ``stop``."""
        while not stop.is_set():
            started = time.perf_counter()
            done = await control.in_thread(self.once)
            if done.claimed:
                spent_ms = (time.perf_counter() - started) * 1000
                log.info("fired %d schedules, %d new runs, in %.0f ms", done.claimed, done.made, spent_ms)
            wait_s = LONGEST_SLEEP_S
            if done.next_at is not None:
                wait_s = max(0.0, (done.next_at - self.clock()).total_seconds())
            await alarms.wait(SCHEDULE, stop, min(wait_s, LONGEST_SLEEP_S))

    def once(self) -> Ticked:
        """One look: an idle one is a single statement."""
        now = self.clock()
        found = next_fire()
        if found is None or found > now:
            return Ticked(claimed=0, made=0, next_at=found)
        return tick(now)
