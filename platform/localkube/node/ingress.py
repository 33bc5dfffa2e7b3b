"""Ingress objects become ways through Caddy: a socket for each host that leads to one service (`hosts`), and for
whatever asks for more a route in Caddy's configuration, whose whole list is sent whenever it differs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable, Container, Iterable
from pathlib import Path
from typing import Any, Final

from localkube.node.hosts import Backend, Hosts, fits
from localkube.node.services import Services
from localkube.status import ApiError, Object
from localkube.store import Store

log = logging.getLogger(__name__)

ROUTES: Final = "/id/localkube-ingress-routes/routes"
_STREAM_CLOSE_DELAY: Final = "24h"
"""Else Caddy closes every web socket of every host whenever any route changes."""
_RETRY_S: Final = 0.2
_LONGEST_RETRY_S: Final = 3.0

Route = dict[str, Any]
Address = Callable[[str, str, int | str], str | None]
"""(namespace, service, port) -> `address:port` when something ready is behind it, else None."""


def routes(ingresses: Iterable[Object], address_of: Address, but: Container[str] = ()) -> list[Route]:
    """The routes of all Ingress objects, without the hosts in `but`: exact paths before prefixes, longer ones first,
    hosts in order of age."""
    found: list[tuple[tuple[int, int, str, str], Route]] = []
    for ingress in ingresses:
        metadata = ingress["metadata"]
        for rule in ingress["spec"].get("rules", []):
            if rule.get("host", "") in but:
                continue
            for path in (rule.get("http") or {}).get("paths", []):
                text = path.get("path") or "/"
                exact = path.get("pathType") == "Exact"
                match: dict[str, Any] = {}
                if rule.get("host"):
                    match["host"] = [rule["host"]]
                if exact:
                    match["path"] = [text]
                elif text != "/":
                    match["path"] = [text.rstrip("/"), text.rstrip("/") + "/*"]
                service = path["backend"]["service"]
                port = service["port"].get("number") or service["port"].get("name", "")
                address = address_of(metadata["namespace"], service["name"], port)
                route: Route = {"handle": [_proxy(address) if address else _unavailable()], "terminal": True}
                if match:
                    route["match"] = [match]
                order = (0 if exact else 1, -len(text), metadata.get("creationTimestamp", ""), metadata["uid"])
                found.append((order, route))
    return [route for _, route in sorted(found, key=lambda item: item[0])]


def simple_hosts(ingresses: Iterable[Object]) -> dict[str, Backend]:
    """The hosts all of whose requests go to one service."""
    found: dict[str, list[Backend | None]] = {}
    for ingress in ingresses:
        for rule in ingress["spec"].get("rules", []):
            for path in (rule.get("http") or {}).get("paths", []):
                service = path["backend"]["service"]
                port = service["port"].get("number") or service["port"].get("name", "")
                whole = (path.get("path") or "/") == "/" and path.get("pathType") != "Exact"
                backend = Backend(ingress["metadata"]["namespace"], service["name"], port) if whole else None
                found.setdefault(rule.get("host", ""), []).append(backend)
    return {host: leads[0] for host, leads in found.items() if fits(host) and len(leads) == 1 and leads[0]}


def _proxy(address: str) -> Route:
    return {
        "handler": "reverse_proxy",
        "upstreams": [{"dial": address}],
        "stream_close_delay": _STREAM_CLOSE_DELAY,
        "flush_interval": -1,
    }


def _unavailable() -> Route:
    return {
        "handler": "static_response",
        "status_code": 503,
        "headers": {"Content-Type": ["text/plain; charset=utf-8"], "Retry-After": ["2"]},
        "body": "Nothing is ready to answer here yet.\n",
    }


class CaddyError(OSError):
    """Caddy does not answer, or refused."""


class Caddy:
    """Its admin interface, on one kept connection: when that ends, Caddy may have restarted with an empty list."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        """One request; the decoded answer. Raises CaddyError."""
        if self._streams is None:
            try:
                self._streams = await asyncio.open_unix_connection(str(self._socket))
            except OSError as error:
                raise CaddyError(f"{self._socket}: {error.strerror or error}") from error
        reader, writer = self._streams
        data = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        try:
            await writer.drain()
            status, answer = await _read_answer(reader)
        except (OSError, ValueError, asyncio.IncompleteReadError) as error:
            self.drop()
            raise CaddyError(f"Caddy's admin interface: {error}") from error
        if status >= 400:
            raise CaddyError(f"Caddy answered {status} to {method} {path}: {answer.decode(errors='replace')[:300]}")
        return json.loads(answer) if answer.strip() else None

    async def ended(self) -> None:
        """Until the connection ends."""
        if self._streams:
            with contextlib.suppress(OSError):
                await self._streams[0].read(1)
        self.drop()

    def drop(self) -> None:
        """Close the connection."""
        if self._streams:
            self._streams[1].close()
            self._streams = None


async def _read_answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    first = await reader.readline()
    if not first:
        raise CaddyError("the connection was closed")
    headers: dict[str, str] = {}
    while line := (await reader.readline()).strip():
        name, _, value = line.decode().partition(":")
        headers[name.lower()] = value.strip()
    if headers.get("transfer-encoding") == "chunked":
        body = b""
        while size := int((await reader.readline()).strip(), 16):
            body += (await reader.readexactly(size + 2))[:size]
        await reader.readline()
    else:
        body = await reader.readexactly(int(headers.get("content-length", "0")))
    return int(first.split()[1]), body


class Ingresses:
    """Serves the hosts and sends the routes that the store's Ingress objects ask for, when they change and when Caddy
    comes back. Without a folder for `hosts` there are routes alone."""

    def __init__(self, store: Store, services: Services, socket: Path, hosts: Path | None = None) -> None:
        self._store, self._services, self._caddy = store, services, Caddy(socket)
        self._hosts = Hosts(hosts, services) if hosts else None
        self._changed = asyncio.Event()
        self._sent: list[Route] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._unsubscribe: list[Callable[[], None]] = []

    def start(self) -> None:
        """Begin to follow the store."""
        for resource in ("ingresses", "services"):
            self._unsubscribe.append(self._store.subscribe(resource, lambda _event, _obj: self.nudge()))
        self.nudge()
        self._tasks = [asyncio.create_task(self._run(), name="ingress routes")]

    async def stop(self) -> None:
        """Take the routes away and stop following."""
        while self._unsubscribe:
            self._unsubscribe.pop()()
        for task in self._tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        if self._hosts:
            self._hosts.close()
        if self._sent != []:
            with contextlib.suppress(CaddyError, TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._caddy.ask("PATCH", ROUTES, [])
        self._caddy.drop()

    def nudge(self) -> None:
        """Something changed that may change the routes: an object, or which pods are ready."""
        self._changed.set()

    def wanted(self) -> tuple[dict[str, Backend], list[Route]]:
        """The hosts and the routes as they should be now."""
        ingresses, _ = self._store.list("ingresses")
        alive = [ingress for ingress in ingresses if not ingress["metadata"].get("deletionTimestamp")]
        hosts = simple_hosts(alive) if self._hosts else {}
        return hosts, routes(alive, self._backend, but=hosts)

    def _backend(self, namespace: str, name: str, port: int | str) -> str | None:
        if not self._services.targets(namespace, name, port):
            return None
        return self._services.where(namespace, name, port)

    async def _run(self) -> None:
        delay, told = _RETRY_S, False
        while True:
            self._changed.clear()
            try:
                hosts, wanted = self.wanted()
                if self._hosts:
                    await self._hosts.sync(hosts)
                if self._sent is None and await self._caddy.ask("GET", ROUTES) == wanted:
                    self._sent = wanted
                if wanted != self._sent:
                    self._sent = None  # not known, should this be cancelled on the way
                    await self._caddy.ask("PATCH", ROUTES, wanted)
                    self._sent = wanted
                self._admit()
                delay, told = _RETRY_S, False
            except CaddyError as error:
                self._sent = None
                if not told:
                    log.warning("routes are not set yet: %s", error)
                    told = True
                await asyncio.sleep(delay)
                delay = min(delay * 1.5, _LONGEST_RETRY_S)
                continue
            await self._wait()

    async def _wait(self) -> None:
        """Until something changed or Caddy closed the connection (it does so too after a minute of silence)."""
        changed = asyncio.create_task(self._changed.wait())
        ended = asyncio.create_task(self._caddy.ended())
        try:
            await asyncio.wait({changed, ended}, return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                self._sent = None
        finally:
            for task in (changed, ended):
                task.cancel()
            # gather, because a cancellation of this very task must pass while it waits for the two
            await asyncio.gather(changed, ended, return_exceptions=True)

    def _admit(self) -> None:
        """Say in each Ingress' status that it is served, as controllers do."""
        address = {"loadBalancer": {"ingress": [{"ip": "127.0.0.1"}]}}
        for ingress in list(self._store.iterate("ingresses")):
            if ingress.get("status") != address and not ingress["metadata"].get("deletionTimestamp"):
                with contextlib.suppress(ApiError):  # it was deleted meanwhile
                    self._store.update("ingresses", {**ingress, "status": address}, subresource="status")
