"""Kill one process of a running portal at a point that it says it has reached, and look at what became of it all."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg

from kubekit.errors import Unreachable
from mlportal.paths import Home
from mlportal.processes import all_pids, left_behind
from mlportal.supervise import recorded
from tests.crash.observer import Observer, id_of
from tests.journeys.portal import Answer, Portal, wait_until
from tests.journeys.sinks import MailSink, WebhookSink

#: Generous, because other tests share the machine; a case that converges takes seconds.
PATIENCE_S = 90.0
#: The first use of an image builds its environment, with downloads on a new machine.
FIRST_START_S = 240.0
#: ``make crash`` gives three: they mix the cases' order and how long a process stands at its point before it dies.
SEED = int(os.environ.get("MLPORTAL_CRASH_SEED", "0"))
Made = dict[str, Any]


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@dataclass
class Behind:
    """A running portal from behind: its processes, its database, and a client that does not give up."""

    portal: Portal

    @property
    def home(self) -> Home:
        """Its data folder."""
        return Home(root=self.portal.home)

    def pid(self, program: str) -> int | None:
        """The process that the supervisor has noted for a program."""
        for entry in json.loads(self.home.processes_file.read_text()):
            if entry["name"] == program:
                found: int = entry["pid"]
                return found
        return None

    def ask(self, method: str, path: str, body: Any = None, *, key: str = "", also: Collection[int] = ()) -> Answer:
        """As a client that does not give up: repeats the same request until it is answered well, or as in ``also``."""

        def answered() -> Answer | None:
            assert self.portal.process is not None and self.portal.process.poll() is None, "the portal ended"
            try:
                answer = self.portal.api(method, path, body, key=key)
            except OSError:
                return None
            good = answer.status < 400 or answer.status in also
            assert good or answer.status >= 500, (method, path, answer.status, answer.body)
            return answer if good else None

        found: Answer = wait_until(f"answer to {method} {path}", answered, seconds=PATIENCE_S)
        return found

    def in_state(self, path: str, *states: str, seconds: float = PATIENCE_S) -> Made:
        """Wait until the object is in one of the states."""

        def there() -> Made | None:
            found: Made = self.ask("GET", path).json
            return found if found["state"] in states else None

        try:
            found: Made = wait_until(f"{path} that is {'/'.join(states)}", there, seconds=seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}; it is {self.ask('GET', path).json}") from error
        return found

    def sql(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Straight from the database, without the portal's own eyes."""
        with psycopg.connect(host=str(self.home.run), user="mlportal", dbname="mlportal", autocommit=True) as link:
            done = link.execute(statement, values)
            return done.fetchall() if done.description else []


@dataclass
class Stage(Behind):
    """The portal of these tests, what watches it, and the ways to hurt it."""

    points: Path
    mail: MailSink
    webhook: WebhookSink
    dice: random.Random = field(default_factory=lambda: random.Random(SEED))
    calls: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(4))
    observer: Observer = field(init=False)

    def __post_init__(self) -> None:
        self.observer = Observer(self.home.localkube / "kubeconfig")

    # -- hurting -----------------------------------------------------------------------------------------------

    @contextmanager
    def killed_at(self, point: str, program: str, *, meanwhile: Callable[[], None] = lambda: None) -> Iterator[None]:
        """What the block sets off must take ``program`` to ``point``; there it is killed, and the supervisor helps.

        The block must make that certain: where another process could do the same work first, hold it (``held_at``).
        ``meanwhile`` happens while it stands there.
        """
        with self._stopped_at(point, program):
            yield
        time.sleep(self.dice.uniform(0.0, 2.0) if SEED else 0.0)
        try:
            meanwhile()
        finally:
            self.kill(program)

    @contextmanager
    def held_at(self, point: str, program: str) -> Iterator[None]:
        """The block takes ``program`` to ``point``, where it stands still, as a slow one, until the block is over."""
        with self._stopped_at(point, program) as pid:
            yield
        os.kill(pid, signal.SIGCONT)

    @contextmanager
    def _stopped_at(self, point: str, program: str) -> Iterator[int]:
        before = self.pid(program)
        assert before is not None
        armed, reached = self.points / f"{point}.armed", self.points / f"{point}.reached"
        armed.touch()
        try:
            yield before
            wait_until(f"{program} at the point {point}", reached.exists, seconds=PATIENCE_S, every=0.05)
        finally:
            armed.unlink(missing_ok=True)
        assert int(reached.read_text()) == before, f"another process than {program} reached {point}"
        reached.unlink()

    def kill(self, program: str) -> None:
        """SIGKILL, then wait until another process has taken its place and works."""
        before = self.pid(program)
        assert before is not None
        if program == "control":
            self._spoil_nodes(before)
        # PostgreSQL may run inside a wrapper; the server itself is what dies.
        lock = self.home.postgres_data / "postmaster.pid"
        os.kill(int(lock.read_text().split()[0]) if program == "postgres" else before, signal.SIGKILL)

        def replaced() -> bool:
            now = self.pid(program)
            return now not in (None, before) and self._works(program)

        wait_until(f"new {program} in the place of {before}", replaced, seconds=PATIENCE_S, every=0.1)

    def kill_supervisor(self, *, programs: bool = False, pods: bool = False) -> None:
        """SIGKILL the supervisor, and at the same moment its programs, and the pods with their agents."""
        process = self.portal.process
        assert process is not None
        # Stopped first, or it would start again what is killed before it.
        process.send_signal(signal.SIGSTOP)
        control = self.pid("control")
        assert control is not None
        self._spoil_nodes(control)
        doomed: set[int] = set()
        if programs:
            doomed |= {one.pid for one in left_behind(home=self.home.root, recorded=recorded(self.home.processes_file))}
        if pods:
            doomed |= {pid for pid in all_pids() if os.fsencode(self.home.root) in _command_line(pid)}
        for pid in doomed - {process.pid}:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.kill()
        process.wait(timeout=30)

    def wait_for_all(self) -> None:
        """Until every program works: the portal calls itself ready as soon as it has a first page."""
        programs = ("web", "worker", "control")
        wait_until("complete portal", lambda: all(self._works(one) for one in programs), seconds=PATIENCE_S)

    def _spoil_nodes(self, control: int) -> None:
        """Stop the control process and write what its successor corrects once it has listed nodes and pods."""
        os.kill(control, signal.SIGSTOP)
        self.sql("UPDATE clusters_node SET schedulable = false")

    def _works(self, program: str) -> bool:
        if program in ("worker", "control"):
            ready = self.home.ready_file(program).exists()
            # A pod that ends before control watches would be found by its first list and by no event.
            return ready and (program == "worker" or self.sql("SELECT schedulable FROM clusters_node") == [(True,)])
        try:
            return self.portal.api("GET", "queues").status == 200
        except OSError:
            return False

    # -- using -------------------------------------------------------------------------------------------------

    def ask_later(self, method: str, path: str, body: Any = None, *, key: str = "") -> Future[Answer]:
        """The same in another thread, for a request whose process is going to die."""
        return self.calls.submit(self.ask, method, path, body, key=key)

    def jupyter(self, instance: Made, *, key: str = "") -> int:
        """What the instance's host answers to its key; 0 when the connection broke, as it may while routes change."""
        key = key or self.ask("GET", f"instances/{instance['id']}/key").json["key"]
        try:
            return self.portal.at_instance(urlsplit(instance["url"]).hostname or "", "/api/status", key=key).status
        except OSError:
            return 0

    # -- looking -----------------------------------------------------------------------------------------------

    def pods_made(self, row_id: str) -> list[int]:
        """For each attempt or launch of the row, how many pods it had; the observer may hear of the first one late."""
        found: list[int] = wait_until(
            f"pod for {row_id} that the observer saw", lambda: self.observer.pods_made(row_id), seconds=PATIENCE_S
        )
        return found

    def reserved(self) -> set[str]:
        """The ids that hold room in the ledger, homes left out."""
        rows = self.sql(
            "SELECT object_id FROM tenants_reservation WHERE released_at IS NULL AND kind IN ('instance', 'attempt')"
        )
        return {str(pk) for (pk,) in rows}

    def everything_is_gone(self, *, but: str = "") -> None:
        """No object in the cluster, no room held in the ledger or by the cluster's own count, save of one row."""

        def left() -> list[str]:
            try:
                objects, counted = self.observer.objects(), [] if but else self.observer.quota_used()
            except Unreachable as error:
                return [f"a cluster that does not answer: {error.message}"]
            found = [f"{raw['kind']} {raw['metadata']['name']}" for raw in objects if id_of(raw) != but]
            return [*found, *sorted(self.reserved() - {but}), *counted]

        try:
            wait_until("portal that holds nothing", lambda: not left(), seconds=PATIENCE_S)
        except AssertionError as error:
            raise AssertionError(f"{error}: {left()}") from error
