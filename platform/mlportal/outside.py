"""Servers that the portal does not run itself (DATABASE_URL, REDIS_URL): whether it can work with them, asked first.

Every refusal says which server, in whose words, with a stable code, and the one thing to do. Passwords are never said.
"""

from __future__ import annotations

import os
import socket
from urllib.parse import urlsplit

import psycopg
import redis

from mlportal.env import MEMORY, Database, Environment
from mlportal.preflight import Refused

OLDEST_POSTGRES = 15
"""The oldest version on which the migrations were run; Django 5.2 itself would take 14."""
OLDEST_REDIS = (6, 2)
"""The one that the portal brings, which its tests run on."""
WAIT_S = 5

_STATE = """
SELECT current_setting('server_version_num')::int / 10000 AS major, current_setting('server_version') AS version,
       current_setting('server_encoding') AS encoding, current_setting('transaction_read_only')::bool AS read_only,
       coalesce(has_schema_privilege(current_schema(), 'CREATE'), false) AS may_create,
       to_regclass('core_auditentry') IS NOT NULL AS used
"""


def check(environment: Environment) -> None:
    """Ask each outside server whether it answers, lets the portal in, and is new enough.

    Raises Refused.
    """
    if not environment.database_embedded:
        _database(environment.database, keys=environment.secret_file.exists(), keys_at=str(environment.secret_file))
    if not environment.redis_embedded:
        _redis(environment.redis_url)


def _database(database: Database, *, keys: bool, keys_at: str) -> None:
    where = f"PostgreSQL at {database.host or 'localhost'}" + (f":{database.port}" if database.port else "")
    try:
        _reach(database.host or "localhost", int(database.port or 5432))
    except OSError as error:
        raise _refused(
            "database_unreachable", f"{where} does not answer: {_one_line(error)}. Start it, or correct DATABASE_URL."
        ) from error
    try:
        with psycopg.connect(database.url(), connect_timeout=WAIT_S) as link:
            row = link.execute(_STATE).fetchone()
    except psycopg.Error as error:
        raise _refused(
            "database_refused",
            f"{where} refuses: {_one_line(error)}. Correct user, password and database name in DATABASE_URL.",
        ) from error
    assert row is not None  # a SELECT without FROM has one row
    major, version, encoding, read_only, may_create, used = row
    if major < OLDEST_POSTGRES:
        raise _refused(
            "database_too_old",
            f"{where} is version {version}; the portal needs {OLDEST_POSTGRES} or newer. Upgrade it.",
        )
    if encoding != "UTF8":
        raise _refused(
            "database_encoding",
            f"the database {database.name} of {where} is encoded as {encoding}, in which names in other scripts "
            f"cannot be written. Make it anew: createdb --encoding=UTF8 --template=template0 {database.name}",
        )
    if read_only:
        raise _refused(
            "database_read_only",
            f"{where} takes no changes: it is a standby, or was set to read only. Name its primary in DATABASE_URL.",
        )
    if not may_create:
        raise _refused(
            "database_not_permitted",
            f"{where} does not let {database.user} make tables. As its administrator run: "
            f"GRANT ALL ON SCHEMA public TO {database.user}",
        )
    if used and not keys:
        raise _refused(
            "database_keys_missing",
            f"{where} holds a portal's database, which was encrypted with keys that are not here. Put them into "
            f"{keys_at}, or name their file with PORTAL_SECRET_FILE.",
        )


def _reach(host: str, port: int) -> None:
    """Open a connection and close it; libpq words what happens here and what the server says alike."""
    if host.startswith("/"):
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(WAIT_S)
            probe.connect(f"{host}/.s.PGSQL.{port}")
    else:
        socket.create_connection((host, port), WAIT_S).close()


def _redis(url: str) -> None:
    if url == MEMORY:
        raise Refused(
            "REDIS_URL is memory://, which processes cannot share; it is for unit tests. Leave it out. (redis_memory)",
            code=os.EX_USAGE,
        )
    parts = urlsplit(url)
    where = f"Redis at {parts.path}" if parts.scheme == "unix" else f"Redis at {parts.hostname}:{parts.port or 6379}"
    client = redis.Redis.from_url(url, socket_connect_timeout=WAIT_S, socket_timeout=WAIT_S)
    try:
        found = str(client.info("server")["redis_version"])
    except (redis.AuthenticationError, redis.ResponseError) as error:
        text = _one_line(error)
        raise _refused(
            "redis_refused", f"{where} refuses: {text}. Correct user, password and number of the database in REDIS_URL."
        ) from error
    except (redis.RedisError, OSError) as error:
        text = _one_line(error)
        raise _refused(
            "redis_unreachable", f"{where} does not answer: {text}. Start it, or correct REDIS_URL."
        ) from error
    finally:
        client.close()
    if tuple(int(part) for part in found.split(".")[:2]) < OLDEST_REDIS:
        oldest = ".".join(map(str, OLDEST_REDIS))
        raise _refused("redis_too_old", f"{where} is version {found}; the portal needs {oldest} or newer. Upgrade it.")


def _refused(code: str, text: str) -> Refused:
    return Refused(f"{text} ({code})", code=os.EX_UNAVAILABLE)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".")
