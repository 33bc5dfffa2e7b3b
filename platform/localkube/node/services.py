"""Services: a listener on an address of this machine's loopback network that dials the ready pods behind it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from localkube.controllers.endpoints import target_port
from localkube.pods import is_ready
from localkube.selectors import from_object
from localkube.status import Object
from localkube.store import Store

log = logging.getLogger(__name__)

_PIECE: Final = 65536
_DIAL_S: Final = 5.0

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Dial = Callable[[Object, int], Awaitable[Streams]]


@dataclass(frozen=True)
class Target:
    """Where a port of a service leads inside a pod."""

    pod: Object
    port: int


class Services:
    """Keeps listeners as the store's services say. `where` tells the address that really is listened on."""

    def __init__(self, store: Store, dial: Dial) -> None:
        self._store, self._dial = store, dial
        self._servers: dict[tuple[str, int], asyncio.Server] = {}
        self._turn = 0
        self._work: set[asyncio.Task[None]] = set()
        self._lock = asyncio.Lock()
        self._unsubscribe: Callable[[], None] | None = None

    async def start(self) -> None:
        """Begin to follow the store."""
        self._unsubscribe = self._store.subscribe("services", self._on_service)
        for service in self._store.iterate("services"):
            await self._sync(service, gone=False)

    async def stop(self) -> None:
        """Close every listener and every connection."""
        if self._unsubscribe:
            self._unsubscribe()
        for server in self._servers.values():
            server.close()
        for task in list(self._work):
            task.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)

    def _on_service(self, event: str, service: Object) -> None:
        self._run(self._sync(service, gone=event == "DELETED"))

    def _run(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _sync(self, service: Object, *, gone: bool) -> None:
        async with self._lock:
            uid = service["metadata"]["uid"]
            spec = service["spec"]
            wanted = {int(port["port"]) for port in spec.get("ports", []) if port.get("protocol", "TCP") == "TCP"}
            if gone or not spec.get("selector") or spec.get("clusterIP") == "None":
                wanted = set()
            for key in [key for key in self._servers if key[0] == uid and key[1] not in wanted]:
                self._servers.pop(key).close()
            for port in wanted:
                if (uid, port) not in self._servers:
                    self._servers[uid, port] = await self._listen(service, port)

    async def _listen(self, service: Object, port: int) -> asyncio.Server:
        """On the cluster IP and the port where that can be, else on any free port there (an ordinary user may not
        take port 80, and a second localkube may have the address)."""
        metadata = service["metadata"]

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await self.serve(metadata["namespace"], metadata["name"], port, (reader, writer))
            finally:
                writer.close()

        for number in (port, 0):
            try:
                return await asyncio.start_server(serve, service["spec"]["clusterIP"], number, backlog=256)
            except OSError as error:
                if number == 0 or error.errno not in (errno.EACCES, errno.EADDRINUSE):
                    raise
        raise AssertionError("unreachable")

    def where(self, namespace: str, name: str, port: int | str) -> str | None:
        """`address:port` of a service's listener; None when there is no such service or port."""
        service = self._store.peek("services", namespace, name)
        if service is None:
            return None
        for entry in service["spec"].get("ports", []):
            if port in (entry["port"], entry.get("name")):
                server = self._servers.get((service["metadata"]["uid"], int(entry["port"])))
                if server and server.sockets:
                    host, number = server.sockets[0].getsockname()[:2]
                    return f"{host}:{number}"
        return None

    def targets(self, namespace: str, name: str, port: int | str) -> list[Target]:
        """The ready pods behind a service's port."""
        service = self._store.peek("services", namespace, name)
        if service is None:
            return []
        spec = service["spec"]
        entry = next((e for e in spec.get("ports", []) if port in (e["port"], e.get("name"))), None)
        if entry is None or not spec.get("selector"):
            return []
        selector = from_object({"matchLabels": spec["selector"]})
        found: list[Target] = []
        for pod in self._store.iterate("pods", namespace):
            if not selector.matches(pod["metadata"].get("labels")):
                continue
            usable = is_ready(pod) or spec.get("publishNotReadyAddresses")
            number = target_port(entry, pod)
            if usable and number and not pod["metadata"].get("deletionTimestamp"):
                found.append(Target(pod, int(number)))
        return found

    async def serve(self, namespace: str, name: str, port: int | str, client: Streams) -> bool:
        """Relay a connection to one of the ready pods until it ends; False when none could be reached."""
        task = asyncio.current_task()
        if task:
            self._work.add(task)
            task.add_done_callback(self._work.discard)
        targets = self.targets(namespace, name, port)
        self._turn += 1
        if not targets:
            return False
        target = targets[self._turn % len(targets)]
        try:
            async with asyncio.timeout(_DIAL_S):
                inside = await self._dial(target.pod, target.port)
        except (OSError, TimeoutError, RuntimeError) as error:
            log.debug("service %s/%s port %s: %s", namespace, name, port, error)
            return False
        await relay(client, inside)
        return True


async def relay(one: Streams, other: Streams) -> None:
    """Copy both ways until both sides have said all; a half-closed connection stays half open."""
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_copy(one[0], other[1]))
            group.create_task(_copy(other[0], one[1]))
    except* OSError as lost:
        log.debug("a connection ended: %s", lost.exceptions[0])
    finally:
        for _, writer in (one, other):
            writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_PIECE):
        writer.write(data)
        await writer.drain()
    with contextlib.suppress(OSError, RuntimeError):
        if writer.can_write_eof():
            writer.write_eof()
