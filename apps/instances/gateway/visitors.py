"""The half of a connection that people are at: reads requests, finds the instance, and hands them on.

One request after the other, as HTTP/1.1 wants it: what is sent meanwhile waits in the kernel. After a web socket's
handshake only bytes are passed on, in both directions and for as long as it lasts.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol, cast

import httptools

from apps.instances.gateway import heads, pages, people, sockets
from apps.instances.gateway.heads import Fate
from apps.instances.gateway.places import Door
from apps.instances.gateway.upstreams import Upstream

#: What a request's body may be ahead of its instance.
AHEAD = 64 << 10
IDEMPOTENT = frozenset({b"GET", b"HEAD", b"OPTIONS"})


class Gate(Protocol):
    """What all connections of the process share."""

    now: float
    draining: bool
    hidden_cookies: frozenset[bytes]
    visitors: set[Visitor]

    def find(self, request: Request) -> Door | pages.Said:
        """Where a request leads."""

    def dial(self, upstream: Upstream) -> None:
        """Connect; then its `connection_made` or `failed` is called."""

    def enter(self, visitor: Visitor, door: Door, form: bytes) -> None:
        """Look at a ticket; then the visitor's `reply` is called."""

    def page(self, said: pages.Said, language: str) -> bytes:
        """What is said in place of an instance."""


class Request:
    """One request, from its first byte to the last byte of its answer."""

    __slots__ = (
        "body", "chunked", "complete", "connection", "cookie", "door", "enters", "fields", "forwarded_for", "has_body",
        "head", "host", "is_old", "language", "last", "length", "method", "person", "said", "size", "upgrade", "url",
    )  # fmt: skip

    def __init__(self) -> None:
        self.url = self.method = self.host = self.cookie = self.connection = b""
        self.length = self.upgrade = self.forwarded_for = self.head = b""
        self.language = ""
        self.fields: list[heads.Field] = []
        self.body: list[bytes] = []
        self.size = 0
        self.person = ""
        self.enters = False
        self.chunked = self.complete = self.last = self.is_old = self.has_body = False
        self.said: pages.Said | None = None
        self.door: Door | None = None

    @property
    def may_be_repeated(self) -> bool:
        """Whether it does no harm to send it again when the connection turns out to have been closed."""
        return not self.has_body and self.method in IDEMPOTENT


class Visitor(asyncio.Protocol):
    """One connection of a person, or of the proxy before us."""

    __slots__ = (
        "_ended", "_expects", "_gate", "_held", "_paused", "_reading", "_waiting", "after_upgrade", "current", "full",
        "parser", "peer", "since", "transport", "tunnel", "upstream",
    )  # fmt: skip

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self.parser = httptools.HttpRequestParser(self)
        self.current: Request | None = None
        self.upstream: Upstream | None = None
        self.tunnel: Upstream | None = None
        self.after_upgrade: bytes | None = None
        self.full = False
        self.since = gate.now
        self._reading: Request | None = None
        self._waiting: deque[Request] = deque()
        self._held = b""
        self._paused = self._ended = self._expects = False

    # --- the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self.peer = peer[0].encode() if isinstance(peer, tuple) else b""
        sockets.keep_alive(transport.get_extra_info("socket"))
        self._gate.visitors.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._gate.visitors.discard(self)
        self._ended = True
        self._waiting.clear()
        upstream = self.tunnel or self.upstream
        if upstream is not None:
            self._leave()
            upstream.drop()

    def data_received(self, data: bytes) -> None:
        self.since = self._gate.now
        if self.tunnel is not None:
            self.tunnel.send(data)
        elif self._ended:
            return
        elif self.after_upgrade is not None or (self.current is not None and self._reading is None):
            self._held += data
            self.pace()
        else:
            self._feed(data)

    def pause_writing(self) -> None:
        self.full = True
        if self.upstream is not None:
            self.upstream.pace()

    def resume_writing(self) -> None:
        self.full = False
        if self.upstream is not None:
            self.upstream.pace()

    def pace(self) -> None:
        """Read on, or not: nobody is read faster than the other side takes it."""
        upstream, current = self.upstream, self.current
        wait = bool(self._held) or (upstream is not None and upstream.full)
        wait = wait or (current is not None and current.size > AHEAD)
        if wait != self._paused and not self.transport.is_closing():
            self._paused = wait
            if wait:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()

    # --- what is read

    def _feed(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self._ended:
                return
            self.after_upgrade = data[upgrade.args[0] :]
        except httptools.HttpParserError:
            if not self._ended:
                self._refuse(pages.NOT_UNDERSTOOD)

    def on_message_begin(self) -> None:
        self._reading = Request()

    def on_url(self, url: bytes) -> None:
        if self._reading is not None:
            self._reading.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        request = self._reading
        if request is None:
            return
        verdict = heads.fate(name)
        if verdict is Fate.KEEP:
            request.fields.append((name, value))
        elif verdict is Fate.READ:
            self._read_field(request, name.lower(), value)

    def _read_field(self, request: Request, name: bytes, value: bytes) -> None:
        if name == b"host":
            request.host = value if not request.host else b"\n"  # a second one leads nowhere
        elif name == b"cookie":
            request.cookie = b"%b; %b" % (request.cookie, value) if request.cookie else value
        elif name == b"connection":
            request.connection += b"," + value
        elif name == b"x-forwarded-for":
            request.forwarded_for = value
        elif name == b"content-length":
            request.length = value
        elif name == b"transfer-encoding":
            request.chunked = value.strip().lower() == b"chunked"
            if not request.chunked:
                request.said = pages.NOT_UNDERSTOOD
        elif name == b"upgrade":
            request.upgrade = value.strip().lower()
        elif name == b"expect":
            self._expects = value.strip().lower() == b"100-continue"

    def on_headers_complete(self) -> None:
        request = self._reading
        if request is None:
            return
        parser = self.parser
        request.method = parser.get_method()
        request.is_old = parser.get_http_version() != "1.1"
        upgrades = parser.should_upgrade()
        request.last = request.is_old or upgrades or not parser.should_keep_alive()
        if request.said is None:
            request.said = self._judge(request, upgrades)
        if request.said is None:
            request.enters = request.url == people.ENTER and request.method == b"POST"
            found = self._gate.find(request)
            if isinstance(found, Door) and not found.checked:
                request.enters = False  # the instance's own
            if isinstance(found, Door):
                request.door = found
                request.head = self._head(request, found)
            else:
                request.said = found
        if request.said is not None:
            language = (value for name, value in request.fields if name.lower() == b"accept-language")
            request.language = next(language, b"").decode("latin-1")
        request.fields = []
        if self._expects:
            self._expects = False
            if request.said is None and self.current is None:
                self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if self.current is None:
            self._begin(request)
        else:
            self._waiting.append(request)

    def _judge(self, request: Request, upgrades: bool) -> pages.Said | None:
        """What is wrong with it, before anybody is asked."""
        size = len(request.url) + sum(len(name) + len(value) for name, value in request.fields)
        if size > heads.MAX_HEAD or len(request.fields) > heads.MAX_FIELDS:
            return pages.TOO_LARGE
        if not request.url.startswith(b"/") or request.method == b"CONNECT":
            return pages.NOT_UNDERSTOOD
        if upgrades and (request.upgrade != b"websocket" or request.length not in (b"", b"0") or request.chunked):
            return pages.NOT_UNDERSTOOD
        if not upgrades:
            request.upgrade = b""
        return None

    def _head(self, request: Request, door: Door) -> bytes:
        fields = request.fields
        if request.connection:
            fields = heads.without(fields, heads.connection_options(request.connection))
        lines = [b"%b %b HTTP/1.1\r\nHost: %b\r\n" % (request.method, request.url, request.host)]
        lines += [b"%b: %b\r\n" % field for field in fields]
        if request.cookie:
            cookie = heads.without_cookies(request.cookie, self._gate.hidden_cookies)
            if cookie:
                lines.append(b"Cookie: %b\r\n" % cookie)
        lines.append(b"%b%b\r\n" % (door.place.forwarded, request.host))
        lines.append(b"X-Forwarded-For: %b\r\n" % (request.forwarded_for or self.peer))
        if request.upgrade:
            lines.append(b"Connection: Upgrade\r\nUpgrade: websocket\r\n")
        elif request.chunked:
            lines.append(b"Transfer-Encoding: chunked\r\n")
        elif request.length:
            lines.append(b"Content-Length: %b\r\n" % request.length)
        lines.append(b"\r\n")
        return b"".join(lines)

    def on_body(self, body: bytes) -> None:
        request = self._reading
        if request is not None and request.enters:
            request.body.append(body)
            request.size += len(body)
            if request.size > people.MAX_FORM:
                self.cut()
        elif request is not None and request.said is None:
            request.has_body = True
            self._pass_on(request, b"%x\r\n%b\r\n" % (len(body), body) if request.chunked else body)

    def _pass_on(self, request: Request, data: bytes) -> None:
        if request is self.current and self.upstream is not None and self.upstream.is_ready:
            self.upstream.send(data)
        else:
            request.body.append(data)
            request.size += len(data)
            self.pace()

    def on_message_complete(self) -> None:
        request, self._reading = self._reading, None
        if request is None:
            return
        if request.chunked and request.said is None and not request.enters:
            self._pass_on(request, b"0\r\n\r\n")
        request.complete = True
        if request is self.current and request.enters and request.said is None:
            self._enter(request)
        elif request is self.current and self.upstream is not None:
            self.upstream.request_is_complete()

    # --- what is answered

    def _begin(self, request: Request) -> None:
        self.current = request
        door = request.door
        if door is None or not door.place.is_open:
            self.say(request.said or pages.NOTHING_RUNS)
            return
        if request.enters:
            if request.complete:
                self._enter(request)
            return
        door.place.busy.add(self)
        Upstream.serve(self, request, door, self._gate)

    def _enter(self, request: Request) -> None:
        assert request.door is not None
        self._gate.enter(self, request.door, b"".join(request.body))

    def reply(self, answer: bytes | pages.Said) -> None:
        """What became of a ticket."""
        if isinstance(answer, pages.Said):
            self.say(answer)
        elif not self.transport.is_closing():
            self.transport.write(answer)
            self._leave()
            self._end()

    def again(self) -> None:
        """A kept connection had been closed by the instance: the same on a new one."""
        request = self.current
        assert request is not None
        assert request.door is not None
        self.upstream = None
        if request.door.place.is_open:
            Upstream.serve(self, request, request.door, self._gate, fresh=True)
        else:
            self.say(pages.NOTHING_RUNS)

    def finished(self) -> None:
        """The answer has been written."""
        request = self.current
        self._leave()
        if request is None or request.last or not request.complete or self._gate.draining:
            self._end()
        elif self._waiting:
            self._begin(self._waiting.popleft())
        elif self._held:
            data, self._held = self._held, b""
            self._feed(data)
            self.pace()
        elif self._paused:
            self.pace()

    def upgraded(self, upstream: Upstream) -> None:
        """From here on there are only bytes."""
        self.tunnel = upstream
        early = (self.after_upgrade or b"") + self._held
        self._held = b""
        if early:
            upstream.send(early)
        self.pace()

    def say(self, said: pages.Said) -> None:
        """Answer in place of the instance, and end the connection."""
        request = self.current
        self._leave()
        if not self.transport.is_closing():
            self.transport.write(self._gate.page(said, request.language if request is not None else ""))
        self._end()

    def _refuse(self, said: pages.Said) -> None:
        """What comes is not a request: said after the answers that are still owed."""
        request = self._reading or Request()
        self._reading = None
        request.said = said
        if self.current is None:
            self._begin(request)
        elif request is self.current:
            self.cut()
        else:
            self._waiting.append(request)

    def cut(self) -> None:
        """End the connection without another word."""
        self._ended = True
        self.transport.abort()

    def close_if_idle(self) -> None:
        """End it unless an answer is owed."""
        if self.current is None and self.tunnel is None:
            self._end()

    def _leave(self) -> None:
        current, self.current, self.upstream, self.tunnel = self.current, None, None, None
        if current is not None and current.door is not None:
            current.door.place.busy.discard(self)

    def _end(self) -> None:
        self._ended = True
        self._waiting.clear()
        self.transport.close()
