"""Hints that come twice, not at all or too early, a Redis that lost everything, and schedulers that do not know of
each other: the rows decide."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from django.db import connection, transaction
from django.utils import timezone
from kombu.exceptions import OperationalError

from apps.core import claims, crashpoints, outbox, reconciling, wake
from apps.core.models import OutboxMessage
from apps.core.reconciling import Reconciler
from apps.flows import scheduler, services
from apps.flows.models import Attempt, Flow, Run, Schedule
from mlportal.celery import RingSweep, app
from tests.faults.world import Background, Killed, World, die_at

INSTANT = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.fixture
def worked(monkeypatch: pytest.MonkeyPatch) -> list[UUID]:
    """The attempts that were reconciled, by a reconciler that only notes it."""
    done: list[UUID] = []

    def run(pk: UUID, _claim: claims.Claim) -> None:
        done.append(pk)

    only = {"attempt": Reconciler(kind="attempt", model=Attempt, run=run)}
    monkeypatch.setattr(reconciling, "_registry", only)
    return done


@pytest.fixture
def rang(world: World) -> Iterator[Any]:
    """What the sweep is woken by."""
    params = connection.get_connection_params()
    known = {key: params[key] for key in ("host", "port", "user", "dbname", "password") if params.get(key)}
    with psycopg.connect(**known, autocommit=True) as link:
        link.execute(f"LISTEN {wake.DUE}")
        yield lambda: len(list(link.notifies(timeout=0.2)))


def queued(world: World, count: int) -> list[UUID]:
    """Runs that wait for their first look."""
    flow = world.flow()
    for _ in range(count):
        services.run_now(actor=world.actor, flow=flow, run_id=uuid4())
    return list(Attempt.objects.as_system().values_list("pk", flat=True))


# -- F16 ----------


def test_f16_a_message_carries_a_rows_id_and_nothing_else_and_has_no_time_of_its_own(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
    monkeypatch.setattr(type(app), "send_task", lambda _self, *args, **more: sent.append((args, more)))
    pk = uuid4()
    real_send_hint("attempt", pk)
    ((args, more),) = sent
    assert args == ("core.reconcile", ("attempt", str(pk)))
    assert not {"eta", "countdown"} & set(more)


def test_f16_of_a_message_that_is_delivered_ten_times_at_once_one_delivery_works(
    world: World, worked: list[UUID]
) -> None:
    (pk,) = queued(world, 1)
    claim = claims.take(Attempt, pk)
    assert claim is not None
    late = [Background(lambda: reconciling.reconcile_one("attempt", pk)) for _ in range(10)]
    assert [one.wait() for one in late] == [False] * 10
    assert worked == []
    assert claims.release(Attempt, claim, due_at=None), "whoever holds the row looks once more"


# -- F17, F18 ----------


def test_f17_whenever_a_worker_begins_to_listen_again_the_sweep_looks_for_hints_that_were_lost(
    world: World, rang: Any
) -> None:
    assert RingSweep in app.steps["consumer"]
    assert rang() == 0
    for _ in range(5):
        RingSweep(None).start(None)
    assert rang() >= 1


def test_f18_a_redis_that_lost_every_hint_loses_no_work(world: World, worked: list[UUID]) -> None:
    pks = queued(world, 60)
    world.hints.clear()  # FLUSHALL
    for _ in range(30):
        back = reconciling.sweep(limit=25)
        found, world.hints[:] = list(world.hints), []
        for kind, pk in found:
            reconciling.reconcile_one(kind, pk)
        if not found:
            break
        if len(found) == 25:
            assert back is not None
            assert back - timezone.now() <= timedelta(seconds=1), "behind a full batch there may be more"
    assert sorted(worked) == sorted(pks), "each once"


def test_f18_the_sweep_rests_for_a_minute_at_most() -> None:
    from apps.core import loops

    assert loops.LONGEST_SLEEP_S <= 60


# -- F19 ----------


def test_f19_a_row_that_fails_again_and_again_waits_longer_each_time_and_holds_up_nobody(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, *good = queued(world, 3)
    done: list[UUID] = []

    def run(pk: UUID, _claim: claims.Claim) -> None:
        if pk == bad:
            raise MemoryError
        done.append(pk)

    only = {"attempt": Reconciler(kind="attempt", model=Attempt, run=run)}
    monkeypatch.setattr(reconciling, "_registry", only)
    waits = []
    for _ in range(4):
        reconciling.reconcile_due("attempt", limit=10)
        row = Attempt.objects.as_system().get(pk=bad)
        assert row.due_at is not None
        waits.append(row.due_at - timezone.now())
        world.clock.ahead += row.due_at - timezone.now() + timedelta(seconds=0.1)
    assert waits == sorted(waits)
    assert waits[-1] > timedelta(seconds=8)
    assert row.failures == 4
    assert sorted(done) == sorted(good)


# -- F20 ----------


def test_f20_no_hint_leaves_before_its_row_is_committed(world: World) -> None:
    flow = world.flow()
    world.hints.clear()
    with transaction.atomic():
        services.run_now(actor=world.actor, flow=flow)
        assert world.hints == []
    assert [kind for kind, _pk in world.hints] == ["attempt"]
    world.hints.clear()
    with pytest.raises(Killed), transaction.atomic():
        services.run_now(actor=world.actor, flow=flow, run_id=uuid4())
        raise Killed
    assert world.hints == []
    assert Run.objects.as_system().count() == 1


def test_f20_a_broker_that_is_down_refuses_nobody_and_loses_nothing(
    world: World, worked: list[UUID], monkeypatch: pytest.MonkeyPatch
) -> None:
    def down(*_args: Any, **_more: Any) -> None:
        raise OperationalError("no broker")

    monkeypatch.setattr(type(app), "send_task", down)
    hint = reconciling.send_hint
    monkeypatch.setattr(reconciling, "send_hint", real_send_hint)
    pks = queued(world, 30)
    monkeypatch.setattr(reconciling, "send_hint", hint)
    world.hints.clear()
    reconciling.sweep()
    for kind, pk in list(world.hints):
        reconciling.reconcile_one(kind, pk)
    assert sorted(worked) == sorted(pks)


def test_f20_an_alarm_is_a_row_of_the_transaction_that_caused_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[UUID] = []
    monkeypatch.setattr(outbox, "send_hint", sent.append)
    with pytest.raises(Killed), transaction.atomic():
        outbox.put(topic="t", key="k", payload={})
        raise Killed
    assert (sent, OutboxMessage.objects.as_system().count()) == ([], 0)
    with transaction.atomic():
        assert outbox.put(topic="t", key="k", payload={})
        assert not outbox.put(topic="t", key="k", payload={})
        assert sent == []
    assert len(sent) == 1


# -- F21 ----------


@pytest.fixture
def due(world: World, monkeypatch: pytest.MonkeyPatch) -> Flow:
    """A flow whose instant has come."""
    monkeypatch.setattr(scheduler, "hint_queued", lambda: None)
    flow = world.flow()
    document = dict(flow.version.document)
    document["schedules"] = [{"cron": "0 12 * * *", "timezone": "UTC"}]
    document["queue"] = world.queue.name
    flow = services.update_flow(actor=world.actor, flow=flow, document=document)
    Schedule.objects.as_system().filter(flow=flow).update(next_fire_at=INSTANT)
    return flow


def fired(flow: Flow) -> list[datetime]:
    """The instants that have a run."""
    return list(Run.objects.as_system().filter(flow=flow).values_list("scheduled_at", flat=True))


def test_f21_of_three_schedulers_one_of_which_stands_still_each_instant_is_fired_once(
    world: World, due: Flow, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = INSTANT + timedelta(seconds=1)
    gate = StandStill("tick-claimed")
    monkeypatch.setattr(crashpoints, "reach", gate.reach)
    stopped = Background(lambda: scheduler.tick(at))
    gate.wait()
    others = [Background(lambda: scheduler.tick(at)) for _ in range(2)]
    assert [one.wait().made for one in others] == [0, 0]
    gate.go_on()
    assert stopped.wait().made == 1
    assert scheduler.tick(at).made == 0
    assert fired(due) == [INSTANT]


def test_f21_a_scheduler_that_acts_on_what_it_knew_an_hour_ago_makes_no_second_run(world: World, due: Flow) -> None:
    at = INSTANT + timedelta(seconds=1)
    assert scheduler.tick(at).made == 1
    Schedule.objects.as_system().filter(flow=due).update(next_fire_at=INSTANT)  # a stale leader's view
    assert scheduler.tick(at).made == 0
    assert fired(due) == [INSTANT]
    assert Attempt.objects.as_system().filter(run__flow=due).count() == 1


@pytest.mark.parametrize("point", ["tick-claimed", "tick-inserted", "tick-committed"])
def test_f21_a_scheduler_that_dies_in_its_tick_leaves_the_instant_to_the_next_one(
    world: World, due: Flow, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    at = INSTANT + timedelta(seconds=1)
    die_at(monkeypatch, point)
    with pytest.raises(Killed):
        scheduler.tick(at)
    scheduler.tick(at)
    assert fired(due) == [INSTANT]


class StandStill:
    """The first that reaches the point waits there until it may go on."""

    def __init__(self, point: str) -> None:
        import threading

        self._point, self._first = point, threading.Lock()
        self._there, self._open = threading.Event(), threading.Event()

    def reach(self, name: str) -> None:
        if name == self._point and self._first.acquire(blocking=False):
            self._there.set()
            assert self._open.wait(90)

    def wait(self) -> None:
        assert self._there.wait(90)

    def go_on(self) -> None:
        self._open.set()


real_send_hint = reconciling.send_hint
