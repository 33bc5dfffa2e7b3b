"""The half of a connection that an instance is at: sends it requests and passes its answers on.

A connection is kept for the next request of anybody to the same port of the same launch, for an instance cannot tell
its visitors apart by their connections; an answer that says more than it announced ends it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import httptools

from apps.instances.gateway import heads, pages
from apps.instances.gateway.heads import Fate
from apps.instances.gateway.places import MOST_IDLE, Door

if TYPE_CHECKING:
    from apps.instances.gateway.visitors import Gate, Request, Visitor

#: A kept connection this old is not given a request that must not be sent twice: it may be closing.
YOUNG_S = 5.0


class Upstream(asyncio.Protocol):
    """One connection to an instance."""

    __slots__ = (
        "_began", "_chunked", "_done", "_encoding", "_fields", "_gate", "_interim", "_is_last", "_kept", "_length",
        "_out", "_paused", "_reason", "_reused", "_sent_head", "_switched", "_until_end", "door", "full", "is_ready",
        "parser", "request", "since", "transport", "visitor",
    )  # fmt: skip

    def __init__(self, door: Door, gate: Gate) -> None:
        self.door = door
        self._gate = gate
        self.transport: asyncio.Transport | None = None
        self.parser = httptools.HttpResponseParser(self)
        self.visitor: Visitor | None = None
        self.request: Request | None = None
        self.full = self.is_ready = self._paused = self._kept = self._reused = self._switched = False
        self.since = gate.now
        self._out: list[bytes] = []
        self._clear()

    def _clear(self) -> None:
        self._began = self._sent_head = self._done = self._is_last = False
        self._interim = self._chunked = self._until_end = False
        self._fields: list[bytes] = []
        self._length = self._reason = self._encoding = b""

    @classmethod
    def serve(cls, visitor: Visitor, request: Request, door: Door, gate: Gate, *, fresh: bool = False) -> None:
        """Send the request over a kept connection, or a new one when there is none."""
        idle = door.place.idle.get(door.port)
        if idle and not fresh:
            upstream = idle.pop()
            upstream._kept = False
            if request.may_be_repeated or gate.now - upstream.since < YOUNG_S:
                visitor.upstream, upstream.visitor, upstream.request = upstream, visitor, request
                upstream._send_request()
                return
            upstream.drop()
        upstream = cls(door, gate)
        visitor.upstream, upstream.visitor, upstream.request = upstream, visitor, request
        gate.dial(upstream)

    # --- the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        if self.visitor is None:
            self.transport.abort()
            return
        self._send_request()

    def failed(self, said: pages.Said) -> None:
        """It could not be reached."""
        visitor, self.visitor = self.visitor, None
        if visitor is not None:
            visitor.say(said)

    def _send_request(self) -> None:
        request, transport = self.request, self.transport
        assert request is not None
        assert transport is not None
        self.is_ready = True
        if request.body:
            transport.write(request.head + b"".join(request.body))
            request.body, request.size = [], 0
            assert self.visitor is not None
            self.visitor.pace()
        else:
            transport.write(request.head)

    def send(self, data: bytes) -> None:
        """More of the request's body, or of a web socket."""
        if self.transport is not None:
            self.transport.write(data)

    def request_is_complete(self) -> None:
        """Its last byte was sent; the answer may have come before that."""
        if self._done and self.visitor is not None:
            self._finish(self.visitor)

    def pause_writing(self) -> None:
        self.full = True
        if self.visitor is not None:
            self.visitor.pace()

    def resume_writing(self) -> None:
        self.full = False
        if self.visitor is not None:
            self.visitor.pace()

    def pace(self) -> None:
        """Read on, or not: the visitor may be slower."""
        wait = self.visitor is not None and self.visitor.full
        if wait != self._paused and self.transport is not None and not self.transport.is_closing():
            self._paused = wait
            if wait:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        visitor, self.visitor = self.visitor, None
        if self._kept:
            self._kept = False
            self.door.place.idle.get(self.door.port, []).remove(self)
        if visitor is None or self.request is None:
            return
        if visitor.tunnel is self:
            visitor.transport.close()
        elif self._done:
            visitor.finished()
        elif self._until_end:
            if self._chunked:
                visitor.transport.write(b"0\r\n\r\n")
            visitor.finished()
        elif self._sent_head:
            visitor.cut()
        elif self._reused and not self._began and self.request.may_be_repeated:
            visitor.again()
        else:
            visitor.say(pages.NO_ANSWER)

    def drop(self) -> None:
        """Nobody waits for it any more; what a web socket was still being sent arrives."""
        visitor, self.visitor = self.visitor, None
        if self.transport is None:
            return
        if visitor is not None and self._switched:
            self.transport.close()
        else:
            self.transport.abort()

    @property
    def is_done(self) -> bool:
        """Whether the whole answer has come."""
        return self._done

    # --- what is read

    def data_received(self, data: bytes) -> None:
        visitor = self.visitor
        if visitor is not None and self._switched:
            visitor.transport.write(data)
            return
        if visitor is None or self.is_done:
            self.drop()  # what nobody asked for
            return
        self._began = True
        rest: bytes | None = None
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            rest = data[upgrade.args[0] :]
        except httptools.HttpParserError:
            if not self._done:
                self._broken(visitor)
                return
            self._is_last = True  # a good answer, and then something else
        if self._out:
            visitor.transport.write(self._out[0] if len(self._out) == 1 else b"".join(self._out))
            self._out = []
        if rest is not None:
            self._switch(visitor, rest)
        elif self._done:
            self._finish(visitor)

    def _broken(self, visitor: Visitor) -> None:
        self.visitor = None
        self._out = []
        if self._sent_head:
            visitor.cut()
        else:
            visitor.say(pages.NO_ANSWER)
        self.drop()

    def _switch(self, visitor: Visitor, rest: bytes) -> None:
        if not self._sent_head:
            self._broken(visitor)
            return
        self._switched = True
        visitor.upgraded(self)
        if rest:
            visitor.transport.write(rest)

    def _finish(self, visitor: Visitor) -> None:
        request, transport = self.request, self.transport
        assert request is not None
        assert transport is not None
        if request.complete and not self._is_last and not transport.is_closing() and self.door.place.is_open:
            self._keep(transport)
        else:
            self.visitor = self.request = None
            transport.abort()
        visitor.finished()

    def _keep(self, transport: asyncio.Transport) -> None:
        idle = self.door.place.idle.setdefault(self.door.port, [])
        self.visitor = self.request = None
        self._clear()
        if len(idle) >= MOST_IDLE or self.full or self._paused:
            transport.abort()
            return
        self._reused = self._kept = True
        self.since = self._gate.now
        idle.append(self)

    # --- what the parser finds

    def on_message_begin(self) -> None:
        if self._done:
            self._is_last = True

    def on_status(self, status: bytes) -> None:
        if not self._done:
            self._reason += status

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._done:
            return
        verdict = heads.fate(name, of_response=True)
        if verdict is Fate.KEEP:
            self._fields.append(b"%b: %b\r\n" % (name, value))
        elif verdict is Fate.READ:
            low = name.lower()
            if low == b"content-length":
                self._length = value
            elif low == b"transfer-encoding":
                self._encoding = value.strip().lower()

    def on_headers_complete(self) -> None:
        request = self.request
        if self._done or request is None:
            return
        status = self.parser.get_status_code()
        if status < 200 and status != 101:
            self._interim = True
            self._fields, self._reason = [], b""
            return
        if (status == 101 and not request.upgrade) or self._encoding not in (b"", b"chunked"):
            raise ValueError("an answer to another question")
        bare = request.method == b"HEAD" or status in (101, 204, 304)
        lines = [b"HTTP/1.1 %d %b\r\n" % (status, self._reason), *self._fields]
        if status == 101:
            lines.append(b"Connection: Upgrade\r\nUpgrade: websocket\r\n")
        else:
            if self._length:
                lines.append(b"Content-Length: %b\r\n" % self._length)
            elif not bare:
                self._until_end = not self._encoding
                self._chunked = not request.is_old
                request.last = request.last or request.is_old
                if self._chunked:
                    lines.append(b"Transfer-Encoding: chunked\r\n")
            if request.last or self._gate.draining:
                lines.append(b"Connection: close\r\n")
        lines.append(b"\r\n")
        self._out += lines
        self._sent_head = True
        self._is_last = self._until_end
        if request.method == b"HEAD":
            self._done = self._is_last = True  # the parser would wait for the body

    def on_body(self, body: bytes) -> None:
        if not self._done:
            self._out.append(b"%x\r\n%b\r\n" % (len(body), body) if self._chunked else body)

    def on_message_complete(self) -> None:
        if self._interim:
            self._interim = False
            return
        if self._done:
            return
        self._done = True
        if self._chunked:
            self._out.append(b"0\r\n\r\n")
        if not self.parser.should_keep_alive():
            self._is_last = True
