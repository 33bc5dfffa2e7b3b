"""Alarms: one for each run, event and target, written with the transition."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone, translation

from apps.core import outbox, secret
from apps.core.actors import Actor
from apps.core.models import OutboxMessage
from apps.flows import alarms, services
from apps.flows.document import AlertDoc
from apps.flows.models import Flow, Run
from apps.tenants.models import User
from tests.flows.conftest import attempt_of, fresh, look
from tests.flows.fakes import FakeKube, stamp
from tests.tenants import make

ALERTS = [
    {"on": ["failed", "timeout"], "channel": "mail", "to": ["ada@example.org"]},
    {"on": ["failed", "timeout"], "channel": "webhook", "url": "https://hooks.example.org/x"},
]


@pytest.fixture(autouse=True)
def unsent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is delivered here."""
    monkeypatch.setattr(outbox, "send_hint", lambda pk: None)


@pytest.fixture
def run(new_flow: Callable[..., Flow], actor: Actor) -> Run:
    """A run of a flow with both channels and no retry."""
    return services.run_now(actor=actor, flow=new_flow(alerts=ALERTS, retries={"count": 0}))


def end(kube: FakeKube, run: Run, exit_code: int) -> None:
    look(attempt_of(run))
    kube.run(kube.only(), log=f"{stamp()} Traceback\n{stamp()} boom\n".encode())
    kube.finish(kube.only(), exit_code=exit_code)
    look(attempt_of(run))


def messages() -> dict[str, dict[str, Any]]:
    return {row.topic: row.payload for row in OutboxMessage.objects.as_system()}


def test_a_failed_run_is_told_once_to_each_target_with_reason_link_and_log(kube: FakeKube, run: Run) -> None:
    end(kube, run, 3)
    found = messages()
    assert OutboxMessage.objects.as_system().count() == 2
    mail, hook = found["alert.mail"], found["alert.webhook"]
    assert mail["to"] == ["ada@example.org"]
    assert "exit code 3" in mail["text"]
    assert "boom" in mail["text"]
    assert f"/runs/{run.pk}" in mail["text"]
    assert hook["body"]["type"] == "run.failed"
    assert hook["body"]["data"]["reason"]["code"] == "exit_code"
    assert hook["body"]["data"]["run"]["exit_code"] == 3
    stored = Flow.objects.as_system().get().webhook_secret
    assert stored is not None
    assert stored.reveal() not in json.dumps(hook)
    assert secret.decrypt(hook["secret"]) == stored.reveal()


def test_an_alarm_is_in_the_language_of_its_receiver_else_of_the_flows_owner(
    kube: FakeKube, new_flow: Callable[..., Flow], actor: Actor, person: User
) -> None:
    make.user(email="Wei@Example.org", language="zh-hans")
    make.user(email="bob@example.org", language="en")
    User.objects.filter(pk=person.pk).update(language="zh-hans")
    to = ["wei@example.org", "bob@example.org", "list@example.org"]
    rules = [{**ALERTS[0], "to": to}, ALERTS[1]]
    run = services.run_now(actor=actor, flow=new_flow(alerts=rules, retries={"count": 0}))
    with translation.override("en"):
        end(kube, run, 3)
    rows = list(OutboxMessage.objects.as_system())
    mails = {row.payload["to"][0]: row.payload for row in rows if row.topic == "alert.mail"}
    assert set(mails) == set(to)
    assert "exit code 3" in mails["bob@example.org"]["text"]
    assert mails["bob@example.org"]["subject"] == "The flow nightly failed"
    for address in ("wei@example.org", "list@example.org"):
        assert "任务流" in mails[address]["subject"], address
        assert "退出码 3" in mails[address]["text"], address
    hook = next(row.payload for row in rows if row.topic == "alert.webhook")
    assert "退出码 3" in hook["body"]["data"]["reason"]["sentence"]
    assert hook["body"]["data"]["reason"]["code"] == "exit_code"


def test_without_a_chosen_language_an_alarm_is_in_the_portals_own_whoever_ends_the_run(
    kube: FakeKube, run: Run, settings: Any
) -> None:
    settings.LANGUAGE_CODE = "zh-hans"
    with translation.override("en"):
        end(kube, run, 3)
    assert "退出码 3" in messages()["alert.mail"]["text"]


def test_a_time_out_is_one_event(kube: FakeKube, run: Run) -> None:
    look(attempt_of(run))
    kube.run(kube.only(), at=timezone.now() - timedelta(minutes=5))
    look(attempt_of(run))
    look(attempt_of(run))
    assert fresh(run).reason_code == "run_timeout"
    assert OutboxMessage.objects.as_system().count() == 2
    assert messages()["alert.webhook"]["body"]["type"] == "run.timeout"


def test_a_success_and_a_cancel_tell_nobody(kube: FakeKube, run: Run, actor: Actor) -> None:
    end(kube, run, 0)
    other = services.run_now(actor=actor, flow=run.flow)
    services.cancel(actor=actor, run=other)
    look(attempt_of(other))
    assert fresh(other).state == "cancelled"
    assert messages() == {}


def test_an_alarm_that_cannot_be_written_leaves_the_run_unended(
    kube: FakeKube, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    look(attempt_of(run))
    kube.run(kube.only())
    kube.finish(kube.only(), exit_code=3)
    with monkeypatch.context() as broken:
        broken.setattr(outbox, "put", lambda **_: 1 / 0)
        look(attempt_of(run))
    assert fresh(run).state in {"queued", "running"}
    assert messages() == {}
    look(attempt_of(run))
    assert fresh(run).state == "failed"
    assert OutboxMessage.objects.as_system().count() == 2


@pytest.mark.parametrize(
    ("on", "event", "told"),
    [
        (("failed",), "failed", True),
        (("failed",), "timeout", True),
        (("timeout",), "timeout", True),
        (("timeout",), "failed", False),
        (("failed", "timeout"), "succeeded", False),
        (("succeeded",), "succeeded", True),
    ],
)
def test_which_rules_hear_of_which_event(on: tuple[str, ...], event: str, told: bool) -> None:
    assert alarms.concerns(AlertDoc(on=on, channel="mail", to=("a@b.c",)), event) is told
