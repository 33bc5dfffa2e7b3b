"""SPDY/3.1 framing, as much as `kubectl port-forward` speaks inside a WebSocket.

No flow control: kubectl's own implementation has none.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

SYN_STREAM, SYN_REPLY, RST_STREAM, SETTINGS, PING, GOAWAY, HEADERS, WINDOW_UPDATE = 1, 2, 3, 4, 6, 7, 8, 9
FIN: Final = 1
_MAX_HEADERS: Final = 64 * 1024

_WORDS: Final = (
    "options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges age allow "
    "authorization cache-control connection content-base content-encoding content-language content-length "
    "content-location content-md5 content-range content-type date etag expect expires from host if-match "
    "if-modified-since if-none-match if-range if-unmodified-since last-modified location max-forwards pragma "
    "proxy-authenticate proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade "
    "user-agent vary via warning www-authenticate method get status"
)
_PHRASES: Final = ("200 OK", "version", "HTTP/1.1", "url", "public", "set-cookie", "keep-alive", "origin")
_TAIL: Final = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden"
    "404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable"
    "Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMT"
    "chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,text/javascript,"
    "publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)
DICTIONARY: Final = (
    b"".join(struct.pack(">I", len(word)) + word.encode() for word in (*_WORDS.split(" "), *_PHRASES)) + _TAIL.encode()
)
"""The compression dictionary of the SPDY/3 specification, §2.6.10.1."""


class SpdyError(Exception):
    """Bytes that are no SPDY/3.1; the connection cannot go on."""


@dataclass(frozen=True)
class Frame:
    """One frame. `kind` is None for data."""

    kind: int | None
    stream: int
    flags: int
    data: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


class Session:
    """Frames in, frames out; holds the two header compressors, which run over the whole connection."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)
        self._deflate = zlib.compressobj(zdict=DICTIONARY)

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that these bytes complete. Raises SpdyError."""
        self._buffer += data
        while len(self._buffer) >= 8:
            first, second = struct.unpack_from(">II", self._buffer)
            flags, length = second >> 24, second & 0xFFFFFF
            if len(self._buffer) < 8 + length:
                return
            payload = bytes(self._buffer[8 : 8 + length])
            del self._buffer[: 8 + length]
            if not first & 0x80000000:
                yield Frame(None, first, flags, payload)
                continue
            if first >> 16 & 0x7FFF != 3:
                raise SpdyError("not SPDY/3.1")
            yield self._control(first & 0xFFFF, flags, payload)

    def _control(self, kind: int, flags: int, payload: bytes) -> Frame:
        skip = {SYN_STREAM: 10, SYN_REPLY: 4, HEADERS: 4}.get(kind)
        if skip is None:
            stream = struct.unpack_from(">I", payload)[0] & 0x7FFFFFFF if kind in (RST_STREAM, WINDOW_UPDATE) else 0
            return Frame(kind, stream, flags, payload)
        if len(payload) < skip:
            raise SpdyError("a control frame is too short")
        stream = struct.unpack_from(">I", payload)[0] & 0x7FFFFFFF
        return Frame(kind, stream, flags, headers=self._headers(payload[skip:]))

    def _headers(self, block: bytes) -> dict[str, str]:
        try:
            plain = self._inflate.decompress(block, _MAX_HEADERS)
            (count,) = struct.unpack_from(">I", plain)
            at, texts = 4, []
            for _ in range(min(count, 1000) * 2):
                (size,) = struct.unpack_from(">I", plain, at)
                texts.append(plain[at + 4 : at + 4 + size].decode())
                at += 4 + size
        except (zlib.error, struct.error, UnicodeDecodeError) as error:
            raise SpdyError(f"bad header block: {error}") from error
        return dict(zip(texts[::2], texts[1::2], strict=True))

    def reply(self, stream: int) -> bytes:
        """SYN_REPLY without headers: the stream is accepted."""
        block = self._deflate.compress(struct.pack(">I", 0)) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        return struct.pack(">III", 0x80030000 | SYN_REPLY, 4 + len(block), stream) + block


def data_frame(stream: int, data: bytes, *, fin: bool = False) -> bytes:
    """A data frame; fin closes our half of the stream. At most 16 MiB."""
    return struct.pack(">II", stream, (FIN if fin else 0) << 24 | len(data)) + data


def reset_frame(stream: int, code: int = 5) -> bytes:
    """RST_STREAM; code 5 is CANCEL."""
    return struct.pack(">IIII", 0x80030000 | RST_STREAM, 8, stream, code)


def ping_frame(payload: bytes) -> bytes:
    """The answer to a PING: the same payload."""
    return struct.pack(">II", 0x80030000 | PING, len(payload)) + payload
