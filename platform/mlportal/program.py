"""What it takes to run one of the portal's programs, said once for the supervisor and for tests."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

PR_SET_PDEATHSIG = 1  # linux/prctl.h
_libc = ctypes.CDLL(None, use_errno=True)


class DidNotStart(RuntimeError):
    """A program ended, or was not ready in time."""


def _nothing() -> None:
    return None


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """One program and its manners.

    With `call` it is no other executable but a function run in a forked child of the supervisor, which has loaded the
    portal's code once for all of them: less memory, and one import instead of three. `preload` loads it, in the
    supervisor, before the first start. `argv` then only describes the program.
    `prepare` runs before each start (it removes what a killed predecessor left). `ready` is asked often and must
    answer at once. `stop_pid` names the process that takes the stop signal when that is not the started one, as with
    a wrapper that passes no signals on. `cleanup` runs after it has ended. One with a listening socket in `wakes`
    starts when somebody connects there, and costs nothing before; it may end when nobody is left, until the next comes.
    """

    name: str
    argv: tuple[str, ...]
    ready: Callable[[], bool]
    call: Callable[[], None] | None = None
    preload: Callable[[], None] = _nothing
    environ: Mapping[str, str] = field(default_factory=dict)
    directory: Path = Path("/")
    prepare: Callable[[], None] = _nothing
    cleanup: Callable[[], None] = _nothing
    stop_signal: signal.Signals = signal.SIGTERM
    stop_wait_s: float = 10.0
    stop_pid: Callable[[], int | None] = _nothing
    wakes: socket.socket | None = None


def detach() -> None:
    """For the child, between fork and exec: a session of its own, and no life longer than the supervisor's.

    Ctrl-C then reaches the supervisor alone, which stops its programs in order. When the supervisor itself is killed
    the kernel sends them SIGTERM, so that nothing runs on unwatched.
    """
    os.setsid()
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def remove_socket(path: Path) -> None:
    """Remove the socket file that a killed process left."""
    path.unlink(missing_ok=True)


def accepts(path: Path) -> bool:
    """Whether somebody listens on a unix socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(0.2)
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True


@contextmanager
def started(program: Program, *, log: Path, within_s: float = 20.0) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program without the supervisor for the length of a block.

    Raises DidNotStart with the end of its log.
    """
    program.prepare()
    environ = {**os.environ, **program.environ}
    with log.open("ab") as output:
        child = subprocess.Popen(
            program.argv,
            env=environ,
            cwd=program.directory,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=detach,  # noqa: PLW1509 - the callers have one thread
        )
    try:
        deadline = time.monotonic() + within_s
        while not program.ready():
            if child.poll() is not None or time.monotonic() > deadline:
                raise DidNotStart(f"{program.name}: {log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.01)
        yield child
    finally:
        stop(program, child)


def stop(program: Program, child: subprocess.Popen[bytes]) -> None:
    """End a program kindly, then by force, and clean up after it."""
    if child.poll() is None:
        os.kill(program.stop_pid() or child.pid, program.stop_signal)
        try:
            child.wait(program.stop_wait_s)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
    program.cleanup()
