"""The database of the tests is a real PostgreSQL, and hints are recorded."""

import select

import psycopg
import pytest
from django.db import OperationalError, connection

from apps.core import troubles
from mlportal.database import base, patience


@pytest.mark.django_db
def test_the_database_is_postgresql_with_the_time_outs_of_the_settings():
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('server_version_num')::int, current_setting('statement_timeout')")
        version, timeout = cursor.fetchone()
    assert version >= 180_000
    assert timeout == "30s"


def test_hints_are_kept_and_not_run(hints):
    from mlportal.celery import app

    ran = []

    @app.task(name="tests.echo")
    def echo(row_id):
        ran.append(row_id)

    echo.delay(7)
    assert [(hint.task, hint.args) for hint in hints] == [("tests.echo", (7,))]
    assert ran == []


@pytest.fixture
def pooled(transactional_db):
    """The backend as the portal's processes use it: connections are kept."""
    pool = {"connection_class": patience.Connection, "min_size": 0, "max_size": 3, "timeout": 10}
    options = {**connection.settings_dict["OPTIONS"], "pool": pool}
    found = base.DatabaseWrapper({**connection.settings_dict, "OPTIONS": options}, alias="pooled")
    yield found
    found.close()
    found.close_pool()


def pid_of(link):
    with link.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return cursor.fetchone()[0]


def test_a_kept_connection_is_used_again_without_asking_it(pooled, monkeypatch):
    asked = []
    monkeypatch.setattr(base.ConnectionPool, "check_connection", asked.append)
    first = pid_of(pooled)
    pooled.close()
    assert pid_of(pooled) == first
    assert asked == []


def test_a_kept_connection_with_news_is_asked_and_used(pooled):
    first = pid_of(pooled)
    with pooled.cursor() as cursor:
        cursor.execute("LISTEN news")
    kept = pooled.connection
    pooled.close()
    with connection.cursor() as cursor:
        cursor.execute("NOTIFY news")
    assert select.select([kept.fileno()], [], [], 90)[0]
    assert pid_of(pooled) == first


def test_connections_that_the_server_ended_are_replaced(pooled):
    first = pid_of(pooled)
    kept = pooled.connection
    pooled.close()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s)", [first])
    assert select.select([kept.fileno()], [], [], 90)[0]
    assert pid_of(pooled) != first
    assert kept.closed


@pytest.mark.parametrize("in_transaction", [False, True])
def test_an_answer_that_does_not_come_ends_the_connection_and_not_the_portal(pooled, monkeypatch, in_transaction):
    first = pid_of(pooled)
    pooled.set_autocommit(not in_transaction)
    silent = pooled.connection
    monkeypatch.setattr(patience.Connection, "patience_s", 0.2)
    with pytest.raises(OperationalError, match=r"not answered for 0\.2 s") as caught, pooled.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(20)")
    assert (troubles.of(caught.value).status, troubles.of(caught.value).code) == (503, "database_away")
    assert silent.closed
    monkeypatch.setattr(patience.Connection, "patience_s", 90.0)
    pooled.close()
    assert pid_of(pooled) != first
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s)", [first])


def test_whoever_does_not_serve_people_waits_as_long_as_it_takes(pooled):
    assert patience.Connection.patience_s is None
    with pooled.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(0.3)")


def test_a_new_connection_needs_no_statement_to_have_the_right_time_zone(transactional_db, monkeypatch):
    with connection.cursor() as cursor:
        name = connection.ops.quote_name(connection.settings_dict["NAME"])
        cursor.execute(f"ALTER DATABASE {name} SET timezone = 'Asia/Shanghai'")
        try:
            sent = []
            fresh = base.DatabaseWrapper(connection.settings_dict, alias="fresh")
            with monkeypatch.context() as patched:
                patched.setattr(psycopg.Cursor, "execute", lambda self, query, *args: sent.append(query))
                fresh.connect()
            fresh.close()
        finally:
            cursor.execute(f"ALTER DATABASE {name} RESET timezone")
    assert sent == []
