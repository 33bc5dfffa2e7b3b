"""One random life of a queue: what people, workers, nodes, schedulers and faults do, drawn from one number.

The portal's own reconcile, claim, transition, ledger and scheduler code runs on PostgreSQL with a clock that the seed
moves, against a cluster in memory that loses answers, refuses, and lets workers die or come late in any request. What
must hold at every moment is checked after every step, and what must hold in the end once the faults are over.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from django.db.models import Sum

from apps.clusters import reaper
from apps.core import claims, reconciling
from apps.core.actors import Actor
from apps.core.errors import Conflict as PortalConflict
from apps.flows import logs, scheduler, services, watch
from apps.flows.models import Attempt, Flow, Run, Schedule
from apps.flows.states import ATTEMPT_STATES, RUN_STATES
from apps.tenants.models import Reservation
from kubekit import names
from kubekit.errors import Conflict, KubeError, ServerError, ServerTimeout, TooManyRequests, Unreachable
from kubekit.quantities import parse_cpu
from tests.flows.fakes import FakeKube, stamp

Obj = dict[str, Any]
STEPS = 45
#: After the faults everything must have come to its end within so much of the portal's own time.
RECOVERY = timedelta(seconds=60)
ORPHANS_GONE = timedelta(minutes=5)
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


class FaultyKube(FakeKube):
    """The cluster as a worker meets it through a bad network."""

    def __init__(self, fate: Fate) -> None:
        super().__init__()
        self._fate = fate

    def _meet(self, verb: str, name: str) -> None:
        super()._meet(verb, name)
        self._fate.before_request(verb)

    def create(self, obj: Mapping[str, Any], *, dry_run: bool = False) -> Obj:
        return self._answered(super().create(obj, dry_run=dry_run))

    def patch_merge(self, *args: Any, **more: Any) -> Obj:
        return self._answered(super().patch_merge(*args, **more))

    def delete(self, *args: Any, **more: Any) -> Obj:
        return self._answered(super().delete(*args, **more))

    def list(self, kind: str, namespace: str | None = None, *, labels: Any = None, **more: Any) -> Iterator[Obj]:
        if kind != "Pod" or namespace is not None:
            return super().list(kind, namespace, **more)
        self._meet("list", kind)
        chosen = [
            pod
            for pod in self.pods.values()
            if all(pod["metadata"]["labels"].get(key) == value for key, value in (labels or {}).items())
        ]
        return iter([{**pod, "kind": "Pod"} for pod in chosen])

    def _answered(self, answer: Obj) -> Obj:
        self._fate.after_request()
        return answer


@dataclass
class Fate:
    """``live`` draws the steps, ``end`` lets the faults be over and everything come to its end."""

    seed: int
    actor: Actor
    flows: list[Flow]
    cluster: Any
    clock: Clock
    committed: Callable[[], Any]
    hints: list[UUID] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        self.kube = FaultyKube(self)
        self.faulty = False
        self._latest = self.clock.now
        self._working: list[UUID] = []
        self._old: list[Obj] = []
        self._ended: dict[UUID, str] = {}
        self._vanished: set[str] = set()
        self._exits: dict[str, int] = {}
        self._silent: set[str] = set()
        self._instants: set[tuple[UUID, datetime]] = set()

    # -- what happens --------------------------------------------------------------------------------------------

    def live(self) -> None:
        """The faulty part of the life."""
        self.faulty = True
        steps = {
            self.start: 3, self.cancel: 2, self.work: 12, self.sweep: 4, self.lose_hints: 1, self.node_starts: 5,
            self.node_ends: 5, self.node_falls_silent: 1, self.node_is_back: 2, self.somebody_deletes: 1,
            self.somebody_takes_by_force: 1, self.old_news: 2, self.list_again: 2, self.collect: 3, self.tick: 3,
            self.stale_leader: 1, self.reap: 1, self.wait: 5, self.jump: 1,
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
            with suppress(PortalConflict):
                services.cancel(actor=self.actor, run=self.dice.choice(runs))

    def work(self) -> None:
        """A worker takes a hint, twice now and then, or what is due."""
        if not self.hints:
            reconciling.reconcile_due("attempt", limit=self.dice.choice((1, 3)))
            return
        pk = self.hints.pop(self.dice.randrange(len(self.hints)))
        for _ in range(self.dice.choice((1, 1, 1, 2))):
            reconciling.reconcile_one("attempt", pk)

    def sweep(self) -> None:
        """The control process hints what is due."""
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
            if pod["metadata"]["name"] not in self._silent:
                code = self.dice.choice((0, 0, 1, 137))
                self._finish(pod, code, "Evicted" if code == 137 else "")
                return

    def node_falls_silent(self) -> None:
        """The control plane hears no more of a pod's node."""
        for pod in self._pods("Running")[:1]:
            self._silent.add(pod["metadata"]["name"])
            self.kube.silence(pod)

    def node_is_back(self) -> None:
        """A silent node reports again, and does what it was told meanwhile."""
        for pod in [pod for pod in self._pods("Running") if pod["metadata"]["name"] in self._silent]:
            self._silent.discard(pod["metadata"]["name"])
            self.kube.silence(pod, silent=bool(self._silent))
            if "deletionTimestamp" in pod["metadata"]:
                self._finish(pod, 143)

    def somebody_deletes(self) -> None:
        """The cluster's collector, or a person with kubectl."""
        for pod in self._pods("Succeeded", "Failed", "Running")[:1]:
            pod["metadata"].setdefault("deletionTimestamp", stamp(self.clock.now))
            pod["metadata"].setdefault("deletionGracePeriodSeconds", 0)
            if pod["status"]["phase"] == "Running" and pod["metadata"]["name"] not in self._silent:
                self._finish(pod, 143)

    def somebody_takes_by_force(self) -> None:
        """Finalizer and pod are gone."""
        for pod in self._pods("Running", "Failed", "Succeeded")[:1]:
            self._vanished.add(pod["metadata"]["labels"][names.ID])
            self.kube.vanish(pod)

    def old_news(self) -> None:
        """A stale watch tells again what was true once."""
        if self._old:
            watch.pod_changed(self.cluster.pk, "MODIFIED", self.dice.choice(self._old))

    def list_again(self) -> None:
        """The watch begins anew."""
        watch.pods_listed(self.cluster.pk, [pod for pod in self.kube.pods.values() if _ours(pod)])

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

    def _stand_still(self) -> None:
        """The worker is stopped for longer than its lease, and others go on with its row meanwhile."""
        self._working.append(uuid4())
        self.told.append("  … stood still")
        self.clock.now += claims.LEASE + timedelta(seconds=1)
        for step in (self.sweep, self.work, self.node_starts, self.node_ends, self.work):
            with suppress(Killed, KubeError):
                step()

    # -- what must hold ------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """After each step."""
        for pod in self.kube.pods.values():
            if len(self._old) < 60:
                self._old.append({**pod, "metadata": dict(pod["metadata"]), "status": dict(pod["status"])})
        rows = {str(row.pk): row for row in Attempt.objects.as_system().select_related("run")}
        live = Counter(pod["metadata"]["labels"][names.ID] for pod in self.kube.pods.values())
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
        held = {str(pk) for pk in self._open().values_list("object_id", flat=True)}
        for pod in self._pods("Pending", "Running"):
            pk = pod["metadata"]["labels"][names.ID]
            if pk in rows and rows[pk].state not in ATTEMPT_STATES.terminal:
                assert pk in held, "nothing runs without room in the ledger"
        assert held <= {pk for pk, row in rows.items() if row.state not in ATTEMPT_STATES.terminal}

    def end(self) -> None:
        """No more faults: everything comes to its end, in time, and nothing is left behind."""
        self.faulty = False
        # A clock that was set back is right again: until then leases and dates lie in its future.
        self.clock.now = max(self.clock.now, self._latest)
        self.node_is_back()
        self._silent.clear()
        with self.committed():
            self.list_again()
            # What waits by its flow's own wish (retries, room) counts from now on.
            Attempt.objects.as_system().filter(not_before__gt=self.clock.now).update(not_before=self.clock.now)
            Attempt.objects.as_system().filter(due_at__gt=self.clock.now).update(due_at=self.clock.now)
        began = self.clock.now
        while Run.objects.as_system().exclude(state__in=RUN_STATES.terminal).exists():
            assert self.clock.now - began < 4 * RECOVERY, self._unfinished()
            with self.committed():
                for _pod in self._pods("Pending"):
                    self.node_starts()
                for pod in self._pods("Running"):
                    self._finish(pod, 0)
                self.list_again()
                later = reconciling.sweep()
                for pk in self.hints:
                    reconciling.reconcile_one("attempt", pk)
                idle = not self.hints
                self.hints.clear()
            if not idle:
                self.check()
            # With nothing to do the portal sleeps until a row is due again: a dead worker's lease ends, for one.
            soon = self.clock.now + timedelta(seconds=1)
            self.clock.now = max(soon, later) if idle and later is not None else soon
        for _ in range(3):
            with self.committed():
                reaper.reap(self.cluster)
                self.list_again()
                for pod in self._pods("Running"):
                    if "deletionTimestamp" in pod["metadata"]:
                        self._finish(pod, 143)
                self.list_again()
            self.clock.now += ORPHANS_GONE / 2 + timedelta(seconds=1)
        self._nothing_is_left()

    def _nothing_is_left(self) -> None:
        assert self.kube.pods == {}, "no orphan after five minutes"
        assert not self._open().exists(), "the ledger holds nothing"
        for row in Attempt.objects.as_system().filter(state__in=("succeeded", "failed")):
            if str(row.pk) in self._exits and str(row.pk) not in self._vanished:
                assert logs.read(row, 0).data == "".join(f"{line}\n" for line in LINES).encode(), "the whole log"

    def books(self) -> tuple[int, int]:
        """CPU that the ledger holds, and that pods of living attempts ask for."""
        held = self._open().aggregate(total=Sum("cpu_millis"))["total"] or 0
        asked = sum(
            parse_cpu(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"])
            for pod in self._pods("Pending", "Running")
        )
        return int(held), asked

    # -- helpers -------------------------------------------------------------------------------------------------------

    def _open(self) -> Any:
        return Reservation.objects.as_system().filter(released_at__isnull=True, kind="attempt")

    def _pods(self, *phases: str) -> list[Obj]:
        found = [pod for pod in self.kube.pods.values() if pod["status"]["phase"] in phases]
        self.dice.shuffle(found)
        return found

    def _finish(self, pod: Obj, code: int, pod_reason: str = "") -> None:
        self._exits[pod["metadata"]["labels"][names.ID]] = code
        self.kube.finish(pod, exit_code=code, pod_reason=pod_reason, at=self.clock.now)

    def _unfinished(self) -> str:
        rows = Attempt.objects.as_system().exclude(state__in=ATTEMPT_STATES.terminal)
        return f"not ended: {[(str(row.pk), row.state, row.reason_code, row.pod_name, row.due_at) for row in rows]}"


def _ours(pod: Obj) -> bool:
    return pod["metadata"]["labels"].get(names.KIND) == "attempt"
