"""The supervisor: starts programs when those they need are ready, restarts what dies, stops all in reverse order.

Built on supervisord's own classes (process states, back-off, log rotation, reaping), without its configuration file,
its daemon and its HTTP interface. Three things differ: a program starts when what it needs is *ready*, not after a
number of seconds; each has a session of its own; and what happens is said in one line for a person.
"""

from __future__ import annotations

import gc
import json
import os
import re
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from supervisor import events, loggers, supervisord
from supervisor.datatypes import RestartUnconditionally
from supervisor.medusa import asyncore_25 as asyncore
from supervisor.options import ProcessConfig, ProcessGroupConfig, ServerOptions, decode_wait_status
from supervisor.process import Subprocess
from supervisor.states import ProcessStates, SupervisorStates

from mlportal import forked, say
from mlportal.processes import MARK, Identity, started_ticks
from mlportal.program import Program, detach

QUICK_DEATH_S = 3
"""A program that lives shorter than this is started again later and later instead of at once."""

LONGEST_BACK_OFF_S = 30
_WORTH_SHOWING = re.compile(r"^\S*Z (WARNING|ERROR|CRITICAL) |\b(FATAL|PANIC)\b|^Traceback|\tERROR\t")
_EXPECTED = re.compile(r" WARNING (psycopg\.pool|django\.request): |FATAL:  the database system is ")
"""What follows from a restart that was said already, and from what people send: in the log files alone."""
_EXCEPTION = re.compile(r"^[\w.]*(Error|Exception|Refused|Failure)\b")
_BUSY_PACE_S, _WAITING_PACE_S, _IDLE_PACE_S = 0.02, 0.2, 1.0
_FRESH_S = 60
_SAY_AGAIN_S = 60


@dataclass(frozen=True, kw_only=True, slots=True)
class Supervised:
    """A program and its place among the others.

    `needs`: names of programs that must be ready (or, for one that runs `once`, done) before it starts.
    `stage`: programs of the highest stage are stopped first, those of one stage together.
    """

    program: Program
    stage: int
    needs: tuple[str, ...] = ()
    once: bool = False


class _Log(loggers.Logger):  # type: ignore[misc]
    """A program's log file. A disk that is full costs lines of it and nothing else, and is said in one line."""

    last_said_at = -float("inf")

    def addHandler(self, handler: Any) -> None:  # noqa: N802 - supervisord's name
        write = handler.emit

        def emit(record: Any) -> None:
            try:
                write(record)
            except OSError as error:  # the next file of a rotation could not be opened
                self._lost(error)

        handler.emit = emit
        handler.handleError = lambda: self._lost(sys.exc_info()[1])
        super().addHandler(handler)

    @classmethod
    def _lost(cls, error: BaseException | None) -> None:
        if time.monotonic() - cls.last_said_at > _SAY_AGAIN_S:
            cls.last_said_at = time.monotonic()
            say.event(say.WRONG, "portal", f"what the programs say cannot be kept in their logs: {error}")


class _Child(Subprocess):  # type: ignore[misc]
    """One program under supervision."""

    config: _Config
    is_ready = False
    done = False
    announced = False
    last_line = ""
    backoff: int

    @property
    def program(self) -> Program:
        return self.config.supervised.program

    def get_execv_args(self) -> tuple[str, list[str]]:
        return self.program.argv[0], list(self.program.argv)

    def _spawn_as_child(self, filename: str, argv: list[str]) -> None:
        call = self.program.call
        if call is None:
            super()._spawn_as_child(filename, argv)
            return
        detach()
        self._prepare_child_fds()
        for other in self.config.options.children.values():
            if other is not self and other.program.wakes is not None:
                other.program.wakes.close()
        forked.become(call, name=self.program.name, environ=self.config.environment, directory=self.program.directory)

    def spawn(self) -> int | None:
        self.is_ready = False
        if not self.config.options.load_code(self.program):
            return None
        try:
            self.program.prepare()
        except OSError as error:
            say.event(say.WRONG, self.program.name, f"cannot be started: {error}")
        pid: int | None = super().spawn()
        self.config.options.record_processes()
        return pid

    def change_state(self, new_state: int, expected: bool = True) -> Any:
        changed = super().change_state(new_state, expected)
        if new_state == ProcessStates.BACKOFF:
            self.backoff = min(self.backoff, LONGEST_BACK_OFF_S)
        return changed

    @property
    def waits(self) -> bool:
        """Whether it is not running because nobody has asked for it."""
        never = self.state == ProcessStates.STOPPED and not self.laststart
        ended_well = self.state == ProcessStates.EXITED and self.exitstatus == 0
        return self.program.wakes is not None and (never or ended_well)

    def transition(self) -> None:
        if self.waits:
            if self.config.options.may_start(self) and self.config.options.knocks(self.program.wakes):
                self.spawn()
            return
        if self.state == ProcessStates.STOPPED and not self.laststart and not self.config.options.may_start(self):
            return
        super().transition()
        if self.pid and not self.is_ready and not self.killing and not self.config.supervised.once:
            self.is_ready = self.program.ready()
            if self.is_ready:
                again = " again" if self.announced else ""
                self.announced = True
                say.event(say.DONE, self.program.name, f"ready{again} after {time.time() - self.laststart:.1f} s")

    def finish(self, pid: int, sts: int) -> None:
        wanted = self.killing
        lived = max(0.0, time.time() - self.laststart)
        status, words = decode_wait_status(sts)
        super().finish(pid, sts)
        self.program.cleanup()
        self.is_ready = False
        if self.program.wakes is not None and status == 0 and self.state == ProcessStates.BACKOFF:
            # It ended well, however soon: what comes next is the next visitor, not another try.
            self.backoff, self.delay, self.exitstatus = 0, 0, 0
            self.change_state(ProcessStates.EXITED)
        if self.config.supervised.once:
            self.done = status == 0
            if not self.done and not wanted:
                self.config.options.give_up(f"{self.program.name} failed ({words}): {self.last_line}")
        elif wanted:
            say.event(say.STOPPED, self.program.name, "stopped")
        elif self.waits:
            say.event(say.NOTE, self.program.name, "nobody is connected; it starts again with the next one")
        else:
            delay = self.backoff if self.state == ProcessStates.BACKOFF else 0
            soon = f"in {delay} s" if delay else "now"
            tail = f"; last line: {self.last_line}" if self.last_line else ""
            say.event(say.AGAIN, self.program.name, f"{words} after {lived:.0f} s; starts again {soon}{tail}")
        self.config.options.record_processes()


class _Config(ProcessConfig):  # type: ignore[misc]
    """supervisord's per-process settings, filled from a Program."""

    def __init__(self, options: _Options, supervised: Supervised, log: Path) -> None:
        self.supervised = supervised
        program = supervised.program
        values: dict[str, Any] = dict.fromkeys(self.req_param_names)
        values |= {
            "name": program.name,
            "command": program.argv[0],
            "directory": str(program.directory),
            "priority": supervised.stage,
            "autostart": True,
            "autorestart": False if supervised.once else RestartUnconditionally,
            "startsecs": 0 if supervised.once else QUICK_DEATH_S,
            "startretries": 1_000_000,
            "stdout_logfile": str(log / f"{program.name}.log"),
            "stdout_logfile_maxbytes": 5 * 1024 * 1024,
            "stdout_logfile_backups": 1,
            "stdout_capture_maxbytes": 0,
            "stdout_events_enabled": True,
            "stderr_events_enabled": False,
            "stopsignal": program.stop_signal,
            "stopwaitsecs": program.stop_wait_s,
            "stopasgroup": False,
            "killasgroup": False,
            "exitcodes": [0],
            "redirect_stderr": True,
            "environment": {**program.environ, MARK: str(options.home)},
        }
        super().__init__(options, **values)

    def make_process(self, group: Any = None) -> _Child:
        child = _Child(self)
        child.group = group
        return child


class _Options(ServerOptions):  # type: ignore[misc]
    """What supervisord asks its surroundings for."""

    minfds = 256
    nodaemon = True
    strip_ansi = False
    first = False
    serverurl = None
    test = False

    def __init__(self, *, home: Path, record: Path) -> None:
        super().__init__()
        self.home = home
        self.record = record
        self.children: dict[str, _Child] = {}
        self.failure = ""
        self.loaded: set[Callable[[], None]] = set()
        self.loglevel = loggers.LevelsByName.CRIT
        self.logger = loggers.getLogger(self.loglevel)
        self.poller.poll = _paced(self.poller.poll, self)

    def setpgrp(self) -> None:
        detach()

    def getLogger(self, *args: Any, **kwargs: Any) -> _Log:  # noqa: N802 - supervisord's name
        return _Log(*args, **kwargs)

    def openhttpservers(self, supervisor: supervisord.Supervisor) -> None:
        """No interface: the supervisor belongs to the terminal it runs in."""

    def write_pidfile(self) -> None:
        """The lock file holds the pid."""

    def kill(self, pid: int, signal_: int) -> None:
        child = self.pidhistory.get(abs(pid))
        inner = child.program.stop_pid() if child is not None else None
        if inner is not None:
            os.kill(inner, signal_)
        if inner is None or signal_ == signal.SIGKILL:
            os.kill(pid, signal_)

    def may_start(self, child: _Child) -> bool:
        needed = (self.children.get(name) for name in child.config.supervised.needs)
        return all(other is None or other.is_ready or other.done for other in needed)

    def knocks(self, listener: socket.socket | None) -> bool:
        """Whether somebody waits to be let in at this socket; the loop wakes when somebody comes."""
        if listener is None or self.mood < SupervisorStates.RUNNING:
            return False
        if select.select([listener], [], [], 0)[0]:
            return True
        self.poller.register_readable(listener.fileno())
        return False

    def load_code(self, program: Program) -> bool:
        """Load, once, what a forked program shares with the others; False when that fails and the start ends.

        Other programs were executed before and get ready in the meantime.
        """
        if program.call is None or program.preload in self.loaded:
            return True
        try:
            program.preload()
        except Exception as error:  # noqa: BLE001 - code of all apps runs; said, and the start ends
            traceback.print_exc()
            self.give_up(f"The portal's code cannot be loaded: {error}")
            return False
        self.loaded.add(program.preload)
        gc.collect()
        gc.freeze()  # the collector would write to every object and so unshare the memory
        return True

    def settled(self) -> bool:
        """Whether nothing is being started or stopped."""
        return self.mood >= SupervisorStates.RUNNING and all(
            child.is_ready or child.done or child.waits for child in self.children.values()
        )

    def pace_s(self) -> float:
        """How long the loop may sleep. Output and exits of programs wake it at once."""
        if self.settled():
            return _IDLE_PACE_S
        if self.mood < SupervisorStates.RUNNING:
            return _BUSY_PACE_S
        fresh = time.time() - _FRESH_S
        started = any(child.pid and not child.is_ready and child.laststart > fresh for child in self.children.values())
        return _BUSY_PACE_S if started or not self.pidhistory else _WAITING_PACE_S

    def give_up(self, why: str) -> None:
        self.failure = why
        self.mood = SupervisorStates.SHUTDOWN

    def record_processes(self) -> None:
        """Note who runs, for a start after this process was killed. On a full disk the note is an old one."""
        entries = [
            {"name": child.program.name, "pid": child.pid, "started_ticks": started_ticks(child.pid)}
            for child in self.children.values()
            if child.pid
        ]
        draft = self.record.with_suffix(".new")
        try:
            draft.write_text(json.dumps(entries), encoding="utf-8")
            draft.replace(self.record)
        except OSError as error:
            say.event(say.WRONG, "portal", f"who runs cannot be noted: {error}")


def _paced(poll: Callable[[float], Any], options: _Options) -> Callable[[float], Any]:
    return lambda _timeout: poll(options.pace_s())


class _Supervisor(supervisord.Supervisor):  # type: ignore[misc]
    """supervisord's loop, with a word when everything is ready for the first time."""

    def __init__(self, options: _Options, *, on_ready: Callable[[], None]) -> None:
        super().__init__(options)
        self.on_ready = on_ready
        self.was_ready = False

    def handle_signal(self) -> None:
        before = self.options.mood
        super().handle_signal()
        if before >= SupervisorStates.RUNNING > self.options.mood:
            say.event(say.NOTE, "portal", "stopping")
        if not self.was_ready and self.options.settled():
            self.was_ready = True
            self.on_ready()


def recorded(record: Path) -> list[Identity]:
    """Who ran when the record was last written; nothing when there is none or it is damaged."""
    try:
        entries = json.loads(record.read_text(encoding="utf-8"))
        return [
            Identity(pid=int(entry["pid"]), started_ticks=int(entry["started_ticks"]))
            for entry in entries
            if entry["started_ticks"] is not None
        ]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def run(
    supervised: Sequence[Supervised],
    *,
    home: Path,
    log: Path,
    record: Path,
    on_ready: Callable[[], None],
) -> str:
    """Run the programs until SIGINT, SIGTERM or SIGHUP. Returns "" or why it had to give up."""
    options = _Options(home=home, record=record)
    stages = sorted({entry.stage for entry in supervised})
    supervisor = _Supervisor(options, on_ready=on_ready)
    events.clear()
    for stage in stages:
        configs = [_Config(options, entry, log) for entry in supervised if entry.stage == stage]
        supervisor.add_process_group(ProcessGroupConfig(options, f"stage-{stage}", stage, configs))
    for group in supervisor.process_groups.values():
        options.children |= group.processes
    events.subscribe(events.ProcessLogStdoutEvent, _show_warnings())
    options.setsignals()
    try:
        supervisor.runforever()
    except asyncore.ExitNow:
        pass  # how supervisord's loop says that everything has stopped
    finally:
        options.poller.close()
        record.unlink(missing_ok=True)
    return options.failure


def _show_warnings() -> Callable[[Any], None]:
    """Repeat warnings and errors of the programs on the terminal; everything is in their log files."""
    partial: dict[str, str] = {}

    def listen(event: Any) -> None:
        name = event.process.config.name
        data = event.data.decode(errors="replace") if isinstance(event.data, bytes) else event.data
        *lines, partial[name] = (partial.get(name, "") + data).split("\n")
        for line in lines:
            if _EXCEPTION.match(line) or (line.strip() and not _EXCEPTION.match(event.process.last_line)):
                event.process.last_line = line.strip()[:300]
            if _WORTH_SHOWING.search(line) and not _EXPECTED.search(line):
                say.event(say.WRONG, name, line.strip()[:400])

    return listen
