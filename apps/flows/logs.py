"""The log of an attempt: compressed chunks at byte offsets, written once whoever writes.

The cluster gives each line with its time. ``Mark`` remembers the last stored line's time and how many stored lines
bear it, so a stream that begins again with an overlap is cut exactly where it continues (F32). ``append`` writes only
at the offset that the writer believes to be the end: of two writers (collector and worker) one is told ``Moved``.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from datetime import UTC
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import F

from apps.core import live
from apps.flows import limits
from apps.flows.models import Attempt, LogChunk
from kubekit.observe import parse_time

CHUNK_BYTES = 64 * 1024
#: A line that is longer is stored in parts.
LINE_BYTES = 1024 * 1024
READ_BYTES = 512 * 1024
TRUNCATION = b"\n[mlportal: the log is longer than {mib} MiB; the rest was not kept]\n"


class Moved(Exception):
    """Somebody else wrote meanwhile: read the attempt's row again."""


@dataclass
class Cutter:
    """Takes the cluster's pieces and gives the new lines without their times.

    ``stamp`` and ``seen`` are the mark to continue from: what the stream repeats up to there is left out. Behind it
    every line is new, even when two writers of one program got their times out of order. A line without a time is the
    node's own word in the middle of the stream (that a log file is gone, say, with HTTP 200) and not the program's: it
    is left out. Not thread-safe.
    """

    stamp: str = ""
    seen: int = 0
    _rest: bytes = field(init=False, default=b"")
    _skip: int = field(init=False, default=0)
    _overlap: bool = field(init=False, default=False)
    _kept: bool = field(init=False, default=True)
    _cut: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self._skip, self._overlap = self.seen, bool(self.stamp)

    @classmethod
    def at(cls, mark: dict[str, Any] | None) -> Cutter:
        """From the attempt's ``log_mark``."""
        return cls(stamp=mark["stamp"], seen=mark["seen"]) if mark else cls()

    @property
    def mark(self) -> dict[str, Any]:
        """For the attempt's ``log_mark``."""
        return {"stamp": self.stamp, "seen": self.seen}

    @property
    def since(self) -> str | None:
        """Where to ask the cluster to begin: the whole second of the last line, since finer is not understood."""
        moment = parse_time(self.stamp)
        return moment.replace(microsecond=0).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if moment else None

    def feed(self, piece: bytes) -> bytes:
        """New complete lines out of a piece of any length."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        found = b"".join(self._take(line) for line in lines)
        if len(self._rest) > LINE_BYTES:
            found += self._take(self._rest)
            self._rest, self._cut = b"", True
        return found

    def finish(self) -> bytes:
        """At the end of the log: a last line without a line feed."""
        rest, self._rest = self._rest, b""
        return self._take(rest) if rest else b""

    def _take(self, line: bytes) -> bytes:
        head, _space, text = line.partition(b" ")
        stamp = head.decode("ascii", "replace")
        goes_on, self._cut = self._cut, False
        if parse_time(stamp) is None:
            # The rest of a line that was too long goes the way of its beginning.
            return line + b"\n" if goes_on and self._kept else b""
        self._kept = self._is_new(stamp)
        if not self._kept:
            return b""
        if stamp == self.stamp:
            self.seen += 1
        elif not _before(stamp, self.stamp):
            self.stamp, self.seen = stamp, 1
        return text + b"\n"

    def _is_new(self, stamp: str) -> bool:
        if not self._overlap:
            return True
        if _before(stamp, self.stamp):
            return False
        if stamp == self.stamp and self._skip:
            self._skip -= 1
            return False
        self._overlap = False
        return True


def _before(stamp: str, other: str) -> bool:
    """RFC 3339 with nanoseconds: compared as text of equal length, since datetime keeps microseconds only."""
    return bool(other) and _sortable(stamp) < _sortable(other)


def _sortable(stamp: str) -> str:
    head, _dot, fraction = stamp.rstrip("Z").partition(".")
    return f"{head}.{fraction.ljust(9, '0')}"


def append(attempt: Attempt, data: bytes, mark: dict[str, Any], *, complete: bool = False) -> None:
    """Store ``data`` behind what is stored, with the new mark; ``attempt`` (as read) says where that is.

    Raises ``Moved`` when another writer was faster or the log is complete. Beyond the cap a mark says so once and the
    rest is dropped.
    """
    room = limits.log_cap_bytes() - attempt.log_bytes
    truncated = attempt.log_truncated
    if truncated:
        data = b""
    elif len(data) > room:
        note = TRUNCATION.replace(b"{mib}", str(limits.log_cap_bytes() // (1024 * 1024)).encode())
        data, truncated = data[: max(0, room)] + note, True
    values = {
        "log_bytes": attempt.log_bytes + len(data),
        "log_mark": mark,
        "log_truncated": truncated,
        "log_complete": complete,
    }
    with transaction.atomic():
        # Each stored line lengthens the log, so the length alone tells whether somebody else wrote.
        rows = Attempt.objects.as_system().filter(pk=attempt.pk, log_bytes=attempt.log_bytes, log_complete=False)
        if not rows.update(**values):
            raise Moved
        LogChunk.objects.bulk_create(
            LogChunk(
                day=attempt.created_at.date(),
                attempt_id=attempt.pk,
                first=attempt.log_bytes + start,
                size=len(data[start : start + CHUNK_BYTES]),
                packed=zlib.compress(data[start : start + CHUNK_BYTES], 6),
            )
            for start in range(0, len(data), CHUNK_BYTES)
        )
        if data or complete:
            live.announce(attempt)
    for name, value in values.items():
        setattr(attempt, name, value)


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A part of a log: ``data`` from the asked offset, ``next`` to go on from, ``complete`` when nothing follows."""

    data: bytes
    next: int
    complete: bool


def read(attempt: Attempt, offset: int, *, limit: int = READ_BYTES) -> Piece:
    """At most ``limit`` bytes from ``offset``; two statements at any length of the log."""
    chunks = (
        LogChunk.objects.as_system()
        .filter(day=attempt.created_at.date(), attempt_id=attempt.pk, first__lt=offset + limit)
        .filter(first__gt=offset - F("size"))
        .order_by("first")
    )
    found = b""
    for chunk in chunks[: limit // CHUNK_BYTES + 64]:
        if chunk.first > offset + len(found):
            break
        found += zlib.decompress(chunk.packed)[max(0, offset - chunk.first) :]
        if len(found) >= limit:
            break
    found = found[:limit]
    end = offset + len(found)
    return Piece(data=found, next=end, complete=attempt.log_complete and end >= attempt.log_bytes)


def tail(attempt: Attempt, lines: int = 10, *, most: int = 4096) -> str:
    """The last lines as text, for alarms and the reason's evidence."""
    piece = read(attempt, max(0, attempt.log_bytes - most), limit=most + 1024)
    text = piece.data.decode("utf-8", "replace").rstrip("\n")
    return "\n".join(text.split("\n")[-lines:])


def attempt_row(pk: UUID) -> Attempt | None:
    """The row as it is now, with what the log needs of it."""
    return Attempt.objects.as_system().select_related("queue", "queue__cluster", "run").filter(pk=pk).first()
