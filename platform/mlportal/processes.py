"""Looking at other processes through /proc: who holds a port, who was left behind by a killed supervisor."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

MARK = "MLPORTAL_SUPERVISED"
"""Environment variable of every supervised program: the data folder it works for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Identity:
    """A process beyond doubt: numbers are used again, a number with a start time is not."""

    pid: int
    started_ticks: int

    def alive(self) -> bool:
        """Whether this very process still runs (a zombie does not)."""
        return started_ticks(self.pid) == self.started_ticks


def started_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since the machine did; None when it is gone or a zombie."""
    fields = _stat(pid)
    if fields is None or fields[0] in {"Z", "X"}:
        return None
    return int(fields[19])


def _stat(pid: int) -> list[str] | None:
    """/proc/PID/stat from the third field (state) on; the second may hold spaces and brackets."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None


def all_pids() -> list[int]:
    """Every process that can be seen."""
    return [int(entry) for entry in os.listdir("/proc") if entry.isdecimal()]  # noqa: PTH208 - names, not paths


def command(pid: int) -> str:
    """The command line as a person reads it, cut at 120 characters."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return ""
    return " ".join(words).strip()[:120]


def _has_mark(pid: int, home: Path) -> bool:
    try:
        return f"{MARK}={home}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def left_behind(*, home: Path, recorded: list[Identity]) -> list[Identity]:
    """What a killed supervisor left: programs that it had noted, and whatever carries this folder's mark.

    Some programs overwrite their environment, so the mark alone would miss them.
    """
    own = os.getpid()
    found = {identity.pid: identity for identity in recorded if identity.alive()}
    for pid in all_pids():
        if pid != own and pid not in found and _has_mark(pid, home):
            ticks = started_ticks(pid)
            if ticks is not None:
                found[pid] = Identity(pid=pid, started_ticks=ticks)
    return list(found.values())


def end(identities: list[Identity], *, within_s: float = 5.0) -> None:
    """Ask the processes to end, and kill those that have not after `within_s` seconds."""
    for identity in identities:
        _signal(identity, signal.SIGTERM)
    deadline = time.monotonic() + within_s
    while any(identity.alive() for identity in identities):
        if time.monotonic() > deadline:
            for identity in identities:
                _signal(identity, signal.SIGKILL)
            deadline += 1.0
        time.sleep(0.02)


def _signal(identity: Identity, which: signal.Signals) -> None:
    if identity.alive():
        try:
            os.kill(identity.pid, which)
        except (ProcessLookupError, PermissionError):
            return


def listener(port: int) -> int | None:
    """The process that listens on a TCP port; None when nobody does, or when it is another user's."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:  # 0A: LISTEN
                inodes.add(f"socket:[{fields[9]}]")
    if not inodes:
        return None
    for pid in all_pids():
        try:
            for descriptor in Path(f"/proc/{pid}/fd").iterdir():
                if os.readlink(descriptor) in inodes:  # noqa: PTH115 - the target is no path
                    return pid
        except OSError:
            continue
    return None
