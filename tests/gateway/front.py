"""The gateway's connections without its process: a table in memory, and instances that are servers of this test."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from apps.instances.gateway import pages, people, serving
from apps.instances.gateway.places import Door, Launch, Places
from apps.instances.gateway.upstreams import Upstream
from apps.instances.gateway.visitors import Request, Visitor

DOMAIN = "apps.example.net"
PK = uuid.UUID("12345678123456781234567812345678")
HOST = f"i-{PK.hex}.{DOMAIN}"


def launch(pk: uuid.UUID = PK, **more: Any) -> Launch:
    """A launch that runs."""
    known = {
        "instance_id": pk,
        "cluster_id": uuid.UUID(int=1),
        "namespace": "n",
        "name": "p",
        "pod_uid": "u",
        "number": 1,
        "state": "running",
        "host": f"i-{pk.hex}.{DOMAIN}",
        "scheme": "https",
    }
    return Launch(**{**known, **more})


def places() -> Places:
    """An empty table with the states of instances."""
    return Places(open_states=("running", "unreachable"), starting_states=("queued", "starting"))


async def until(probe: Callable[[], Any]) -> None:
    """Wait until it holds."""
    for _ in range(9000):
        if probe():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never held")


class Gate:
    """See ``visitors.Gate``."""

    def __init__(self) -> None:
        self.now = time.monotonic()
        self.draining = False
        self.hidden_cookies = frozenset({b"mlportal-session", b"mlportal-csrf", people.COOKIE})
        self.visitors: set[Visitor] = set()
        self.places = places()
        self.passes = people.Passes()
        self.places.put(launch())
        self.port = 0
        self.dials = 0
        self.refuse = False
        self.slow: asyncio.Event | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def find(self, request: Request) -> Door | pages.Said:
        return serving.Gateway.find(self, request)  # type: ignore[arg-type]

    def enter(self, visitor: Visitor, door: Door, form: bytes) -> None:
        visitor.reply(people.admit(door, form))

    def page(self, said: pages.Said, language: str) -> bytes:
        return pages.answer(said, language=language, portal="https://portal.example.org")

    def dial(self, upstream: Upstream) -> None:
        self.dials += 1
        task = asyncio.ensure_future(self._dial(upstream))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _dial(self, upstream: Upstream) -> None:
        if self.slow is not None:
            await self.slow.wait()
        if self.refuse:
            upstream.failed(pages.NO_ANSWER)
            return
        await asyncio.get_running_loop().create_connection(lambda: upstream, "127.0.0.1", self.port)


Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def standing(handler: Handler) -> AsyncIterator[tuple[Gate, int]]:
    """A gateway before an instance that behaves like ``handler``; the gate and the gateway's port."""
    gate = Gate()
    loop = asyncio.get_running_loop()
    instance = await asyncio.start_server(handler, "127.0.0.1", 0, limit=1 << 20)
    gate.port = instance.sockets[0].getsockname()[1]
    server = await loop.create_server(lambda: Visitor(gate), "127.0.0.1", 0)
    try:
        yield gate, server.sockets[0].getsockname()[1]
    finally:
        server.close()
        instance.close()
        for visitor in list(gate.visitors):
            visitor.cut()
        gate.places.replace(())


class Heard:
    """An instance that notes what it hears and answers each request with what it was given."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)
        self.heads: list[str] = []
        self.bodies: list[bytes] = []
        self.connections = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                self.heads.append(head)
                self.bodies.append(await body_of(head, reader))
                answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                writer.write(answer)
                await writer.drain()
                if b"Connection: close" in answer:
                    break
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.close()


async def body_of(head: str, reader: asyncio.StreamReader) -> bytes:
    """What follows a head."""
    low = head.lower()
    if "transfer-encoding: chunked" in low:
        whole = b""
        while (size := int(await reader.readline(), 16)) > 0:
            whole += await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
        return whole
    if "content-length:" in low:
        return await reader.readexactly(int(low.split("content-length:")[1].split("\r\n")[0]))
    return b""


class Client:
    """One connection to the gateway."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def __aenter__(self) -> Client:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 22)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()

    async def ask(self, *lines: str, method: str = "GET", path: str = "/", host: str = HOST, body: bytes = b"") -> Any:
        """Send a request and read its answer: (status, head, body)."""
        head = "\r\n".join([f"{method} {path} HTTP/1.1", f"Host: {host}", *lines])
        self.writer.write(head.encode("latin-1") + b"\r\n\r\n" + body)
        return await self.answer(bare=method == "HEAD")

    async def answer(self, *, bare: bool = False) -> tuple[int, str, bytes]:
        """Read the next answer."""
        async with asyncio.timeout(60):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            status = int(head.split()[1])
            return status, head, b"" if bare or status in (101, 204, 304) else await body_of(head, self.reader)

    async def closed(self) -> bool:
        """Whether the gateway ends the connection; what comes before that is read."""
        async with asyncio.timeout(60):
            try:
                while await self.reader.read(1 << 16):
                    pass
            except ConnectionError:
                pass
            return True
