"""A silent node holds an end back: it is said, a time-out is told once, and an administrator can give up waiting."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from apps.core import outbox
from apps.core.actors import Actor
from apps.core.models import AuditEntry, OutboxMessage
from apps.flows import logs, services
from apps.flows.models import Attempt, Flow, Run
from apps.tenants.models import Reservation, Role, User
from tests.flows.conftest import attempt_of, fresh, look
from tests.flows.fakes import FakeKube
from tests.tenants import make

ALERTS = [{"on": ["failed", "timeout"], "channel": "webhook", "url": "https://hooks.example.org/x"}]


@pytest.fixture(autouse=True)
def unsent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is delivered here."""
    monkeypatch.setattr(outbox, "send_hint", lambda pk: None)


@pytest.fixture
def run(new_flow: Callable[..., Flow], actor: Actor) -> Run:
    """A run of a flow with an alarm and no retry."""
    return services.run_now(actor=actor, flow=new_flow(alerts=ALERTS, retries={"count": 0}))


@pytest.fixture
def chief(run: Run) -> Client:
    """An administrator of the team."""
    client = Client()
    client.force_login(make.user(role_in=run.queue.team, role=Role.ADMIN))
    return client


def going(kube: FakeKube, run: Run, *, since_s: int = 0) -> Attempt:
    look(attempt_of(run))
    kube.run(kube.only(), at=timezone.now() - timedelta(seconds=since_s))
    kube.silence(kube.only())
    return look(attempt_of(run))


def told() -> list[str]:
    return [row.payload["body"]["type"] for row in OutboxMessage.objects.as_system()]


def held() -> int:
    return Reservation.objects.as_system().filter(released_at__isnull=True).count()


def test_a_time_out_on_a_silent_node_is_said_and_told_at_once_and_not_again_at_its_end(
    kube: FakeKube, run: Run
) -> None:
    attempt = going(kube, run, since_s=90)
    assert (attempt.state, attempt.stop_cause, attempt.reason_code) == ("cancelling", "timeout", "node_lost")
    assert (fresh(run).state, fresh(run).reason_code) == ("running", "node_lost")
    assert told() == ["run.timeout"]
    attempt = look(attempt)
    assert told() == ["run.timeout"]
    kube.silence(kube.only(), silent=False)
    attempt = look(attempt)
    assert (attempt.state, attempt.reason_code, fresh(run).reason_code) == ("cancelling", "run_timeout", "")
    kube.finish(kube.only(), exit_code=137)
    look(attempt)
    assert (fresh(run).state, fresh(run).reason_code) == ("failed", "run_timeout")
    assert told() == ["run.timeout"]


def test_a_cancel_on_a_silent_node_says_so_and_still_ends_with_who_cancelled(
    kube: FakeKube, run: Run, actor: Actor
) -> None:
    attempt = going(kube, run)
    services.cancel(actor=actor, run=fresh(run))
    attempt = look(attempt)
    assert (attempt.state, attempt.reason_code, fresh(run).reason_code) == ("cancelling", "node_lost", "node_lost")
    kube.finish(kube.only(), exit_code=137)
    look(attempt)
    ended = fresh(run)
    assert (ended.state, ended.reason_code, ended.reason_params) == ("cancelled", "cancelled_by", {"who": actor.name})
    assert told() == []


def test_giving_up_ends_a_timed_out_attempt_as_lost_frees_its_room_and_tells_nobody_twice(
    kube: FakeKube, run: Run, chief: Client
) -> None:
    attempt = going(kube, run, since_s=90)
    assert held() == 1
    answer = chief.post(f"/api/v1/attempts/{attempt.pk}/give-up")
    assert answer.status_code == 202, answer.content
    attempt = look(attempt)
    assert (attempt.state, attempt.reason_code, attempt.charge) == ("lost", "given_up_timeout", "user")
    assert (fresh(run).state, fresh(run).reason_code) == ("failed", "given_up_timeout")
    assert kube.pods == {}
    assert held() == 0
    assert told() == ["run.timeout"]
    assert b"could not be read" in logs.read(attempt, 0).data
    assert AuditEntry.objects.as_system().filter(verb="attempt.give-up", object_id=attempt.pk).count() == 1
    assert chief.post(f"/api/v1/attempts/{attempt.pk}/give-up").json()["code"] == "attempt_ended"


def test_giving_up_on_a_cancelled_run_ends_it_as_cancelled(
    kube: FakeKube, run: Run, actor: Actor, chief: Client
) -> None:
    attempt = going(kube, run)
    services.cancel(actor=actor, run=fresh(run))
    look(attempt)
    page = chief.get(f"/runs/{run.pk}").text
    assert f"/runs/{run.pk}/give-up" in page
    assert chief.post(f"/runs/{run.pk}/give-up").status_code == 302
    assert look(attempt).state == "lost"
    assert fresh(run).state == "cancelled"
    assert f"/runs/{run.pk}/give-up" not in chief.get(f"/runs/{run.pk}").text


def test_giving_up_is_refused_while_the_node_answers_and_to_members(
    kube: FakeKube, run: Run, person: User, chief: Client
) -> None:
    look(attempt_of(run))
    kube.run(kube.only())
    attempt = look(attempt_of(run))
    answer = chief.post(f"/api/v1/attempts/{attempt.pk}/give-up")
    assert (answer.status_code, answer.json()["code"]) == (409, "node_not_silent")
    kube.silence(kube.only())
    look(attempt)
    member = Client()
    member.force_login(person)
    assert member.post(f"/api/v1/attempts/{attempt.pk}/give-up").status_code == 403
    assert member.post(f"/runs/{run.pk}/give-up").status_code == 302
    assert f"/runs/{run.pk}/give-up" not in member.get(f"/runs/{run.pk}").text
    assert attempt_of(run).ending is None
    assert look(attempt).state == "running"
    kube.away = True
    assert chief.post(f"/api/v1/attempts/{attempt.pk}/give-up").json()["code"] == "cluster_unreachable"
