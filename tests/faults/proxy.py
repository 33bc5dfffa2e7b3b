"""A proxy between the portal and an API server that does to requests what networks and control planes do.

It speaks TLS with a certificate of its own on one side and with the credentials of a real or an embedded cluster on the
other. A test plans a fault (``proxy.plan``), the next request that fits meets it, and ``proxy.seen`` tells what was
asked, in order. It runs in a thread with its own event loop, so that synchronous clients meet it too.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import struct
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from yarl import URL

from kubekit.credentials import Credentials
from tests.kubekit.certificates import authority

_HOP = {"host", "connection", "transfer-encoding", "content-length", "keep-alive", "authorization", "accept-encoding"}
#: A test that waits longer has failed; nothing here waits for ever.
PATIENCE_S = float(os.environ.get("MLPORTAL_FAULT_PATIENCE_S", "90"))


@dataclass
class Fault:
    """What happens to requests that fit, ``times`` times. ``met`` counts, ``reached`` is set at the first.

    ``kind`` is one of:

    * ``drop``: carried out, then the connection is reset instead of an answer;
    * ``reset``: the connection is reset before anything was forwarded;
    * ``hole``: not forwarded and never answered, with the connection open (no FIN);
    * ``hold``: not forwarded before ``release`` is called; ``hold-answer``: carried out, answered after ``release``;
    * ``answer``: ``status`` and ``reason`` without forwarding; ``answer-after``: the same, though it was carried out.

    Those of watches let ``lines`` events through first:

    * ``silence``: nothing more comes, with the connection open; ``cut``: reset in the middle of a stream;
    * ``expire``: the ERROR event with code 410 inside the good answer; ``replay``: ``events`` come again.
    """

    kind: str
    method: str = ""
    path: str = ""
    watch: bool | None = None
    times: int = 1
    status: int = 500
    reason: str = "InternalError"
    retry_after: int | None = None
    lines: int = 0
    events: list[dict[str, Any]] = field(default_factory=list)
    met: int = 0
    reached: threading.Event = field(default_factory=threading.Event)
    _go_on: threading.Event = field(default_factory=threading.Event)

    def release(self) -> None:
        """Let go what is held."""
        self._go_on.set()

    def wait(self) -> None:
        """Until a request has met it."""
        assert self.reached.wait(PATIENCE_S), f"no request met the fault {self.kind} {self.method} {self.path}"

    async def held(self) -> None:
        """Until released."""
        for _ in range(int(PATIENCE_S * 100)):
            if self._go_on.is_set():
                return
            await asyncio.sleep(0.01)

    def fits(self, seen: Seen) -> bool:
        """Whether the request is one of those meant."""
        return (
            self.met < self.times
            and (not self.method or self.method == seen.method)
            and (self.watch is None or self.watch == seen.watch)
            and re.search(self.path, seen.path) is not None
        )


@dataclass
class Seen:
    """One request as the portal sent it; ``status`` is what the cluster answered (0: it was never asked)."""

    method: str
    path: str
    query: dict[str, str]
    body: bytes
    status: int = 0

    @property
    def watch(self) -> bool:
        """Whether it asks for a stream of events."""
        return self.query.get("watch") in ("1", "true")


class FaultProxy:
    """``start`` it, give its ``credentials`` to the portal, ``plan`` faults, ``stop`` it."""

    def __init__(self, upstream: Credentials, folder: Path) -> None:
        self._upstream = upstream
        ca = authority()
        self._context = ca.server_context(folder)
        self._ca = ca.certificate
        self._faults: list[Fault] = []
        self._lock = threading.Lock()
        self._dark = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault proxy", daemon=True)
        self.seen: list[Seen] = []
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.port = 0
        #: Asked for each request that no planned fault fits.
        self.chance: Callable[[Seen], Fault | None] = lambda _seen: None

    # -- for tests ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Listen on a free port of loopback."""
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._open(), self._loop).result(30)

    def stop(self) -> None:
        """Close everything, what is held included."""
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()

    @property
    def credentials(self) -> Credentials:
        """With which the portal reaches the cluster through here."""
        return Credentials(server=f"https://127.0.0.1:{self.port}", ca_data=self._ca, token="through-the-proxy")

    def plan(self, kind: str, **fields: Any) -> Fault:
        """The next requests that fit meet this."""
        fault = Fault(kind, **fields)
        with self._lock:
            self._faults.append(fault)
        return fault

    def calm(self) -> None:
        """No more faults; what is held goes on."""
        with self._lock:
            for fault in self._faults:
                fault.times = 0
                fault.release()
            self._faults.clear()
        self._dark = False

    def go_dark(self) -> None:
        """From now on every request is swallowed, and streams that are open say nothing more."""
        self._dark = True

    def asked(self, method: str, path: str = "") -> list[Seen]:
        """The requests of a method whose path matches."""
        return [seen for seen in list(self.seen) if seen.method == method and re.search(path, seen.path)]

    # -- inside ------------------------------------------------------------------------------------------------

    async def _open(self) -> None:
        upstream = self._upstream
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=upstream.ssl_context() if upstream.secure else False, limit=0),
            timeout=aiohttp.ClientTimeout(total=None, connect=10),
            headers=upstream.headers(),
            auto_decompress=False,
        )
        application = web.Application(client_max_size=64 << 20)
        application.router.add_route("*", "/{rest:.*}", self._handle)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._context)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def _close(self) -> None:
        self.calm()
        await self._runner.cleanup()
        await self._session.close()

    def _meet(self, seen: Seen) -> Fault | None:
        with self._lock:
            self.seen.append(seen)
            found = next((fault for fault in self._faults if fault.fits(seen)), None)
            if found is not None:
                found.met += 1
            return found or self.chance(seen)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        seen = Seen(request.method, request.path, dict(request.query), await request.read())
        fault = self._meet(seen)
        kind = fault.kind if fault is not None else ""
        if fault is not None and kind in ("reset", "hole", "answer", "hold"):
            fault.reached.set()
        if kind == "hole" or self._dark:
            await asyncio.sleep(PATIENCE_S)
        if kind == "reset":
            return _reset(request)
        if fault is not None and kind == "answer":
            return _status(fault)
        if fault is not None and kind == "hold":
            await fault.held()
        upstream = await self._forward(request, seen)
        async with upstream:
            seen.status = upstream.status
            if seen.watch and upstream.status == 200:
                return await self._stream(request, seen, upstream, fault)
            if seen.query.get("follow") == "true" and upstream.status == 200:
                return await _relay(request, upstream)
            data = await upstream.read()
        if fault is not None and kind in ("drop", "hold-answer", "answer-after"):
            fault.reached.set()
        if kind == "drop":
            return _reset(request)
        if fault is not None and kind == "hold-answer":
            await fault.held()
        if fault is not None and kind == "answer-after":
            return _status(fault)
        return web.Response(status=upstream.status, body=data, headers=_end_to_end(upstream.headers))

    async def _forward(self, request: web.Request, seen: Seen) -> aiohttp.ClientResponse:
        url = URL(self._upstream.server + request.raw_path, encoded=True)
        headers = _end_to_end(request.headers) | {"Accept-Encoding": "identity"}
        return await self._session.request(
            request.method, url, data=seen.body or None, headers=headers, allow_redirects=False
        )

    async def _stream(
        self, request: web.Request, seen: Seen, upstream: aiohttp.ClientResponse, fault: Fault | None
    ) -> web.StreamResponse:
        """Events line by line, as long as the fault lets them through."""
        response = web.StreamResponse(headers=_end_to_end(upstream.headers))
        await response.prepare(request)
        count = 0
        if fault is not None and fault.lines == 0 and await self._strike(request, response, fault):
            return response
        async for line in _lines(upstream):
            if self._dark:
                await asyncio.sleep(PATIENCE_S)
            self.events.append((seen.path, json.loads(line)))
            await response.write(line + b"\n")
            count += 1
            if fault is not None and count == fault.lines and await self._strike(request, response, fault):
                return response
        return response

    async def _strike(self, request: web.Request, response: web.StreamResponse, fault: Fault) -> bool:
        """Do it; True when the stream is over with it."""
        if fault.kind == "replay":
            for event in fault.events:
                await response.write(json.dumps(event).encode() + b"\n")
        if fault.kind == "expire":
            gone = {"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired"}
            event = {"type": "ERROR", "object": gone | {"message": "too old resource version: 1 (2)"}}
            await response.write(json.dumps(event).encode() + b"\n")
        fault.reached.set()
        if fault.kind == "silence":
            await asyncio.sleep(PATIENCE_S)
        if fault.kind == "cut":
            _reset(request)
        return fault.kind in ("expire", "cut", "silence")


async def _lines(upstream: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    pending = b""
    async for piece in upstream.content.iter_any():
        *complete, pending = (pending + piece).split(b"\n")
        for line in complete:
            if line.strip():
                yield line


async def _relay(request: web.Request, upstream: aiohttp.ClientResponse) -> web.StreamResponse:
    response = web.StreamResponse(headers=_end_to_end(upstream.headers))
    await response.prepare(request)
    async for piece in upstream.content.iter_any():
        await response.write(piece)
    return response


def _end_to_end(headers: Any) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _HOP}


def _status(fault: Fault) -> web.Response:
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": fault.status, "reason": fault.reason}
    headers = {"Retry-After": str(fault.retry_after)} if fault.retry_after is not None else {}
    return web.json_response(body | {"message": f"planned: {fault.reason}"}, status=fault.status, headers=headers)


def _reset(request: web.Request) -> web.Response:
    """RST, as from a load balancer that lost its table; what is returned reaches nobody."""
    transport = request.transport
    if transport is not None:
        line = transport.get_extra_info("socket")
        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()
    return web.Response()
