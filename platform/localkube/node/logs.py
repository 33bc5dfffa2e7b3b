"""Reading a container's log files (see agent.LogWriter for their format)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

from localkube.runtime import LogOptions

_BLOCK: Final = 65536
_POLL_S: Final = 0.1
_LAZY_POLL_S: Final = 0.5


def parse(line: bytes) -> tuple[bytes, bytes, bool]:
    """(timestamp, text, whether the line ends here) of one stored line."""
    stamp, _, rest = line.partition(b" ")
    _, _, rest = rest.partition(b" ")
    tag, _, text = rest.partition(b" ")
    return stamp, text, tag == b"F"


class _Shaper:
    """Stored lines to what the client sees; joins the pieces of a line, so that one line has one timestamp."""

    def __init__(self, since: bytes, timestamps: bool) -> None:
        self._since, self._timestamps, self._inside = since, timestamps, False

    def shape(self, lines: list[bytes]) -> bytes:
        out: list[bytes] = []
        for line in lines:
            stamp, text, whole = parse(line)
            if stamp < self._since:
                continue
            if self._timestamps and not self._inside:
                out += [stamp, b" "]
            out.append(text)
            if whole:
                out.append(b"\n")
            self._inside = not whole
        return b"".join(out)


def _tail_offset(file: BinaryIO, count: int) -> int:
    """Where the last `count` whole lines begin; reads backwards."""
    position = file.seek(0, os.SEEK_END)
    buffer = b""
    while position > 0:
        step = min(_BLOCK, position)
        position -= step
        file.seek(position)
        buffer = file.read(step) + buffer
        starts = _line_starts(buffer, at_begin=position == 0)
        if len(starts) >= count:
            return position + starts[-count] if count else position + len(buffer)
    starts = _line_starts(buffer, at_begin=True)
    return starts[-count] if 0 < count <= len(starts) else (0 if count else len(buffer))


def _line_starts(buffer: bytes, *, at_begin: bool) -> list[int]:
    """Offsets of the stored lines that begin a line of output (the one before them did not continue)."""
    starts: list[int] = []
    fresh: bool | None = True if at_begin else None
    offset = 0
    for line in buffer.splitlines(keepends=True):
        if fresh:
            starts.append(offset)
        # The first line of a block may be cut off, so what it says is not looked at.
        fresh = True if fresh is None else parse(line)[2]
        offset += len(line)
    return starts


async def read(path: Path, options: LogOptions, running: Callable[[], bool]) -> AsyncIterator[bytes]:
    """The log in pieces; with `follow` until `running` says no and all was read. A rotated older part comes first."""
    begin = options.since.strftime("%Y-%m-%dT%H:%M:%S.%f000Z").encode() if options.since else b""
    shaper = _Shaper(begin, options.timestamps)
    left, tail_lines = options.limit_bytes, options.tail_lines
    older = path.with_name(path.name + ".1")
    paths = [older, path] if tail_lines is None and older.exists() else [path]
    for place in paths:
        last = place == path
        with place.open("rb") as file:
            if tail_lines is not None:
                file.seek(_tail_offset(file, tail_lines))
            pieces = _follow(file, place, running) if options.follow and last else _blocks(file)
            async for lines in pieces:
                data = shaper.shape(lines)
                if left is not None:
                    data = data[:left]
                    left -= len(data)
                if data:
                    yield data
                if left == 0:
                    return


async def _blocks(file: BinaryIO) -> AsyncIterator[list[bytes]]:
    for lines in _whole_lines(file):
        yield lines
        await asyncio.sleep(0)


def _whole_lines(file: BinaryIO) -> Iterator[list[bytes]]:
    """Stored lines block by block; leaves the position before an unfinished one."""
    while block := file.read(_BLOCK):
        end = block.rfind(b"\n") + 1
        if not end:
            file.seek(-len(block), os.SEEK_CUR)
            more = file.read(_BLOCK * 8)
            end = more.rfind(b"\n") + 1
            if not end:
                file.seek(-len(more), os.SEEK_CUR)
                return
            block = more
        file.seek(end - len(block), os.SEEK_CUR)
        yield [line for line in block[:end].split(b"\n") if line]


async def _follow(file: BinaryIO, path: Path, running: Callable[[], bool]) -> AsyncIterator[list[bytes]]:
    quiet = 0.0
    while True:
        alive = running()
        found = False
        for lines in _whole_lines(file):
            found = True
            yield lines
        if not alive:
            return
        if not found and os.stat(path).st_ino != os.fstat(file.fileno()).st_ino:  # noqa: PTH116 - one cheap call
            with path.open("rb") as fresh:  # rotated: go on with the new file
                async for lines in _follow(fresh, path, running):
                    yield lines
            return
        quiet = 0.0 if found else quiet + _POLL_S
        await asyncio.sleep(_POLL_S if quiet < 2 else _LAZY_POLL_S)
