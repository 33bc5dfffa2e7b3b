"""A real portal whose cluster is a real one behind the fault proxy, and the lives that are led in it."""

from __future__ import annotations

import os
import random
import signal
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from kubekit import names
from kubekit.client import Cluster
from kubekit.quantities import parse_cpu
from tests.crash.harness import PATIENCE_S, Behind
from tests.crash.observer import Observer, id_of
from tests.faults.storm import Storm
from tests.journeys.portal import wait_until

Raw = dict[str, Any]
KINDS = ("Pod", "StatefulSet", "Service", "Ingress", "Secret")
ENDED = ("succeeded", "failed", "cancelled")
PROGRAM = "import sys, time\nprint('begun', flush=True)\ntime.sleep(1)\nprint('end', flush=True)\nsys.exit({code})\n"
LOG = "begun\nend\n"
YEARLY = [{"cron": "0 0 1 1 *", "timezone": "UTC"}]


@dataclass
class World(Behind):
    """The portal, what the cluster itself says of the one queue that all lives share, and who watches its pods."""

    direct: Cluster
    observer: Observer
    queue: dict[str, Any] = field(default_factory=dict)

    @property
    def namespace(self) -> str:
        """The queue's."""
        return str(self.queue["namespace"])

    def kill(self, program: str) -> None:
        """SIGKILL, and the supervisor starts another."""
        before = self.pid(program)
        assert before is not None
        os.kill(before, signal.SIGKILL)
        wait_until(
            f"new {program}",
            lambda: self.pid(program) not in (None, before),
            seconds=PATIENCE_S,
        )

    def objects(self, row: str = "") -> list[Raw]:
        """What the cluster has for instances and attempts, or for one of them."""
        found = [raw for kind in KINDS for raw in self.direct.list(kind, self.namespace)]
        ours = [
            raw for raw in found if (raw["metadata"].get("labels") or {}).get(names.KIND) in ("instance", "attempt")
        ]
        return [raw for raw in ours if row in ("", id_of(raw))]

    def books(self) -> tuple[int, int, int]:
        """Requested CPU by the ledger (its limits over the oversell), by the quota's count, and summed over pods."""
        ((held,),) = self.sql(
            "SELECT coalesce(sum(cpu_millis), 0) FROM tenants_reservation "
            "WHERE released_at IS NULL AND kind IN ('instance', 'attempt') AND queue_id = %s::uuid",
            self.queue["id"],
        )
        quota = self.direct.get("ResourceQuota", self.namespace, "queue")
        pods = [
            pod for pod in self.direct.list("Pod", self.namespace) if pod["status"]["phase"] in ("Pending", "Running")
        ]
        asked = [row["resources"]["requests"]["cpu"] for pod in pods for row in pod["spec"]["containers"]]
        return (
            round(int(held) / float(self.queue["cpu_oversell"])),
            parse_cpu(quota["status"]["used"]["requests.cpu"]),
            sum(map(parse_cpu, asked)),
        )


class Life:
    """A flow with a program by hand and one by the clock; every third life has an instance besides."""

    def __init__(self, seed: int, world: World) -> None:
        self.seed, self.world, self.storm = seed, world, Storm(seed)
        self.dice = random.Random(seed)
        self.name = self.storm.name
        self.told: list[str] = []
        self.code = self.dice.choice((0, 0, 3))
        self.retries = self.dice.choice((0, 1))
        self.cancels = self.dice.random() < 0.3
        self.instance: dict[str, Any] | None = None
        self.wanted = ""
        self.flow = ""
        self.instant = datetime.now(UTC).replace(microsecond=0)
        self.by_hand = ""

    # -- what people ask for, during the storm -----------------------------------------------------------------------

    def live(self) -> None:
        """Ask for everything. Each request is repeated until the portal has answered it."""
        self._make_flow()
        if self.seed % 3 == 0:
            self._make_instance()
        self.by_hand = self.world.ask("POST", f"flows/{self.flow}/run", key=f"{self.name}-run").json["id"]
        self._wait()
        self.world.sql("UPDATE flows_schedule SET next_fire_at = %s WHERE flow_id = %s::uuid", self.instant, self.flow)
        self.world.sql("NOTIFY mlportal_schedule")
        if self.cancels:
            self.world.ask("POST", f"runs/{self.by_hand}/cancel", also=(409,))
        if self.instance is not None:
            self._use_instance(f"instances/{self.instance['id']}")

    def _make_flow(self) -> None:
        node = {
            "name": "main", "executor": "container", "image": "python", "size": "small",
            "command": ["python", "-c", PROGRAM.format(code=self.code)],
            "retries": {"count": self.retries, "interval_s": 1},
        }  # fmt: skip
        document = {"name": self.name, "queue": self.world.queue["name"], "schedules": YEARLY, "nodes": [node]}
        self.flow = self.world.ask("POST", "flows", document, key=self.name).json["id"]

    def _make_instance(self) -> None:
        wanted = {"name": self.name, "image": "jupyter", "size": "small", "queue": self.world.queue["name"]}
        self.instance = self.world.ask("POST", "instances", wanted, key=f"{self.name}-instance").json

    def _use_instance(self, path: str) -> None:
        for number in range(self.dice.choice((1, 2))):
            step = self.dice.choice(("stop", "start", "restart"))
            self.told.append(step)
            self.world.ask("POST", f"{path}/{step}", key=f"{self.name}-{step}-{number}")
            self._wait()
        self.wanted = self.dice.choice(("running", "stopped", "deleted"))
        if self.wanted == "deleted":
            self.world.ask("DELETE", path, also=(404,))
        else:
            step = "start" if self.wanted == "running" else "stop"
            self.world.ask("POST", f"{path}/{step}", key=f"{self.name}-last")

    def _wait(self) -> None:
        time.sleep(self.dice.uniform(0.5, 4.0))

    # -- what must hold once the storm is over -----------------------------------------------------------------------

    def unsettled(self) -> list[str]:
        """What is not yet as it was asked for, by what the portal says."""
        rows = self.world.sql("SELECT id, state, reason_code FROM flows_run WHERE flow_id = %s::uuid", self.flow)
        left = [f"run {pk} {state} ({code})" for pk, state, code in rows if state not in ENDED]
        fired = self.world.sql(
            "SELECT 1 FROM flows_run WHERE flow_id = %s::uuid AND scheduled_at IS NOT NULL", self.flow
        )
        left += [] if fired else ["nothing fired"]
        if self.instance is not None:
            row = "SELECT state, reason_code, at_rest FROM instances_instance WHERE id = %s::uuid"
            ((state, code, at_rest),) = self.world.sql(row, self.instance["id"])
            if state != self.wanted or (state != "running" and not at_rest):
                left.append(f"instance {state} ({code}), wanted {self.wanted}")
        return left

    def check(self) -> None:
        """Nothing is lost, doubled or left behind, by what the cluster says."""
        runs = self.world.sql("SELECT id, state, scheduled_at FROM flows_run WHERE flow_id = %s::uuid", self.flow)
        assert sorted(str(pk) for pk, _state, at in runs if at is None) == [self.by_hand], "each request, one run"
        assert [at for _pk, _state, at in runs if at is not None] == [self.instant], "each instant, one run"
        for pk, state, _at in runs:
            self._check_run(str(pk), state)
        if self.instance is not None:
            self._check_instance(self.instance["id"])

    def _check_run(self, pk: str, state: str) -> None:
        ends = {"succeeded" if self.code == 0 else "failed"}
        ends |= {"cancelled"} if self.cancels and pk == self.by_hand else set()
        assert state in ends, (pk, state)
        attempts = self.world.ask("GET", f"attempts?run={pk}").json["items"]
        most = 1 + self.retries if self.code else 1
        counted = [row for row in attempts if row["state"] in ("succeeded", "failed")]
        assert len(counted) <= most, attempts
        for row in attempts:
            assert self.world.observer.pods_made(row["id"]) in ([], [1]), "one attempt, one pod"
            assert self.world.objects(row["id"]) == [], "nothing is left of an attempt"
            if row["state"] in ("succeeded", "failed"):
                log = self.world.ask("GET", f"attempts/{row['id']}/log?offset=0").body.decode()
                assert log == LOG, f"the log of {row['id']} is {log!r}"

    def _check_instance(self, pk: str) -> None:
        kinds = sorted(raw["kind"] for raw in self.world.objects(pk))
        if self.wanted == "running":
            assert kinds == ["Ingress", "Pod", "Secret", "Service", "StatefulSet"]
        elif self.wanted == "stopped":  # before its first write, perhaps
            assert set(kinds) <= {"Secret", "Service", "StatefulSet"} and len(kinds) <= 3, kinds
        else:
            assert kinds == []
        if self.wanted == "running":
            (pod,) = (raw for raw in self.world.objects(pk) if raw["kind"] == "Pod")
            ready = {row["type"]: row["status"] for row in pod["status"]["conditions"]}["Ready"]
            assert (pod["status"]["phase"], ready) == ("Running", "True")
