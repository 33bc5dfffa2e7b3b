"""Memory and CPU limits: cgroups where root may write them, else resident memory sampled every second."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, Protocol

log = logging.getLogger(__name__)

_ROOT: Final = Path("/sys/fs/cgroup")
_PERIOD_US: Final = 100_000
_PIDS: Final = 4096
"""Processes and threads of one container, so that a fork bomb stays in it."""
_RELEASE_S: Final = 2.0
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


class Group(Protocol):
    """The limits of one container."""

    def add(self, pid: int) -> None:
        """Put a process, and all that it will start, under the limits."""

    def oom_killed(self) -> bool:
        """Whether something in it was killed for memory."""

    def remove(self) -> None:
        """The container has ended."""


class Limits(Protocol):
    """How this machine enforces limits; `hard` is False where a program may exceed its memory for up to a second."""

    hard: bool

    def group(self, name: str, *, memory: int | None, cpu_milli: int | None) -> Group:
        """Limits for a container under a name unique on this machine; None is no limit."""

    def adopt(self, name: str, *, memory: int | None, pid: int | None) -> Group:
        """The limits of a container that runs since before localkube's restart."""

    def sweep(self, keep: set[str]) -> None:
        """Remove what a killed localkube left, but the groups of pods whose names begin so."""

    async def close(self) -> None:
        """Stop watching."""


def detect(home: Path) -> Limits:
    """The best that works here; creates a group of its own below the cgroup root to find out."""
    name = "localkube-" + hashlib.sha256(str(home).encode()).hexdigest()[:12]
    if os.geteuid() == 0:
        for make in (CgroupV2, CgroupV1):
            try:
                return make(name)
            except OSError as error:
                log.debug("%s is not usable: %s", make.__name__, error)
    return SoftLimits()


class _Cgroups:
    """What both versions have in common: folders per controller, one leaf in each per container."""

    hard = True
    _counter = ""
    """File of the memory leaf that counts what was killed."""

    def __init__(self, roots: dict[str, Path]) -> None:
        self._roots = roots

    def group(self, name: str, *, memory: int | None, cpu_milli: int | None) -> Group:
        leaves = {controller: root / name for controller, root in self._roots.items()}
        for leaf in set(leaves.values()):
            leaf.mkdir(exist_ok=True)
        self._limit(leaves, memory, max(1000, cpu_milli * _PERIOD_US // 1000) if cpu_milli else None)
        return _Leaf(set(leaves.values()), leaves["memory"] / self._counter)

    def _limit(self, leaves: dict[str, Path], memory: int | None, quota_us: int | None) -> None:
        raise AssertionError(f"{type(self).__name__} limits nothing")

    def adopt(self, name: str, *, memory: int | None, pid: int | None) -> Group:
        return _Leaf({root / name for root in self._roots.values()}, self._roots["memory"] / name / self._counter)

    def sweep(self, keep: set[str]) -> None:
        for root in set(self._roots.values()):
            for leaf in root.iterdir():
                if leaf.is_dir() and not any(leaf.name.startswith(prefix) for prefix in keep):
                    _end(leaf)

    async def close(self) -> None:
        """Remove the groups; a process that has just ended may hold its own for a moment."""
        deadline = time.monotonic() + _RELEASE_S
        while not self._removed():
            if time.monotonic() > deadline:
                log.warning("control groups are still in use: %s", sorted(map(str, set(self._roots.values()))))
                return
            await asyncio.sleep(0.02)

    def _removed(self) -> bool:
        for root in set(self._roots.values()):
            with contextlib.suppress(OSError):
                for leaf in root.iterdir():
                    if leaf.is_dir():
                        leaf.rmdir()
                root.rmdir()
        return not any(root.exists() for root in self._roots.values())


class _Leaf:
    def __init__(self, leaves: set[Path], counter: Path) -> None:
        self._leaves, self._counter = leaves, counter

    def add(self, pid: int) -> None:
        for leaf in self._leaves:
            (leaf / "cgroup.procs").write_text(str(pid))

    def oom_killed(self) -> bool:
        try:
            lines = self._counter.read_text().splitlines()
        except OSError:
            return False
        return any(line.split()[0] == "oom_kill" and int(line.split()[1]) > 0 for line in lines)

    def remove(self) -> None:
        for leaf in self._leaves:
            with contextlib.suppress(OSError):
                leaf.rmdir()


def _end(leaf: Path) -> None:
    """Kill what still runs in a group and remove it; a group that will not go is left for the next sweep."""
    with contextlib.suppress(OSError):
        for pid in (leaf / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        leaf.rmdir()


class CgroupV1(_Cgroups):
    """Separate hierarchies. Raises OSError when memory cannot be limited."""

    _counter = "memory.oom_control"

    def __init__(self, name: str, root: Path = _ROOT) -> None:
        roots = {}
        for controller in ("memory", "cpu", "pids"):
            place = root / controller / name
            try:
                place.mkdir(exist_ok=True)
            except OSError:
                if controller == "memory":
                    raise
                continue
            roots[controller] = place
        if not (roots["memory"] / "memory.limit_in_bytes").exists():
            raise FileNotFoundError("no memory controller of version 1")
        super().__init__(roots)

    def _limit(self, leaves: dict[str, Path], memory: int | None, quota_us: int | None) -> None:
        if memory:
            (leaves["memory"] / "memory.limit_in_bytes").write_text(str(memory))
            with contextlib.suppress(OSError):  # absent when the kernel does not account swap
                (leaves["memory"] / "memory.memsw.limit_in_bytes").write_text(str(memory))
        if quota_us and "cpu" in leaves:
            with contextlib.suppress(OSError):  # absent when the kernel lacks bandwidth control
                (leaves["cpu"] / "cpu.cfs_quota_us").write_text(str(quota_us))
        if "pids" in leaves:
            (leaves["pids"] / "pids.max").write_text(str(_PIDS))


class CgroupV2(_Cgroups):
    """One hierarchy. Raises OSError when its controllers cannot be given on."""

    _counter = "memory.events"

    def __init__(self, name: str, root: Path = _ROOT) -> None:
        if "memory" not in (root / "cgroup.controllers").read_text().split():
            raise FileNotFoundError("no memory controller of version 2")
        wanted = "+memory +cpu +pids"
        (root / "cgroup.subtree_control").write_text(wanted)
        place = root / name
        place.mkdir(exist_ok=True)
        (place / "cgroup.subtree_control").write_text(wanted)
        super().__init__({"memory": place})

    def _limit(self, leaves: dict[str, Path], memory: int | None, quota_us: int | None) -> None:
        leaf = leaves["memory"]
        if memory:
            (leaf / "memory.max").write_text(str(memory))
            (leaf / "memory.oom.group").write_text("1")
            with contextlib.suppress(OSError):  # absent without swap accounting
                (leaf / "memory.swap.max").write_text("0")
        if quota_us:
            (leaf / "cpu.max").write_text(f"{quota_us} {_PERIOD_US}")
        (leaf / "pids.max").write_text(str(_PIDS))


class SoftLimits:
    """No cgroups: once a second, sum up the memory of each container's processes and kill it when over its limit."""

    hard = False

    def __init__(self, interval_s: float = 1.0, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._interval_s, self._sleep = interval_s, sleep
        self._groups: dict[str, _SoftGroup] = {}
        self._task: asyncio.Task[None] | None = None

    def group(self, name: str, *, memory: int | None, cpu_milli: int | None) -> Group:
        made = _SoftGroup(memory, lambda: self._groups.pop(name, None))
        if memory:
            self._groups[name] = made
            if self._task is None or self._task.done():
                self._task = asyncio.create_task(self._watch(), name="soft limits")
        return made

    def adopt(self, name: str, *, memory: int | None, pid: int | None) -> Group:
        group = self.group(name, memory=memory, cpu_milli=None)
        if pid:
            group.add(pid)
        return group

    def sweep(self, keep: set[str]) -> None:
        return None

    async def close(self) -> None:
        if self._task:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _watch(self) -> None:
        while self._groups:
            await self._sleep(self._interval_s)
            parents = _parents()
            for group in list(self._groups.values()):
                group.check(parents)


class _SoftGroup:
    def __init__(self, memory: int | None, forget: Callable[[], object]) -> None:
        self._memory, self._forget = memory, forget
        self._roots: set[int] = set()
        self._killed = False

    def add(self, pid: int) -> None:
        self._roots.add(pid)

    def oom_killed(self) -> bool:
        return self._killed

    def remove(self) -> None:
        self._forget()

    def check(self, parents: dict[int, int]) -> None:
        """Kill the container when its processes hold more than its limit."""
        members = [pid for pid in parents if self._inside(pid, parents)]
        if self._memory is None or sum(map(_resident, members)) <= self._memory:
            return
        if sum(map(_proportional, members)) > self._memory:
            self._killed = True
            for pid in members:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _inside(self, pid: int, parents: dict[int, int]) -> bool:
        while pid > 1:
            if pid in self._roots:
                return True
            pid = parents.get(pid, 0)
        return False


def _parents() -> dict[int, int]:
    found: dict[int, int] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                text = Path(entry.path, "stat").read_text()
                found[int(entry.name)] = int(text.rpartition(")")[2].split()[1])
    return found


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


def _proportional(pid: int) -> int:
    """Memory with shared pages counted in part: dearer to read, so asked only when the plain sum is over."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        return _resident(pid)
    return 0
