"""A database in trouble is told in words with a code, on pages and in the API, and is no mistake of the person's."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from django.db import OperationalError, ProgrammingError, connection, transaction
from django.test import Client

from apps.core import troubles
from apps.tenants import tokens
from apps.tenants.api import QueueViewSet
from apps.tenants.views import QueueList
from tests.tenants import make


def caused_by(cause: Exception) -> OperationalError:
    """As Django wraps what psycopg raises."""
    error = OperationalError(str(cause))
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("cause", "code"),
    [
        (psycopg.errors.DiskFull("could not extend file: No space left on device"), "disk_full"),
        (psycopg.errors.QueryCanceled("canceling statement due to statement timeout"), "database_slow"),
        (psycopg.errors.LockNotAvailable("canceling statement due to lock timeout"), "database_slow"),
        (psycopg.errors.AdminShutdown("terminating connection"), "database_away"),
        (psycopg.OperationalError("connection is bad"), "database_away"),
    ],
)
def test_each_trouble_has_its_code_and_a_next_step(cause: Exception, code: str) -> None:
    found = troubles.of(caused_by(cause))
    assert found is not None
    assert (found.status, found.code) == (503, code)
    assert str(found.next)


@pytest.mark.parametrize("error", [ProgrammingError("no such column"), ValueError("x"), None])
def test_faults_of_the_program_are_not_called_troubles(error: Exception | None) -> None:
    assert troubles.of(error) is None


@pytest.mark.django_db
def test_a_statement_that_takes_too_long_is_recognised_as_the_server_says_it() -> None:
    with pytest.raises(OperationalError) as caught, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL statement_timeout = 20")
        cursor.execute("SELECT pg_sleep(2)")
    found = troubles.of(caught.value)
    assert found is not None
    assert found.code == "database_slow"


@pytest.mark.django_db
def test_a_full_disk_reads_the_same_on_a_page_and_in_the_api(monkeypatch: pytest.MonkeyPatch) -> None:
    person = make.admin()
    _row, text = tokens.create(actor=make.actor(person), name="t")
    browser = Client(raise_request_exception=False)
    browser.force_login(person)

    def full(*_: Any, **__: Any) -> None:
        raise caused_by(psycopg.errors.DiskFull("could not extend file"))

    monkeypatch.setattr(QueueList, "rows", full)
    monkeypatch.setattr(QueueViewSet, "rows", full)
    page = browser.get("/queues")
    answer = Client(headers={"Authorization": f"Bearer {text}"}).get("/api/v1/queues")
    assert (page.status_code, answer.status_code) == (503, 503)
    assert answer.json()["code"] == "disk_full"
    assert "disk of the portal" in page.content.decode()
    assert 'data-error-code="disk_full"' in page.content.decode()
