"""What lasts and needs an administrator: noted while it is so, shown, told once."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from django.test import Client
from django.utils import timezone

from apps.core import pulse, reconciling, standing, tasks
from apps.core.claims import Claim
from apps.core.models import OutboxMessage, Pulse, Trouble
from apps.core.reconciling import Reconciler
from apps.storage.models import Volume
from tests.tenants import make


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the reconciler of volumes was run with; an exception that is put first is raised."""
    found: list[Any] = []

    def run(pk: UUID, _claim: Claim) -> None:
        if found and isinstance(found[0], Exception):
            raise found[0]
        found.append(pk)

    monkeypatch.setattr(reconciling, "_registry", {"volume": Reconciler(kind="volume", model=Volume, run=run)})
    return found


def test_f19_a_row_that_fails_five_times_in_a_row_is_shown_with_what_was_raised(
    volume: Volume, runs: list[Any]
) -> None:
    runs.append(MemoryError("no room"))
    for _ in range(5):
        assert not Trouble.objects.as_system().exists()
        reconciling.reconcile_one("volume", volume.pk)
    (trouble,) = Trouble.objects.as_system().all()
    assert trouble.evidence == ["MemoryError: no room"]
    assert not OutboxMessage.objects.as_system().exists(), "shown, and no mail for each row"
    runs.clear()
    reconciling.reconcile_one("volume", volume.pk)
    assert not Trouble.objects.as_system().exists(), "it went well again"


def test_f17_workers_that_hear_nothing_are_told_of_and_an_answer_ends_it(
    db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    monkeypatch.setattr(pulse.current_app, "send_task", lambda name, **_: sent.append(name))
    make.admin(email="admin@example.org")
    pulse.ask()
    pulse.ask()
    assert not Trouble.objects.as_system().exists()
    Pulse.objects.as_system().update(asked_at=timezone.now() - pulse.SILENT)
    pulse.ask()
    assert Trouble.objects.as_system().get().code == standing.WORKERS_SILENT
    assert OutboxMessage.objects.as_system().count() == 1
    assert sent[-1] == tasks.answer_pulse.name
    tasks.answer_pulse()
    pulse.ask()
    assert not Trouble.objects.as_system().exists()
    assert sent == ["core.pulse"] * 4, "asked each time, also while nobody answers"


def test_f17_a_broker_that_is_away_is_no_fault_of_the_control_process(
    db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise OSError("no broker")

    monkeypatch.setattr(pulse.current_app, "send_task", broken)
    pulse.ask()
    Pulse.objects.as_system().update(asked_at=timezone.now() - pulse.SILENT)
    pulse.ask()
    assert Trouble.objects.as_system().get().code == standing.WORKERS_SILENT


def test_a_trouble_is_on_the_page_of_administrators_and_in_their_api_alone(db: None) -> None:
    standing.note(standing.SET_ASIDE, "volume:1", params={"what": "volume far-1", "times": 3})
    admin, member = make.admin(), make.user(role_in=make.team())
    for person, shown in ((admin, True), (member, False)):
        client = Client()
        client.force_login(person)
        assert ("volume far-1 could not be brought up to date" in client.get("/").content.decode()) is shown
        items = client.get("/api/v1/troubles").json()["items"]
        assert [item["subject"] for item in items] == (["volume:1"] if shown else [])


def test_what_lasts_is_told_once_and_anew_after_it_was_over(db: None) -> None:
    make.admin(email="admin@example.org")
    mails = OutboxMessage.objects.as_system()

    def note() -> None:
        standing.note(standing.SET_ASIDE, "volume:1", params={"what": "v", "times": 3})

    note()
    assert mails.count() == 0
    for _ in range(2):
        Trouble.objects.as_system().update(since=timezone.now() - standing.LASTING)
        note()
        note()
        assert mails.count() == 1, "told once"
    standing.over(standing.SET_ASIDE, "volume:1")
    note()
    Trouble.objects.as_system().update(since=timezone.now() - 2 * standing.LASTING)
    note()
    assert mails.count() == 2
