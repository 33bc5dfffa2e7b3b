"""What a side uses of the machine, and how it talks to the benchmark: a line in, a line out. Standard library alone."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any


class Meter:
    """CPU and memory between ``begin`` and ``read``."""

    def begin(self) -> None:
        """From here on."""
        # 5: the highest mark of memory begins anew (proc(5)).
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        self._before = _memory("VmRSS")
        self._cpu = time.process_time()

    def read(self) -> dict[str, float]:
        """Milliseconds of CPU, and by how many MiB it grew at most."""
        return {"cpu_ms": 1000 * (time.process_time() - self._cpu), "mib": _memory("VmHWM") - self._before}


def whole() -> dict[str, float]:
    """The same of the process since it was started, its imports included."""
    return {"cpu_ms": 1000 * time.process_time(), "mib": _memory("VmHWM")}


def _memory(name: str) -> float:
    text = Path("/proc/self/status").read_text(encoding="ascii")
    found = re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1024


def say(**answer: Any) -> None:
    """One line."""
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


async def serve(act: Callable[[list[str]], Awaitable[dict[str, Any]]]) -> None:
    """Answer commands until there are no more."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        say(**await act(line.decode().split()))
