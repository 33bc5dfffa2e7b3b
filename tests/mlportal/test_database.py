"""The database of the tests is a real PostgreSQL, and hints are recorded."""

import select

import psycopg
import pytest
from django.db import connection

from mlportal.database import base


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
    options = {**connection.settings_dict["OPTIONS"], "pool": {"min_size": 0, "max_size": 3, "timeout": 10}}
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
