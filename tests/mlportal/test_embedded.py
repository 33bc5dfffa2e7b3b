"""The servers from wheels: they start, are closed to others, and leave nothing."""

import asyncio
import json
import os
import signal
import socket
import stat
import subprocess
import threading
import time
import urllib.request

import psycopg
import pytest
import redis as redis_client
import websockets

from mlportal.embedded import caddy, postgres, redis
from mlportal.processes import started_ticks
from mlportal.program import DidNotStart, Program, started


@pytest.fixture
def folder():
    """A folder whose path is short enough for sockets."""
    import shutil
    import tempfile
    from pathlib import Path

    made = Path(tempfile.mkdtemp(prefix="mlp-"))
    yield made
    shutil.rmtree(made)


def mode(path):
    return oct(stat.S_IMODE(path.stat().st_mode))


def connect(folder, **options):
    return psycopg.connect(host=str(folder), user="mlportal", dbname="postgres", **options)


class TestPostgres:
    @pytest.fixture
    def server(self, folder):
        assert postgres.initialise(data=folder / "pg", fsync=False)
        return postgres.program(data=folder / "pg", run=folder, fsync=False)

    def test_it_keeps_data_and_closes_everything_behind_it(self, folder, server):
        with started(server, log=folder / "log"):
            assert mode(folder / "pg") == "0o700"
            assert mode(folder / ".s.PGSQL.5432") == "0o600"
            with connect(folder) as connection:
                connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
            pid = server.stop_pid()
        assert started_ticks(pid) is None
        assert not [path for path in folder.iterdir() if path.is_socket() or path.name.endswith(".lock")]
        assert not postgres.initialise(data=folder / "pg")
        with started(server, log=folder / "log"), connect(folder) as connection:
            assert connection.execute("SELECT answer FROM kept").fetchone() == (42,)

    def test_its_files_belong_to_the_user_who_started_it(self, folder, server):
        assert {path.stat().st_uid for path in (folder / "pg").rglob("*")} == {os.geteuid()}
        assert server.argv

    def test_it_recovers_what_was_committed_after_being_killed(self, folder, server):
        server = postgres.program(data=folder / "pg", run=folder)
        with started(server, log=folder / "log"):
            with connect(folder, autocommit=True) as connection:
                connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
            os.kill(server.stop_pid(), signal.SIGKILL)
            time.sleep(0.3)
        with started(server, log=folder / "log"), connect(folder) as connection:
            assert connection.execute("SELECT answer FROM kept").fetchone() == (42,)

    def test_a_stale_pid_file_that_names_another_process_does_not_stop_it(self, folder, server):
        (folder / "pg" / "postmaster.pid").write_text(f"{os.getpid()}\n{folder / 'pg'}\n")
        with started(server, log=folder / "log"), connect(folder) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)

    def test_data_of_another_major_version_is_refused_and_kept(self, folder, server):
        (folder / "pg" / "PG_VERSION").write_text("17\n")
        with pytest.raises(postgres.CannotRunPostgres, match=r"PostgreSQL 17.*brings 18"):
            postgres.initialise(data=folder / "pg")
        assert (folder / "pg" / "postgresql.conf").is_file()

    def test_an_interrupted_initdb_is_done_again(self, folder):
        (folder / "pg").mkdir()
        (folder / "pg" / "PG_VERSION").write_text("18")
        assert postgres.initialise(data=folder / "pg", fsync=False)
        assert (folder / "pg" / "postgresql.conf").is_file()


def test_redis_listens_on_a_closed_unix_socket_alone(folder):
    server = redis.program(data=folder / "data", socket=folder / "redis.sock")
    with started(server, log=folder / "log") as child:
        assert mode(folder / "redis.sock") == "0o600"
        client = redis_client.Redis(unix_socket_path=str(folder / "redis.sock"))
        assert client.ping()
        assert int(client.config_get("port")["port"]) == 0
        client.close()
    assert child.returncode is not None
    assert not (folder / "redis.sock").exists()
    assert list((folder / "data").iterdir()) == []


def test_a_program_that_ends_at_once_is_said_to_with_its_last_words(folder):
    broken = Program(name="broken", argv=("sh", "-c", "echo no such luck; exit 3"), ready=lambda: False)
    with pytest.raises(DidNotStart, match="no such luck"), started(broken, log=folder / "log"):
        pass


class TestCaddy:
    @pytest.fixture
    def port(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return probe.getsockname()[1]

    @pytest.fixture
    def server(self, folder, port):
        program = caddy.program(
            folder=folder / "caddy",
            address="127.0.0.1",
            port=port,
            admin=folder / "admin.sock",
            web=folder / "web.sock",
            apps_domain="apps.localhost",
            hosts=folder / "hosts",
            gateway=folder / "gateway.sock",
        )
        with started(program, log=folder / "log"):
            yield program
        assert not (folder / "admin.sock").exists()

    def get(self, port, host):
        request = urllib.request.Request(f"http://127.0.0.1:{port}/", headers={"Host": host})
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def put_routes(self, folder, routes):
        command = ["curl", "-sf", "--unix-socket", str(folder / "admin.sock"), "-X", "PATCH"]
        command += ["-H", "Content-Type: application/json", "-d", json.dumps(routes)]
        subprocess.run([*command, f"http://localhost/id/{caddy.INGRESS_ROUTES_ID}/routes"], check=True)

    def test_the_admin_interface_is_closed_to_others(self, folder, server):
        assert mode(folder / "admin.sock") == "0o600"
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", 2019)) != 0

    def test_a_host_of_the_apps_domain_never_shows_the_portal(self, server, port):
        assert self.get(port, f"i-unknown.apps.localhost:{port}") == (404, caddy.NO_INSTANCE)

    @pytest.mark.parametrize(
        ("host", "gets"),
        [
            ("i-0123456789abcdef0123456789abcdef.apps.localhost", "gateway"),
            ("p8080--i-0123456789abcdef0123456789abcdef.apps.localhost", "gateway"),
            ("i-0123456789abcdef0123456789abcdef.apps.another.example", "gateway"),
            ("i-0123456789abcdef0123456789abcde.apps.localhost", "nothing"),
        ],
    )
    def test_hosts_of_instances_without_a_socket_are_the_gateways(self, folder, server, port, host, gets):
        with socket.socket(socket.AF_UNIX) as gateway:
            gateway.bind(str(folder / "gateway.sock"))
            gateway.listen()
            answered = threading.Thread(target=self._answer_once, args=(gateway,), daemon=True)
            answered.start()
            if gets == "gateway":
                assert self.get(port, f"{host}:{port}") == (200, "gateway")
            else:
                assert self.get(port, f"{host}:{port}") == (404, caddy.NO_INSTANCE)

    @staticmethod
    def _answer_once(listener):
        connection, _ = listener.accept()
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\ngateway")
        connection.close()

    def test_routes_written_by_the_cluster_serve_their_host_alone(self, folder, server, port):
        answer = {"handler": "static_response", "status_code": 200, "body": "instance"}
        self.put_routes(folder, [{"match": [{"host": ["i-1.apps.localhost"]}], "handle": [answer], "terminal": True}])
        assert self.get(port, f"i-1.apps.localhost:{port}") == (200, "instance")
        assert self.get(port, f"i-2.apps.localhost:{port}")[0] == 404
        self.put_routes(folder, [])
        assert self.get(port, f"i-1.apps.localhost:{port}")[0] == 404

    def test_a_web_socket_to_the_portal_outlives_a_change_of_routes(self, folder, server, port):
        received = asyncio.run(self._talk_across_a_change(folder, port))
        assert received == ["before", "after"]

    async def _talk_across_a_change(self, folder, port):
        async def echo(connection):
            async for message in connection:
                await connection.send(message)

        address = f"ws://127.0.0.1:{port}/live"
        async with websockets.unix_serve(echo, str(folder / "web.sock")), websockets.connect(address) as connection:
            await connection.send("before")
            received = [await connection.recv()]
            answer = {"handler": "static_response", "status_code": 200}
            await asyncio.to_thread(self.put_routes, folder, [{"handle": [answer]}])
            await asyncio.sleep(0.5)
            await connection.send("after")
            received.append(await asyncio.wait_for(connection.recv(), 5))
        return received

    def test_a_portal_that_starts_a_moment_later_is_waited_for(self, folder, server, port):
        web = socket.socket(socket.AF_UNIX)

        def answer_late():
            time.sleep(0.5)
            web.bind(str(folder / "web.sock"))
            web.listen()
            connection, _ = web.accept()
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\nlate")
            connection.close()

        thread = threading.Thread(target=answer_late)
        thread.start()
        assert self.get(port, f"127.0.0.1:{port}") == (200, "late")
        thread.join()
        web.close()
