"""DATABASE_URL and REDIS_URL: the portal works with servers that others run, or says in one line why it cannot."""

import json
import os
import re
import shutil
import tempfile
from pathlib import Path

import kombu
import pytest
import redis

from mlportal import env, outside
from mlportal.preflight import Refused
from tests.mlportal.portal import PROCESSES, Browser, Portal, free_port
from tests.mlportal.servers import PASSWORD, QUOTED, outside_postgres, outside_redis

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("up")]


@pytest.fixture(scope="module")
def folder():
    """A folder whose path is short enough for sockets."""
    made = Path(tempfile.mkdtemp(prefix="mlp-out-"))
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def postgres(folder):
    (folder / "p").mkdir()
    with outside_postgres(folder / "p") as server:
        yield server


@pytest.fixture(scope="module")
def redis_port(folder):
    (folder / "r").mkdir()
    with outside_redis(folder / "r") as port:
        yield port


@pytest.fixture(scope="module")
def chosen(postgres, redis_port):
    """The two variables, for a database that is empty at first."""
    redis_url = f"redis://:{QUOTED}@127.0.0.1:{redis_port}/3"
    return {"DATABASE_URL": postgres.database("portal"), "REDIS_URL": redis_url}


def test_the_portal_runs_on_outside_servers_alone(folder, chosen, postgres, redis_port):
    portal = Portal(folder / "home")
    portal.start(PORTAL_ADMIN_PASSWORD="a-password-for-the-test", **chosen)
    try:
        assert set(portal.noted()) == PROCESSES - {"postgres", "redis"}
        assert portal.status("/readyz") == 200
        url, page = Browser(portal.port).sign_in("admin", "a-password-for-the-test")
        assert url == f"http://127.0.0.1:{portal.port}/"
        assert 'name="password"' not in page
        assert postgres.run("SELECT username FROM tenants_user", database="portal") == [("admin",)]
        assert postgres.run("SELECT count(*) FROM django_session", database="portal") == [(1,)]
        client = redis.Redis(port=redis_port, password=PASSWORD, db=3)
        portal.wait(lambda: client.exists("_kombu.binding.mlportal"), 90)  # the worker listens there
        client.close()
        assert not (portal.home / "pg").exists()
        assert not (portal.home / "redis").exists()
        portal.stop()
        assert portal.leftovers() == ([], [], [])
    finally:
        portal.end()
    outside.check(env.read({"PORTAL_HOME": str(portal.home), **chosen}))  # with its keys, the next start may use it


def refused(folder, name, **changes):
    """What is said, in one line."""
    portal = Portal(folder / name)
    portal.terminal = folder / f"{name}-terminal"
    code, said = portal.refused(**changes)
    assert code == os.EX_UNAVAILABLE, said
    assert len(said.splitlines()) == 1, said
    assert PASSWORD not in said
    assert QUOTED not in said
    assert not (portal.home / "pg").exists()  # nothing was begun
    assert list((portal.home / "log").iterdir()) == []
    return said


def test_a_wrong_password_of_the_database_is_said_in_one_line_and_nothing_is_started(folder, postgres):
    said = refused(folder, "a", DATABASE_URL=postgres.url("postgres", password="another"))
    assert 'password authentication failed for user "portal"' in said
    assert said.rstrip().endswith("Correct user, password and database name in DATABASE_URL. (database_refused)")
    assert "another" not in said


def test_a_database_that_does_not_answer_is_said_in_one_line(folder):
    port = free_port()
    said = refused(folder, "b", DATABASE_URL=f"postgresql://portal@127.0.0.1:{port}/portal")
    assert f"PostgreSQL at 127.0.0.1:{port} does not answer" in said
    assert said.rstrip().endswith("(database_unreachable)")


def test_a_wrong_password_of_redis_is_said_in_one_line(folder, redis_port):
    said = refused(folder, "c", REDIS_URL=f"redis://:another@127.0.0.1:{redis_port}/0")
    assert f"Redis at 127.0.0.1:{redis_port} refuses" in said
    assert said.rstrip().endswith("(redis_refused)")


def test_a_redis_that_does_not_answer_is_said_in_one_line(folder):
    port = free_port()
    said = refused(folder, "d", REDIS_URL=f"redis://127.0.0.1:{port}/0")
    assert f"Redis at 127.0.0.1:{port} does not answer" in said
    assert said.rstrip().endswith("(redis_unreachable)")


def why(folder, **values):
    """What `check` says to these variables."""
    with pytest.raises(Refused) as caught:
        outside.check(env.read({"PORTAL_HOME": str(folder / "none"), **values}))
    return str(caught.value)


def test_a_database_that_does_not_exist_is_refused(folder, postgres):
    said = why(folder, DATABASE_URL=postgres.url("nowhere"))
    assert 'database "nowhere" does not exist' in said
    assert "(database_refused)" in said


@pytest.mark.parametrize(
    ("name", "options", "afterwards", "code", "part"),
    [
        (
            "latin",
            "ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0",
            "SELECT 1",
            "database_encoding",
            "--encoding=UTF8",
        ),
        ("closed", "", "ALTER SCHEMA public OWNER TO mlportal", "database_not_permitted", "GRANT ALL ON SCHEMA public"),
        ("still", "", "ALTER DATABASE still SET default_transaction_read_only = on", "database_read_only", "primary"),
        ("other", "", "CREATE TABLE core_auditentry (id int)", "database_keys_missing", "PORTAL_SECRET_FILE"),
    ],
)
def test_a_database_that_cannot_serve_is_refused_with_what_to_do(
    folder, postgres, name, options, afterwards, code, part
):
    url = postgres.database(name, options=options)
    postgres.run(afterwards, database=name)
    said = why(folder, DATABASE_URL=url)
    assert part in said
    assert said.endswith(f"({code})")


def test_servers_that_are_too_old_are_refused(folder, postgres, redis_port, chosen, monkeypatch):
    monkeypatch.setattr(outside, "OLDEST_POSTGRES", 99)
    said = why(folder, DATABASE_URL=postgres.url("postgres"))
    assert re.search(r"is version 18\.\d+; the portal needs 99 or newer. Upgrade it. \(database_too_old\)", said)
    monkeypatch.setattr(outside, "OLDEST_REDIS", (99, 0))
    said = why(folder, REDIS_URL=chosen["REDIS_URL"])
    assert re.search(r"is version 6\.2\.\d+; the portal needs 99.0 or newer. Upgrade it. \(redis_too_old\)", said)


def test_memory_in_place_of_redis_is_for_unit_tests_alone(folder):
    assert "(redis_memory)" in why(folder, REDIS_URL=env.MEMORY)


def test_the_broker_is_reached_over_a_unix_socket_with_password_and_number(folder, redis_port):
    url = env.broker_url(f"unix://:{QUOTED}@{folder / 'r' / 'redis.sock'}?db=5")
    with kombu.Connection(url) as link:
        link.SimpleQueue("letters").put({"n": 1})
    client = redis.Redis(port=redis_port, password=PASSWORD, db=5)
    assert json.loads(client.lpop("letters"))["headers"] is not None
    client.close()
