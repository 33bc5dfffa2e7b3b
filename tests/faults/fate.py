"""One random life of a queue: what people, workers, nodes, schedulers and faults do, drawn from one number.

The portal's own reconcile, claim, transition, ledger and scheduler code runs on PostgreSQL with a clock that the seed
moves, against a cluster in memory that loses answers, refuses, and lets workers die or come late in any request. What
must hold at every moment is checked after every step, and what must hold in the end once the faults are over.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from apps.clusters import reaper, watching
from apps.core import claims, reconciling
from apps.core.actors import Actor
from apps.core.errors import PortalError
from apps.flows import logs, scheduler, services
from apps.flows.models import Attempt, Flow, Run, Schedule
from apps.flows.states import ATTEMPT_STATES, RUN_STATES
from apps.tenants import checker
from apps.tenants.models import Queue, Reservation
from kubekit import names
from kubekit.errors import Conflict, KubeError, ServerError, ServerTimeout, TooManyRequests, Unreachable
from tests.faults.fate_instances import InstanceLives
from tests.faults.scripted import CPU, ENDED, Obj, ScriptedCluster, requested, row_of, snapshot
from tests.flows.fakes import stamp

STEPS = 60
KINDS = ("attempt", "instance")
#: After the faults everything must have come to its end within so much of the portal's own time.
RECOVERY = timedelta(seconds=60)
ORPHANS_GONE = timedelta(minutes=5)
READS = ("SELECT", "SAVEPOINT", "RELEASE SAVEPOINT", "ROLLBACK TO SAVEPOINT")
LINES = ("begun", "1", "2", "3")


class Killed(BaseException):
    """The process that was working is dead."""


@dataclass
class Clock:
    """In place of ``timezone.now``."""

    now: datetime = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        self.now += timedelta(milliseconds=1)
        return self.now


@dataclass
class Fate:
    """``live`` draws the steps, ``end`` lets the faults be over and everything come to its end."""

    seed: int
    actor: Actor
    flows: list[Flow]
    queue: Queue
    clock: Clock
    committed: Callable[[], Any]
    hints: list[tuple[str, UUID]] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    #: What a worker ran into that is neither the cluster's refusal nor its own death.
    troubles: list[BaseException] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        self.cluster = self.queue.cluster
        self.kube = ScriptedCluster(
            namespace=self.queue.namespace,
            hard_millis=self.queue.cpu_millis,
            now=self.clock,
            meet=self.before_request,
            met=self.after_request,
        )
        self.instances = InstanceLives(kube=self.kube, dice=self.dice, actor=self.actor, queue=self.queue)
        self.faulty = False
        self._clock_was_set = False
        self._wrote = True
        self._latest = self.clock.now
        self._working: list[UUID] = []
        self._old: list[Obj] = []
        self._ended: dict[UUID, str] = {}
        self._vanished: set[str] = set()
        self._exits: dict[str, int] = {}
        self._instants: set[tuple[UUID, datetime]] = set()

    # -- what happens --------------------------------------------------------------------------------------------

    def live(self) -> None:
        """The faulty part of the life."""
        self.faulty = True
        steps = {
            self.start: 3, self.cancel: 2, self.work: 12, self.sweep: 4, self.lose_hints: 1, self.node_starts: 5,
            self.node_ends: 5, self.node_falls_silent: 1, self.node_is_back: 2, self.somebody_deletes: 1,
            self.somebody_takes_by_force: 1, self.news: 6, self.old_news: 2, self.list_again: 2, self.collect: 3,
            self.tick: 3, self.stale_leader: 1, self.reap: 1, self.wait: 5, self.jump: 1, **self.instances.steps,
        }  # fmt: skip
        for _ in range(STEPS):
            step = self.dice.choices(list(steps), list(steps.values()))[0]
            self.told.append(f"{self.clock.now:%H:%M:%S} {step.__name__}")
            self._do(step)
            self._latest = max(self._latest, self.clock.now)
            self.check()

    def _do(self, step: Callable[[], None]) -> None:
        try:
            with self.committed():
                step()
        except (Killed, KubeError):
            self.told.append("  … and died of it")
        self._working.clear()

    def start(self) -> None:
        """A person runs a flow."""
        flow = self.dice.choice(self.flows)
        if Run.objects.as_system().count() < 8:
            services.run_now(actor=self.actor, flow=flow, run_id=uuid4())

    def cancel(self) -> None:
        """A person cancels a run."""
        runs = list(Run.objects.as_system().exclude(state__in=RUN_STATES.terminal).order_by("created_at", "pk"))
        if runs:
            with suppress(PortalError):
                services.cancel(actor=self.actor, run=self.dice.choice(runs))

    def work(self) -> None:
        """A worker takes a hint, twice now and then, or what is due."""
        if not self.hints:
            kind = self.dice.choice(KINDS)
            reconciling.reconcile_due(kind, limit=self.dice.choice((1, 3)))
            return
        kind, pk = self.hints.pop(self.dice.randrange(len(self.hints)))
        for _ in range(self.dice.choice((1, 1, 1, 2))):
            reconciling.reconcile_one(kind, pk)

    def sweep(self) -> None:
        """The control process hints what is due; it notices first when the clock was set."""
        if self._clock_was_set:
            self._clock_was_set = False
            reconciling.clock_jumped()
        reconciling.sweep()

    def lose_hints(self) -> None:
        """Redis restarts empty."""
        self.hints.clear()

    def node_starts(self) -> None:
        """A node starts a pod's program."""
        for pod in self._pods("Pending"):
            if "deletionTimestamp" not in pod["metadata"]:
                lines = "".join(f"{stamp(self.clock.now)} {line}\n" for line in LINES)
                self.kube.run(pod, at=self.clock.now, log=lines.encode())
                return

    def node_ends(self) -> None:
        """A program ends, or a node takes it away."""
        for pod in self._pods("Running"):
            if pod["metadata"]["name"] not in self.kube.silent:
                code = self.dice.choice((0, 0, 1, 137))
                self._finish(pod, code, "Evicted" if code == 137 else "")
                return

    def node_falls_silent(self) -> None:
        """The control plane hears no more of a pod's node."""
        for pod in self._pods("Running")[:1]:
            self.kube.lose_contact(pod)

    def node_is_back(self) -> None:
        """A silent node reports again, and does what it was told meanwhile."""
        for pod in [pod for pod in self._pods("Running") if pod["metadata"]["name"] in self.kube.silent]:
            self.kube.lose_contact(pod, lost=False)
            if "deletionTimestamp" in pod["metadata"]:
                self._finish(pod, 143)

    def somebody_deletes(self) -> None:
        """The cluster's collector, or a person with kubectl."""
        for pod in self._pods("Succeeded", "Failed", "Running")[:1]:
            pod["metadata"].setdefault("deletionTimestamp", stamp(self.clock.now))
            pod["metadata"].setdefault("deletionGracePeriodSeconds", 0)
            if pod["status"]["phase"] == "Running" and pod["metadata"]["name"] not in self.kube.silent:
                self._finish(pod, 143)

    def somebody_takes_by_force(self) -> None:
        """Finalizer and pod are gone."""
        for pod in self._pods("Running", "Failed", "Succeeded")[:1]:
            self._vanished.add(pod["metadata"]["labels"][names.ID])
            self.kube.vanish(pod)

    def news(self) -> None:
        """The watch tells what has changed."""
        self._tell(self.kube.news())

    def old_news(self) -> None:
        """A stale watch tells again what was true once."""
        if self._old:
            self._tell([("MODIFIED", self.dice.choice(self._old))])

    def list_again(self) -> None:
        """The watch ends with 410 and begins anew: what happened meanwhile is never told, only what is there."""
        self.kube.news()
        for kind in KINDS:
            for handler in watching.registry.resyncs["pods", kind]:
                handler(self.cluster.pk, [pod for pod in self.kube.pods.values() if _kind(pod) == kind])

    def _tell(self, changes: list[tuple[str, Obj]]) -> None:
        for kind in KINDS:
            mine = [change for change in changes if _kind(change[1]) == kind]
            for handler in watching.registry.objects["pods", kind] if mine else ():
                handler(self.cluster.pk, mine)

    def collect(self) -> None:
        """The collector stores a part of a log."""
        for pod in self._pods("Running"):
            row = logs.attempt_row(UUID(pod["metadata"]["labels"][names.ID]))
            if row is None or row.log_complete:
                continue
            cutter = logs.Cutter.at(row.log_mark)
            raw = self.kube.logs[pod["metadata"]["name"]]
            data = cutter.feed(raw[: self.dice.randrange(len(raw))])
            if data:
                with suppress(logs.Moved):
                    logs.append(row, data, cutter.mark)
            return

    def tick(self) -> None:
        """A scheduler fires what is due."""
        dues = Schedule.objects.as_system().filter(next_fire_at__lte=self.clock.now)
        due = set(dues.values_list("flow_id", "next_fire_at"))
        scheduler.tick(self.clock.now)
        self._instants |= due

    def stale_leader(self) -> None:
        """Another scheduler believes that the last instant has not been fired."""
        last = Run.objects.as_system().filter(scheduled_at__isnull=False).order_by("-scheduled_at").first()
        if last is not None:
            Schedule.objects.as_system().filter(flow_id=last.flow_id).update(next_fire_at=last.scheduled_at)

    def reap(self) -> None:
        """The control process looks for orphans."""
        reaper.reap(self.cluster)

    def wait(self) -> None:
        """Time passes."""
        self.clock.now += timedelta(seconds=self.dice.choice((1, 5, 20, 65)))

    def jump(self) -> None:
        """The clock is set right, or wrong."""
        self._latest = max(self._latest, self.clock.now)
        self.clock.now += timedelta(seconds=self.dice.choice((-3600, 3600, -60)))
        self._clock_was_set = True

    # -- faults in the middle of a request ---------------------------------------------------------------------------

    def before_request(self, verb: str) -> None:
        """Called with each request before the cluster carries it out."""
        if not self.faulty:
            return
        drawn = self.dice.random()
        if drawn < 0.02:
            raise Killed
        if drawn < 0.05 and len(self._working) < 2:
            self._stand_still()
        elif drawn < 0.13:
            wrote = verb not in ("get", "list", "log")
            raise self.dice.choice(
                (
                    Unreachable("no answer"),
                    TooManyRequests("slow down", status=429),
                    ServerError("internal", status=500, maybe_done=wrote),
                    Conflict("the object has been modified", status=409) if wrote else Unreachable("reset"),
                )
            )

    def after_request(self) -> None:
        """Called with each write after the cluster has carried it out."""
        if not self.faulty:
            return
        drawn = self.dice.random()
        if drawn < 0.04:
            raise Killed
        if drawn < 0.12:
            raise self.dice.choice(
                (
                    Unreachable("the answer was lost", maybe_done=True),
                    ServerTimeout("late", status=504, maybe_done=True),
                )
            )

    def reach(self, _point: str) -> None:
        """In place of ``crashpoints.reach``."""
        if self.faulty and self.dice.random() < 0.03:
            raise Killed

    def note_trouble(self, error: BaseException | None) -> None:
        """In place of the log, where a round that raises ends: a refusal of the cluster is tried again, no more."""
        if error is not None and not isinstance(error, KubeError):
            self.troubles.append(error)

    def _stand_still(self) -> None:
        """The worker is stopped for longer than its lease, and others go on with its row meanwhile."""
        self._working.append(uuid4())
        self.told.append("  … stood still")
        self.clock.now += claims.LEASE + timedelta(seconds=1)
        for step in (self.sweep, self.work, self.node_starts, self.node_ends, self.work):
            with suppress(Killed, KubeError):
                step()

    # -- what must hold ------------------------------------------------------------------------------------------------

    def note_statement(self, execute: Any, sql: str, *rest: Any) -> Any:
        """Wraps every statement: what wrote nothing need not be looked at."""
        self._wrote = self._wrote or not sql.startswith(READS)
        return execute(sql, *rest)

    def check(self) -> None:
        """After each step."""
        assert not self.troubles, self.troubles
        for pod in self.kube.pods.values():
            if len(self._old) < 60:
                self._old.append(snapshot(pod))
        if self._wrote:
            self._check_rows()
            self._wrote = False

    def _check_rows(self) -> None:
        rows = {str(row.pk): row for row in Attempt.objects.as_system().select_related("run")}
        live = Counter(row_of(pod) for pod in self._pods("Pending", "Running", *ENDED))
        assert all(count == 1 for count in live.values()), "one live pod for each attempt"
        alive = Counter(row.run_id for row in rows.values() if row.state not in ATTEMPT_STATES.terminal)
        assert all(count == 1 for count in alive.values()), "one living attempt for each run"
        for row in rows.values():
            before = self._ended.get(row.pk, row.state)
            if before in ATTEMPT_STATES.terminal:
                assert row.state == before, "what has ended has ended"
            self._ended[row.pk] = row.state
            if row.state == "succeeded":
                assert self._exits.get(str(row.pk)) == 0, "no success that was none"
            if row.state == "failed" and row.reason_code == "exit_code":
                assert self._exits[str(row.pk)] == row.exit_code != 0
        for run in Run.objects.as_system():
            before = self._ended.get(run.pk, run.state)
            if before in RUN_STATES.terminal:
                assert run.state == before, "what has ended has ended"
            self._ended[run.pk] = run.state
        fired = Counter(
            Run.objects.as_system().filter(scheduled_at__isnull=False).values_list("flow_id", "scheduled_at")
        )
        assert all(count == 1 for count in fired.values()), "each instant once"
        assert self._instants <= set(fired), "no instant is lost"
        by_kind: dict[str, set[str]] = {"attempt": set(), "instance": set(), "volume": set()}
        for kind, pk in self._open().values_list("kind", "object_id"):
            by_kind[kind].add(str(pk))
        held = by_kind["attempt"]
        self.instances.check(by_kind["instance"])
        for pod in self._pods("Pending", "Running"):
            pk = pod["metadata"]["labels"][names.ID]
            if pk in rows and rows[pk].state not in ATTEMPT_STATES.terminal:
                assert pk in held, "nothing runs without room in the ledger"
        assert held <= {pk for pk, row in rows.items() if row.state not in ATTEMPT_STATES.terminal}

    def end(self) -> None:
        """No more faults: everything comes to its end, in time, and nothing is left behind."""
        self.faulty = False
        # A clock that was set back is right again, and the control process notices.
        self._clock_was_set = self._clock_was_set or self._latest > self.clock.now
        self.clock.now = max(self.clock.now, self._latest)
        for pod in self.kube.pods.values():
            if pod["metadata"]["name"] in self.kube.silent:
                self.kube.lose_contact(pod, lost=False)
        with self.committed():
            self.sweep()
            self.list_again()
            # What waits by its flow's own wish (retries) counts from now on.
            Attempt.objects.as_system().filter(not_before__gt=self.clock.now).update(not_before=self.clock.now)
        began = self.clock.now
        while unsettled := self._unsettled():
            assert self.clock.now - began <= RECOVERY, f"not recovered: {unsettled}"
            self._second_without_faults()
        self.recovered_in = self.clock.now - began
        self.kube.count()
        self._books_agree()
        for _ in range(3):
            self.clock.now += ORPHANS_GONE / 2 + timedelta(seconds=1)
            with self.committed():
                reaper.reap(self.cluster)
            for _second in range(3):
                self._second_without_faults()
        self._nothing_is_left()

    def _second_without_faults(self) -> None:
        with self.committed():
            self.instances.serve_all()
            for _pod in self._pods("Pending"):
                self.node_starts()
            for pod in self._pods("Running"):
                self._finish(pod, 143 if "deletionTimestamp" in pod["metadata"] else 0)
            self.kube.count()
            self.news()
            reconciling.sweep()
            hints, self.hints[:] = dict.fromkeys(self.hints), []
            for kind, pk in hints:
                reconciling.reconcile_one(kind, pk)
        self.check()
        self.clock.now += timedelta(seconds=1)

    def _unsettled(self) -> list[str]:
        """What is not yet as people want it, save what waits for the room that others rightly hold."""
        rows = Attempt.objects.as_system().exclude(state__in=ATTEMPT_STATES.terminal)
        waiting = [f"{row.pk} {row.state} ({row.reason_code}) {row.pod_name}, due {row.due_at}" for row in rows]
        return waiting + self.instances.unsettled()

    def _books_agree(self) -> None:
        """Ledger, the quota's own count and the sum over pods, and what the portal's checker says of them."""
        held = sum(self._open().values_list("cpu_millis", flat=True))
        asked = sum(requested(pod)[CPU] for pod in self.kube.pods.values() if pod["status"]["phase"] not in ENDED)
        assert held == self.kube.used[CPU] == asked, "ledger = quota.used = sum over pods"
        report = checker.check(self.queue)
        assert report.is_good, report

    def _nothing_is_left(self) -> None:
        self._books_agree()
        self.instances.check_end()
        assert not self._pods("Pending", "Running", *ENDED), "no orphan after five minutes"
        assert not self._open().filter(kind="attempt").exists(), "the ledger holds nothing for what has ended"
        for row in Attempt.objects.as_system().filter(state__in=("succeeded", "failed")):
            if str(row.pk) in self._exits and str(row.pk) not in self._vanished:
                assert logs.read(row, 0).data == "".join(f"{line}\n" for line in LINES).encode(), "the whole log"

    # -- helpers -------------------------------------------------------------------------------------------------------

    def _open(self) -> Any:
        return Reservation.objects.as_system().filter(released_at__isnull=True)

    def _pods(self, *phases: str) -> list[Obj]:
        """Pods of attempts."""
        found = [pod for pod in self.kube.pods.values() if _kind(pod) == "attempt" and pod["status"]["phase"] in phases]
        self.dice.shuffle(found)
        return found

    def _finish(self, pod: Obj, code: int, pod_reason: str = "") -> None:
        self._exits[row_of(pod)] = code
        self.kube.finish(pod, exit_code=code, pod_reason=pod_reason, at=self.clock.now)


def _kind(pod: Obj) -> str:
    return str(pod["metadata"]["labels"].get(names.KIND))
