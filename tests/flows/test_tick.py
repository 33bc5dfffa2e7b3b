"""Each instant exactly once, whatever the number of schedulers and wherever one of them dies."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from apps.core import crashpoints
from apps.core.actors import Actor
from apps.core.models import AuditEntry
from apps.flows import scheduler, services
from apps.flows.models import Attempt, Flow, Run, Schedule

EVERY_MINUTE = [{"cron": "* * * * *", "timezone": "Asia/Shanghai"}]
NOW = datetime(2026, 3, 1, 12, 0, 30, tzinfo=UTC)


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the messages to workers instead of sending them."""
    sent: list[int] = []
    monkeypatch.setattr(scheduler, "hint_queued", lambda: sent.append(1))
    return sent


def due_at(flow: Flow, moment: datetime) -> None:
    Schedule.objects.as_system().filter(flow=flow).update(next_fire_at=moment)


def runs_of(flow: Flow) -> list[Run]:
    return list(Run.objects.as_system().filter(flow=flow).order_by("scheduled_at"))


def test_a_due_schedule_makes_a_run_with_its_first_attempt_and_moves_on(new_flow: Callable[..., Flow]) -> None:
    flow = new_flow(schedules=EVERY_MINUTE)
    due_at(flow, datetime(2026, 3, 1, 12, 0, tzinfo=UTC))
    done = scheduler.tick(NOW)
    assert (done.claimed, done.made) == (1, 1)
    (run,) = runs_of(flow)
    assert (run.state, run.trigger, run.scheduled_at) == ("queued", "schedule", datetime(2026, 3, 1, 12, 0, tzinfo=UTC))
    attempt = Attempt.objects.as_system().get(run=run)
    assert (attempt.number, attempt.node, attempt.due_at) == (1, "main", NOW)
    assert done.next_at == datetime(2026, 3, 1, 12, 1, tzinfo=UTC)
    (entry,) = AuditEntry.objects.as_system().filter(object_id=run.pk)
    assert (entry.actor_name, entry.verb, entry.queue_id) == ("scheduler", "run.start", flow.queue_id)
    assert scheduler.tick(NOW).claimed == 0


def test_two_schedules_of_one_flow_at_one_instant_are_one_run(new_flow: Callable[..., Flow]) -> None:
    flow = new_flow(schedules=[*EVERY_MINUTE, {"cron": "0 12 * * *", "timezone": "UTC"}])
    due_at(flow, datetime(2026, 3, 1, 12, 0, tzinfo=UTC))
    assert scheduler.tick(NOW).claimed == 2
    assert len(runs_of(flow)) == 1


def test_paused_deleted_and_disabled_schedules_do_not_fire(new_flow: Callable[..., Flow], actor: Actor) -> None:
    paused = new_flow(name="a", schedules=EVERY_MINUTE)
    deleted = new_flow(name="b", schedules=EVERY_MINUTE)
    new_flow(name="c", schedules=[{**EVERY_MINUTE[0], "enabled": False}])
    services.set_paused(actor=actor, flow=paused, paused=True)
    services.delete_flow(actor=actor, flow=deleted)
    assert scheduler.tick(timezone.now() + timedelta(days=1)) == scheduler.Ticked(claimed=0, made=0, next_at=None)
    services.set_paused(actor=actor, flow=paused, paused=False)
    assert scheduler.next_fire() is not None


@pytest.mark.parametrize(
    ("misfire", "states", "notes"),
    [
        ("skip", ["skipped", "queued"], ["missed", ""]),
        ("latest", ["skipped", "queued"], ["missed", ""]),
        ("all", ["queued"] * 6, ["caught_up"] * 5 + [""]),
    ],
)
def test_what_was_missed_follows_the_policy_and_is_said(
    new_flow: Callable[..., Flow], misfire: str, states: list[str], notes: list[str]
) -> None:
    flow = new_flow(schedules=[{**EVERY_MINUTE[0], "misfire": misfire}])
    due_at(flow, datetime(2026, 3, 1, 11, 55, tzinfo=UTC))
    scheduler.tick(NOW)
    found = runs_of(flow)
    assert [run.state for run in found] == states
    assert [run.note_code for run in found] == notes
    assert found[-1].scheduled_at == datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def test_the_latest_of_what_was_missed_runs_late_when_nothing_is_on_time(new_flow: Callable[..., Flow]) -> None:
    flow = new_flow(schedules=[{"cron": "0 * * * *", "timezone": "UTC"}])
    due_at(flow, datetime(2026, 3, 1, 9, 0, tzinfo=UTC))
    scheduler.tick(datetime(2026, 3, 1, 12, 30, tzinfo=UTC))
    (run,) = runs_of(flow)
    assert (run.state, run.note_code, run.note_params["count"]) == ("queued", "caught_up_latest", "3")
    assert run.scheduled_at == datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def test_catching_up_is_capped_and_says_so(new_flow: Callable[..., Flow]) -> None:
    flow = new_flow(schedules=[{**EVERY_MINUTE[0], "misfire": "all"}])
    due_at(flow, NOW - timedelta(days=1))
    scheduler.tick(NOW)
    found = runs_of(flow)
    assert len(found) == scheduler.CATCH_UP + 1
    assert found[0].note_code == "caught_up_capped"


def test_a_tick_is_few_statements_at_any_number_of_flows_and_one_message(
    new_flow: Callable[..., Flow],
    quiet: list[int],
    django_assert_max_num_queries: Any,
    django_capture_on_commit_callbacks: Any,
) -> None:
    for number in range(30):
        due_at(new_flow(name=f"f{number}", schedules=EVERY_MINUTE), NOW - timedelta(seconds=30))
    quiet.clear()
    with django_capture_on_commit_callbacks(execute=True), django_assert_max_num_queries(7):  # five, and a savepoint
        assert scheduler.Scheduler(clock=lambda: NOW).once().made == 30
    assert quiet == [1]


def test_an_idle_look_is_one_statement(flow: Flow, django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(1):
        assert scheduler.Scheduler().once().claimed == 0


@pytest.mark.django_db(transaction=True)
def test_three_schedulers_at_once_fire_each_instant_once(new_flow: Callable[..., Flow]) -> None:
    flows = [new_flow(name=f"f{number}", schedules=EVERY_MINUTE) for number in range(60)]
    start = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
    for flow in flows:
        due_at(flow, start)
    barrier = threading.Barrier(3)
    made: list[int] = []

    def many_ticks() -> None:
        barrier.wait()
        made.extend(scheduler.tick(start + timedelta(minutes=minute), batch=7).made for minute in range(5))
        connection.close()

    threads = [threading.Thread(target=many_ticks) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(made) == Run.objects.as_system().count() == Attempt.objects.as_system().count()
    instants = Run.objects.as_system().values_list("flow_id", "scheduled_at")
    assert len(set(instants)) == len(instants)
    late = scheduler.tick(start + timedelta(minutes=4))
    assert late.claimed == 0
    assert {run.scheduled_at for run in runs_of(flows[0])} == {start + timedelta(minutes=n) for n in range(5)}


class Died(BaseException):
    """The process is gone."""


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("point", ["tick-claimed", "tick-inserted", "tick-committed"])
def test_a_scheduler_that_dies_anywhere_neither_loses_nor_doubles_an_instant(
    new_flow: Callable[..., Flow], monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    flow = new_flow(schedules=EVERY_MINUTE)
    due_at(flow, datetime(2026, 3, 1, 12, 0, tzinfo=UTC))

    def die(name: str) -> None:
        if name == point:
            raise Died

    with monkeypatch.context() as patched:
        patched.setattr(crashpoints, "reach", die)
        with pytest.raises(Died):
            scheduler.tick(NOW)
    scheduler.tick(NOW)
    assert [run.scheduled_at for run in runs_of(flow)] == [datetime(2026, 3, 1, 12, 0, tzinfo=UTC)]
    assert Attempt.objects.as_system().count() == 1


@pytest.mark.django_db(transaction=True)
def test_an_edit_during_a_tick_waits_and_the_old_time_fires_at_most_once(
    new_flow: Callable[..., Flow], actor: Actor, document: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = new_flow(schedules=EVERY_MINUTE)
    due_at(flow, datetime(2026, 3, 1, 12, 0, tzinfo=UTC))
    edited = threading.Event()

    def edit() -> None:
        services.update_flow(
            actor=actor, flow=flow, document={**document, "schedules": [{"cron": "0 4 * * *", "timezone": "UTC"}]}
        )
        edited.set()
        connection.close()

    worker = threading.Thread(target=edit)

    def pause(name: str) -> None:
        if name == "tick-claimed":
            worker.start()
            assert not edited.wait(0.3)  # it waits for the claimed schedule

    with monkeypatch.context() as patched:
        patched.setattr(crashpoints, "reach", pause)
        scheduler.tick(NOW)
    worker.join(5)
    assert edited.is_set()
    assert len(runs_of(flow)) == 1
    assert Schedule.objects.as_system().get(flow=flow).cron == "0 4 * * *"
