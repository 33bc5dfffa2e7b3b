"""The database of the tests is a real PostgreSQL, and hints are recorded."""

import pytest
from django.db import connection


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
