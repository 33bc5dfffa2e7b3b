"""Hosts come and go without anything else noticing: through a real Caddy, beside open connections and requests."""

from __future__ import annotations

import asyncio
import shutil
import stat
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from localkube.node.hosts import fits
from localkube.node.ingress import ROUTES, Caddy, Ingresses
from localkube.node.services import Streams, relay
from localkube.store import Store
from mlportal.embedded import caddy
from mlportal.program import started
from tests.mlportal.portal import free_port

SOCKETS, CHANGES = 20, 40


class Straight:
    """Services all of which lead to one server of this test; one named `none` has nothing behind it."""

    def __init__(self) -> None:
        self.path = ""

    async def serve(self, _namespace: str, name: str, _port: Any, client: Streams) -> bool:
        if name == "none":
            return False
        await relay(client, await asyncio.open_unix_connection(self.path))
        return True

    def targets(self, *_: Any) -> list[Any]:
        return [self]

    def where(self, *_: Any) -> str:
        return f"unix/{self.path}"


async def backend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers requests with their path; says everything again to whoever asks for an upgrade."""
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            if b"upgrade: websocket" in head.lower():
                writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
                while piece := await reader.read(100):
                    writer.write(piece)
                return
            path = head.split(b" ", 2)[1]
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(path), path))
    except (asyncio.IncompleteReadError, OSError):
        return
    finally:
        writer.close()


@dataclass
class Front:
    """A Caddy with the hosts of a store's Ingress objects behind it."""

    port: int
    store: Store
    folder: Path

    async def connect(self, host: str, path: str = "/", more: str = "Connection: close\r\n") -> Streams:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}:{self.port}\r\n{more}\r\n".encode())
        return reader, writer

    async def get(self, host: str, path: str = "/") -> tuple[int, str]:
        reader, writer = await self.connect(host, path)
        answer = (await reader.read()).decode()
        writer.close()
        return int(answer.split()[1]), answer.rpartition("\r\n\r\n")[2]

    async def upgrade(self, host: str) -> Streams:
        more = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==\r\n"
        reader, writer = await self.connect(host, more=more)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
        return reader, writer

    def add(self, name: str, host: str, *paths: str, service: str = "web") -> None:
        entries = [
            {"path": path, "pathType": "Prefix", "backend": {"service": {"name": service, "port": {"number": 80}}}}
            for path in paths or ("/",)
        ]
        rules = [{"host": host, "http": {"paths": entries}}]
        self.store.create("ingresses", {"metadata": {"name": name, "namespace": "default"}, "spec": {"rules": rules}})

    async def answers(self, host: str, status: int, path: str = "/") -> str:
        """The text, once the host answers with this status."""
        async with asyncio.timeout(90):
            while (found := await self.get(host, path))[0] != status:  # noqa: ASYNC110 - it is the outside that changes
                await asyncio.sleep(0.01)
        return found[1]


@pytest.fixture
async def front() -> AsyncIterator[Front]:
    folder = Path(tempfile.mkdtemp(prefix="mlp-hosts-"))
    services = Straight()
    services.path = str(folder / "backend.sock")
    server = await asyncio.start_unix_server(backend, services.path)
    store = Store(folder / "store.db")
    store.create("namespaces", {"metadata": {"name": "default"}})
    port = free_port()
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
        ingresses = Ingresses(store, services, folder / "admin.sock", folder / "hosts")  # type: ignore[arg-type]
        ingresses.start()
        yield Front(port, store, folder)
        await ingresses.stop()
        assert list((folder / "hosts").iterdir()) == []
    assert not (folder / "hosts").exists()
    server.close()
    store.close()
    shutil.rmtree(folder)


async def test_open_sockets_and_requests_do_not_notice_hosts_that_come_and_go(front: Front) -> None:
    front.add("lasting", "i-0.apps.localhost")
    await front.answers("i-0.apps.localhost", 200)
    config = await Caddy(front.folder / "admin.sock").ask("GET", ROUTES)
    sockets = [await front.upgrade("i-0.apps.localhost") for _ in range(SOCKETS)]
    seen: Counter[str] = Counter()
    ended = asyncio.Event()

    async def poll() -> None:
        while not ended.is_set():
            try:
                status, _ = await front.get("i-0.apps.localhost", "/x")
                seen[str(status)] += 1
            except (OSError, IndexError) as error:
                seen[repr(error)] += 1
            await asyncio.sleep(0.005)

    polls = [asyncio.create_task(poll()) for _ in range(4)]
    for number in range(1, CHANGES + 1):
        host = f"i-{number}.apps.localhost"
        front.add(f"n{number}", host)
        assert await front.answers(host, 200, f"/{number}") == f"/{number}"
        front.store.delete("ingresses", "default", f"n{number}")
        assert await front.answers(host, 404) == caddy.NO_INSTANCE
    ended.set()
    await asyncio.gather(*polls)
    assert set(seen) == {"200"}
    assert seen["200"] >= CHANGES
    for reader, writer in sockets:
        writer.write(b"still here")
        async with asyncio.timeout(90):
            assert await reader.readexactly(10) == b"still here"
        writer.close()
    assert config == [] == await Caddy(front.folder / "admin.sock").ask("GET", ROUTES)


async def test_connections_of_a_host_that_goes_are_cut(front: Front, caplog: pytest.LogCaptureFixture) -> None:
    front.add("a", "i-1.apps.localhost")
    await front.answers("i-1.apps.localhost", 200)
    reader, writer = await front.upgrade("i-1.apps.localhost")
    front.store.delete("ingresses", "default", "a")
    async with asyncio.timeout(90):
        assert await reader.read() == b""
    writer.close()
    assert caplog.records == []


async def test_a_host_with_nothing_behind_it_answers_503_and_its_socket_is_closed_to_others(front: Front) -> None:
    front.add("a", "i-1.apps.localhost", service="none")
    assert await front.answers("i-1.apps.localhost", 503) == "Nothing is ready to answer here yet.\n"
    assert stat.S_IMODE((front.folder / "hosts" / "i-1.apps.localhost").stat().st_mode) == 0o600


async def test_a_host_with_several_paths_is_a_route_of_caddy(front: Front) -> None:
    front.add("a", "i-1.apps.localhost", "/a", "/b")
    assert await front.answers("i-1.apps.localhost", 200, "/b/x") == "/b/x"
    assert list((front.folder / "hosts").iterdir()) == []
    assert len(await Caddy(front.folder / "admin.sock").ask("GET", ROUTES)) == 2


async def test_what_a_killed_localkube_left_is_removed(front: Front) -> None:
    (front.folder / "hosts" / "i-9.apps.localhost").touch()
    front.add("a", "i-1.apps.localhost")
    await front.answers("i-1.apps.localhost", 200)
    assert [path.name for path in (front.folder / "hosts").iterdir()] == ["i-1.apps.localhost"]


@pytest.mark.parametrize("host", ["", "*.apps.localhost", "..", ".hidden", "a/b", "A.localhost", "a" * 101])
def test_what_is_no_plain_host_gets_no_socket(host: str) -> None:
    assert not fits(host)
