"""The portal's own code on PostgreSQL, an API server in the same process, a node in the test's hand, faults between."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from apps.catalog.models import Image, Purpose, Size
from apps.clusters.models import Cluster
from apps.core import crashpoints, reconciling
from apps.core.actors import Actor
from apps.flows import services as flows
from apps.flows.models import Attempt, Flow, Run
from apps.instances import services as instances
from apps.instances.models import Instance
from apps.tenants.models import Queue, Reservation, Team, User
from kubekit import client
from localkube.status import Object
from tests.faults.proxy import PATIENCE_S, FaultProxy
from tests.localkube.conftest import Cluster as Localkube
from tests.localkube.fake_node import FakeNode

GIB = 1 << 30


def until(what: str, probe: Callable[[], Any], *, seconds: float = PATIENCE_S) -> Any:
    """Poll until ``probe`` answers something true; the answer."""
    end = time.monotonic() + seconds
    while not (found := probe()):
        assert time.monotonic() < end, f"after {seconds:.0f} s still no {what}"
        time.sleep(0.02)
    return found


class Clock:
    """In place of ``timezone.now``: real time, moved by the test."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    def forward(self, **parts: float) -> None:
        """Let so much time pass at once."""
        self.ahead += timedelta(**parts)


class ScriptedNode(FakeNode):
    """Runs pods when told to (``hold``) or at once, with logs that the test writes and that end with the pod."""

    def __init__(self) -> None:
        super().__init__()
        self.hold = False
        self.deaf = False
        self.lines: dict[str, list[str]] = {}

    def _on_pod(self, event: str, pod: Object) -> None:
        metadata = pod["metadata"]
        pending = pod["status"]["phase"] == "Pending"
        if self.deaf or event == "DELETED" or pod["spec"].get("nodeName") != self.name:
            return
        if metadata.get("deletionTimestamp") and pod["status"]["phase"] in ("Pending", "Running"):
            self.kill(pod)  # a kubelet reports the end before it lets go; the update calls this again
        elif not (self.hold and pending):
            super()._on_pod(event, pod)

    def kill(self, pod: Object) -> None:
        """SIGTERM was heard; a program that never ran has no ending of its own."""
        metadata = pod["metadata"]
        if pod["status"].get("containerStatuses"):
            self.end(metadata["namespace"], metadata["name"], 143)
            return
        pod = self.store.get("pods", metadata["namespace"], metadata["name"])
        pod["status"]["phase"] = "Failed"
        self.store.update("pods", pod, subresource="status")

    async def logs(self, pod, container, options):
        stamp = datetime(2026, 1, 1, tzinfo=UTC)
        for number, line in enumerate(self.lines.get(pod["metadata"]["name"], [])):
            at = (stamp + timedelta(milliseconds=number)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            yield (f"{at} {line}\n" if options.timestamps else f"{line}\n").encode()


@dataclass
class World:
    """One queue on that cluster; people, flows and instances are made by the portal's services."""

    localkube: Localkube
    node: ScriptedNode
    proxy: FaultProxy
    direct: client.Cluster
    cluster: Cluster
    queue: Queue
    team: Team
    person: User
    actor: Actor
    clock: Clock
    hints: list[tuple[str, UUID]] = field(default_factory=list)
    image: Image | None = None

    # -- asking the portal ---------------------------------------------------------------------------------------

    def catalogue(self) -> None:
        """An image for programs, one for instances, a size."""
        Image.objects.create(name="python", reference="mlportal/python:1", purpose=Purpose.TASK)
        self.image = Image.objects.create(name="jupyter", reference="mlportal/jupyter:1", purpose=Purpose.DEV)
        Size.objects.create(name="small", cpu_millis=500, memory_bytes=GIB // 2)

    def flow(self, name: str = "nightly", **node: Any) -> Flow:
        """A flow of one program, without retries."""
        document = {
            "name": name,
            "queue": self.queue.name,
            "schedules": [],
            "nodes": [
                {
                    "name": "main",
                    "executor": "container",
                    "image": "python",
                    "size": "small",
                    "command": ["python", "-c", "print(42)"],
                    "retries": {"count": 0, "interval_s": 0},
                    "timeout_s": 3600,
                    **node,
                }
            ],
            "alerts": [],
        }
        return flows.create_flow(actor=self.actor, document=document)

    def run(self, name: str = "nightly", **node: Any) -> Attempt:
        """Start a flow; its first attempt, which nobody has looked at."""
        return attempt_of(flows.run_now(actor=self.actor, flow=self.flow(name, **node)))

    def instance(self, name: str = "mine") -> Instance:
        """A new instance, which nobody has looked at; its home is there."""
        made = instances.create(actor=self.actor, queue=self.queue.name, image="jupyter", size="small", name=name)
        assert reconciling.reconcile_one("volume", made.home_id)
        return made

    # -- what worker and time do ---------------------------------------------------------------------------------

    def look(self, row: Any, *, kind: str = "attempt") -> Any:
        """One round of a worker; the row as it is then."""
        assert reconciling.reconcile_one(kind, row.pk), "another worker holds it"
        return fresh(row)

    def rounds(self, row: Any, *states: str, kind: str = "attempt", most: int = 30) -> Any:
        """Round after round, as hints and sweep bring them about, until it is in one of the states."""
        for _ in range(most):
            row = self.look(row, kind=kind)
            if row.state in states:
                return row
            time.sleep(0.05)
        raise AssertionError(f"after {most} rounds {row} is {row.state} ({row.reason_code} {row.reason_params})")

    # -- what the cluster has ------------------------------------------------------------------------------------

    def pods(self) -> list[dict[str, Any]]:
        """Every pod in the queue's namespace, asked for without the proxy."""
        return list(self.direct.list("Pod", self.queue.namespace))

    def pod(self) -> dict[str, Any]:
        """The one pod."""
        (found,) = self.pods()
        return found

    def runs(self) -> dict[str, Any]:
        """The one pod, once its program runs."""
        return until("pod that runs", lambda: next((p for p in self.pods() if p["status"]["phase"] == "Running"), None))

    def end(self, exit_code: int = 0, *, log: tuple[str, ...] = ()) -> dict[str, Any]:
        """The program of the one pod ends."""
        pod = self.runs()
        name = pod["metadata"]["name"]
        self.node.lines[name] = list(log)
        self.localkube.call(self.node.end, self.queue.namespace, name, exit_code)
        return self.pod()

    def set_pod(self, change: Callable[[Object], None]) -> None:
        """Let the node, or nobody, report something else about the one pod."""
        name = self.pod()["metadata"]["name"]

        def update() -> None:
            pod = self.localkube.server.store.get("pods", self.queue.namespace, name)
            change(pod)
            self.localkube.server.store.update("pods", pod, subresource="status")

        self.localkube.call(update)

    def used(self) -> dict[str, str]:
        """What the namespace's quota counts."""
        return (self.direct.get("ResourceQuota", self.queue.namespace, "queue").get("status") or {}).get("used") or {}

    def wake_node(self) -> None:
        """The node hears and reports again, beginning with what it missed."""
        self.node.hold = self.node.deaf = False
        for pod in self.pods():
            self.localkube.call(self.node._on_pod, "MODIFIED", pod)

    def held(self) -> int:
        """How many instances and attempts hold room in the ledger."""
        rows = Reservation.objects.as_system().filter(released_at__isnull=True, kind__in=("attempt", "instance"))
        return int(rows.count())

    def clear(self) -> None:
        """Take everything away, finalizers included."""
        for pod in self.pods():
            self.direct.patch_merge(
                "Pod", self.queue.namespace, pod["metadata"]["name"], {"metadata": {"finalizers": None}}
            )
        self.direct.delete("Namespace", None, self.queue.namespace)


def fresh(row: Any) -> Any:
    """The row as the database has it."""
    model = type(row)
    rows = model.objects.as_system()
    if model is Attempt:
        rows = rows.select_related("run", "queue")
    return rows.get(pk=row.pk)


def attempt_of(run: Run, number: int = 1) -> Attempt:
    """An attempt of a run."""
    found: Attempt = Attempt.objects.as_system().select_related("run", "queue").get(run=run, number=number)
    return found


def attempts_of(run: Run) -> int:
    """How many attempts a run had."""
    return int(Attempt.objects.as_system().filter(run=run).count())


class Killed(BaseException):
    """The process is dead: nobody catches this, nothing is cleaned up."""


def die_at(monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    """The next that reaches the crash point dies there; as after SIGKILL, its claim stays until the lease ends."""

    def reach(name: str) -> None:
        if name == point:
            monkeypatch.setattr(crashpoints, "reach", lambda name: None)
            raise Killed(name)

    monkeypatch.setattr(crashpoints, "reach", reach)


class Background:
    """Work in another thread, whose end the test waits for; what it raised is raised again."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._error: BaseException | None = None
        self.answer: Any = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        from django.db import connections

        try:
            self.answer = self._work()
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
            self._error = error
        finally:
            connections.close_all()

    def wait(self) -> Any:
        """Its answer."""
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "the work does not end"
        if self._error is not None:
            raise self._error
        return self.answer
