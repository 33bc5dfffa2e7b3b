"""PostgreSQL and Redis as others run them: over TCP, with passwords, from the binaries that the portal brings."""

import socket
from contextlib import contextmanager
from dataclasses import dataclass, replace

import psycopg

from mlportal.embedded import postgres, redis
from mlportal.program import Program, started
from tests.mlportal.portal import free_port

PASSWORD = "p@ss/w:rd?1"
QUOTED = "p%40ss%2Fw%3Ard%3F1"


def _listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@dataclass(frozen=True)
class Postgres:
    """A server whose users need a password; `portal` is one without special rights."""

    port: int

    def url(self, database, *, user="portal", password=QUOTED):
        return f"postgresql://{user}:{password}@127.0.0.1:{self.port}/{database}"

    def run(self, statement, *, database="postgres"):
        """One statement as the server's administrator; the rows."""
        with psycopg.connect(self.url(database, user="mlportal"), autocommit=True) as link:
            cursor = link.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def database(self, name, *, owner="portal", options=""):
        """Make one and answer its URL."""
        self.run(f"CREATE DATABASE {name} OWNER {owner} {options}")
        return self.url(name)


@contextmanager
def outside_postgres(folder):
    """Run a server for the length of a block."""
    data, port = folder / "pg", free_port()
    postgres.initialise(data=data, fsync=False)
    server = postgres.program(data=data, run=folder, fsync=False)
    with (
        started(server, log=folder / "pg.log"),
        psycopg.connect(host=str(folder), user="mlportal", dbname="postgres") as link,
    ):
        link.execute(f"ALTER USER mlportal PASSWORD '{PASSWORD}'")
        link.execute(f"CREATE USER portal PASSWORD '{PASSWORD}'")
    (data / "pg_hba.conf").write_text("host all all 127.0.0.1/32 scram-sha-256\n")
    argv = (*server.argv, "-c", "listen_addresses=127.0.0.1", "-c", f"port={port}")
    with started(replace(server, argv=argv, ready=lambda: _listens(port)), log=folder / "pg.log"):
        yield Postgres(port)


@contextmanager
def outside_redis(folder):
    """Run a server for the length of a block; its port."""
    port = free_port()
    settings = {"port": str(port), "bind": "127.0.0.1", "requirepass": PASSWORD, "save": "", "dir": str(folder)}
    settings |= {"unixsocket": str(folder / "redis.sock"), "unixsocketperm": "600"}
    options = [part for name, value in settings.items() for part in (f"--{name}", value)]
    server = Program(name="redis", argv=(str(redis.binary()), *options), ready=lambda: _listens(port))
    with started(server, log=folder / "redis.log"):
        yield port
