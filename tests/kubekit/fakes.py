"""An API server that answers from a script, in a thread of its own, and keeps what it was asked."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class Asked:
    """One request as the server saw it."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


@dataclass
class FakeApi:
    """``script`` maps "METHOD /path" to the answers still to give; the last one is given again and again."""

    script: dict[str, list[Handler]] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    url: str = ""

    def answer(self, what: str, body: Any = None, *, status: int = 200, headers: dict[str, str] | None = None) -> Self:
        """Add an answer: a dict goes out as JSON, bytes as they are."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()

        async def give(request: web.Request) -> web.StreamResponse:
            return web.Response(status=status, body=raw, headers=headers or {}, content_type="application/json")

        return self.handle(what, give)

    def handle(self, what: str, handler: Handler) -> Self:
        """Add an answer that is made by a function."""
        self.script.setdefault(what, []).append(handler)
        return self

    def last(self) -> Asked:
        return self.asked[-1]

    async def dispatch(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        body = json.loads(raw) if raw else None
        seen = Asked(request.method, request.path, dict(request.query), dict(request.headers), body)
        self.asked.append(seen)
        left = self.script.get(f"{request.method} {request.path}")
        if not left:
            return web.json_response(status_body(404, "NotFound", f"no script for {request.path}"), status=404)
        handler = left.pop(0) if len(left) > 1 else left[0]
        try:
            return await handler(request)
        except ConnectionResetError:
            # The client has left; there is nobody to answer.
            return web.Response()


def status_body(code: int, reason: str, message: str, **details: Any) -> dict[str, Any]:
    """A Status as the server sends it."""
    return {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "reason": reason,
        "details": details, "code": code,
    }  # fmt: skip


async def reset(request: web.Request) -> web.StreamResponse:
    """Take the request and cut the connection without an answer."""
    assert request.transport is not None
    request.transport.abort()
    await asyncio.sleep(0)
    return web.Response()


async def silent(request: web.Request) -> web.StreamResponse:
    """Take the request and never answer."""
    await asyncio.sleep(3600)
    return web.Response()


def stream(*pieces: bytes, hold: bool = False, cut: bool = False) -> Handler:
    """A chunked answer in the given pieces; then end, hold the line without a byte, or cut it."""

    async def give(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
        if hold:
            await asyncio.sleep(3600)
        if cut:
            assert request.transport is not None
            request.transport.abort()
        return response

    return give


@contextmanager
def serving(api: FakeApi, *, port: int = 0, ssl_context: Any = None) -> Iterator[FakeApi]:
    """Serve on loopback until the block ends; open requests are cut then."""
    loop = asyncio.new_event_loop()
    started = threading.Event()
    runners: list[web.ServerRunner] = []

    async def begin() -> None:
        server = web.Server(api.dispatch, access_log=None, handler_cancellation=True)
        runner = web.ServerRunner(server, shutdown_timeout=0.05)
        runners.append(runner)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", port, ssl_context=ssl_context)
        await site.start()
        chosen = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
        api.url = f"{'https' if ssl_context else 'http'}://127.0.0.1:{chosen}"
        started.set()

    async def end() -> None:
        await runners[0].cleanup()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def run() -> None:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(begin())
        loop.run_forever()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert started.wait(5)
    try:
        yield api
    finally:
        asyncio.run_coroutine_threadsafe(end(), loop).result(5)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)
        loop.close()
