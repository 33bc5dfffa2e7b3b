"""B5: from the request for an instance until its client sees it ready, 64 under way at once, on a real API server.

Three sides take turns on one cluster: this project over REST; a bare asynchronous client that makes the same writes;
JupyterHub with KubeSpawner. Nodes are simulated: a pod that was placed is ready at once, so what is measured is what
makes and places pods. ``KUBECONFIG`` names the cluster.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import tempfile
import time
from collections import Counter
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.benchmarks.b1_cron_tick import peer_environment
from tests.benchmarks.b5_sides import Bare, Hub, Ours, Side, claim_home, home_volume
from tests.benchmarks.b12_footprint import database
from tests.benchmarks.kube import Kube, bounded, kubeconfig
from tests.benchmarks.page import write
from tests.journeys.portal import Portal, wait_until

AT_ONCE = 64
LAUNCHES = int(os.environ.get("BENCH_LAUNCHES", "128"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))  # the first one warms up
OURS, BARE, HUB = "this project", "bare client", "JupyterHub + KubeSpawner"
QUEUES = {OURS: "default", BARE: "bare", HUB: "hub"}
WRITES = ("PATCH", "POST", "DELETE", "PUT")
#: What a side could ask for; what controllers and nodes ask stands beside the bare client's.
ASKED = (
    "secrets", "services", "ingresses", "statefulsets", "statefulsets/scale", "pods", "events",
    "persistentvolumeclaims", "nodes",
)  # fmt: skip
ROOM = {"cpu_millis": 4_000_000, "memory_bytes": 8 << 40, "storage_bytes": 8 << 40, "pods": 5000, "claims": 500}


@dataclass
class Phase:
    """One side's work of one kind in one round."""

    seconds: float
    cpu: dict[str, float]
    waits: list[float]
    asked: Counter[str] = field(default_factory=Counter)

    @property
    def rate(self) -> float:
        """Launches a second."""
        return len(self.waits) / self.seconds

    def cpu_ms(self, *parts: str) -> float:
        """Milliseconds a launch of these parts, or of all."""
        return 1000 * sum(value for part, value in self.cpu.items() if not parts or part in parts) / len(self.waits)

    def p95_ms(self) -> float:
        """Of the time from the request to the client's knowledge."""
        return 1000 * sorted(self.waits)[round(0.95 * (len(self.waits) - 1))]


Rounds = dict[str, dict[str, list[Phase]]]


def main() -> None:
    """Run, print, write the section."""
    path = kubeconfig()
    if path is None:
        return
    peers = peer_environment()
    with tempfile.TemporaryDirectory(prefix="mlportal-b5-") as name:
        folder = Path(name)
        portal = Portal(home=folder / "home", env={"PORTAL_CLUSTER": str(path)})
        portal.start()
        load = os.getloadavg()[0]
        try:
            rounds, alone, server = asyncio.run(compare(portal, path, peers, folder))
        finally:
            portal.stop()
    text = page(rounds, alone, server, versions(peers), load)
    print(text)
    write(text)


async def compare(portal: Portal, path: Path, peers: Path, folder: Path) -> tuple[Rounds, dict[str, list[float]], str]:
    """All sides in turn; then one launch after the other, which shows a side's own share."""
    rounds: Rounds = {}
    async with AsyncExitStack() as stack:
        kube = await stack.enter_async_context(Kube.of(path))
        server = (await kube.send("GET", "/version"))["gitVersion"]
        nodes = await stack.enter_async_context(kube.open_nodes())
        await make_storage(kube)
        stack.push_async_callback(clear_storage, kube)
        spaces = make_queues(portal)
        stack.push_async_callback(clear_spaces, kube, list(spaces.values()))
        await claim_home(kube, spaces[BARE])
        database(portal, "CREATE DATABASE hub")
        hub = Hub(
            peers,
            database=f"postgresql+psycopg2://mlportal@/hub?host={portal.home / 'run'}",
            namespace=spaces[HUB],
            kubeconfig=path,
            folder=folder / "hub",
        )
        sides: dict[str, Side] = {
            BARE: await stack.enter_async_context(Bare(kube, spaces[BARE]).open()),
            OURS: await stack.enter_async_context(Ours(portal, "default").open()),
            HUB: await stack.enter_async_context(hub.open()),
        }
        await hub.prepare([f"launch-{number}" for number in range(LAUNCHES)])
        for number in range(ROUNDS):
            for side_name, side in sides.items():
                phases = await one_round(side, kube, both=side_name != HUB)
                for what, phase in phases.items():
                    rounds.setdefault(side_name, {}).setdefault(what, []).append(phase)
                print(number, side_name, {what: f"{phase.rate:.1f}/s" for what, phase in phases.items()}, flush=True)
        alone = {name: await one_by_one(sides[name]) for name in (BARE, OURS, BARE, OURS)}
        return rounds, alone, f"Kubernetes {server}, {nodes} simulated nodes"


async def one_round(side: Side, kube: Kube, *, both: bool) -> dict[str, Phase]:
    """New launches; with ``both`` they are stopped and started again. In the end nothing is left."""
    names = [f"launch-{number}" for number in range(LAUNCHES)]
    found = {"new": await measured(side, kube, side.new, names)}
    if both:
        found["stop"] = await measured(side, kube, side.stop, names)
        found["start"] = await measured(side, kube, side.start, names)
    await bounded(len(names), AT_ONCE, lambda number: side.gone(names[number]))
    return found


async def measured(side: Side, kube: Kube, work: Any, names: list[str]) -> Phase:
    """Do it for all, so many at once."""
    before, cpu = await kube.requests(), side.cpu()
    began = time.perf_counter()

    async def one(number: int) -> float:
        asked_at = time.perf_counter()
        await work(names[number])
        return time.perf_counter() - asked_at

    waits = await bounded(len(names), AT_ONCE, one)
    seconds = time.perf_counter() - began
    used = {part: value - cpu.get(part, 0.0) for part, value in side.cpu().items()}
    return Phase(seconds, used, waits, await kube.requests() - before)


async def one_by_one(side: Side) -> list[float]:
    """Seconds of launches with nothing beside them."""
    found = []
    for number in range(20):
        began = time.perf_counter()
        await side.new(f"alone-{number}")
        found.append(time.perf_counter() - began)
        await side.gone(f"alone-{number}")
    return sorted(found)


def make_queues(portal: Portal) -> dict[str, str]:
    """A queue for each side, so that quota and policies are the same for all; side -> namespace."""
    known = wait_until(
        "cluster that answers",
        lambda: [row for row in portal.api("GET", "clusters").json["items"] if row["state"] == "connected"],
        seconds=60,
    )
    default = portal.api("GET", "queues").json["items"][0]
    assert portal.api("PATCH", f"queues/{default['id']}", ROOM).status < 300
    for name in set(QUEUES.values()) - {"default"}:
        body = {"name": name, "team": default["team"]["name"], "cluster": known[0]["name"], **ROOM}
        made = portal.api("POST", "queues", body)
        assert made.status == 201, made.body

    def ready() -> dict[str, str] | None:
        rows = portal.api("GET", "queues").json["items"]
        spaces = {row["name"]: row["namespace"] for row in rows if row["state"] == "ready"}
        return spaces if len(spaces) == len(QUEUES) else None

    spaces = wait_until("queues", ready, seconds=60)
    return {side: spaces[name] for side, name in QUEUES.items()}


async def make_storage(kube: Kube) -> None:
    """Two homes' worth, where the cluster makes no volumes by itself."""
    if not (await kube.send("GET", "/apis/storage.k8s.io/v1/storageclasses"))["items"]:
        for number in range(2):
            await kube.send("POST", "/api/v1/persistentvolumes", home_volume(number))


async def clear_storage(kube: Kube) -> None:
    """Take it away."""
    for number in range(2):
        await kube.delete("PersistentVolume", None, f"bench-{number}")


async def clear_spaces(kube: Kube, namespaces: list[str]) -> None:
    """What the sides made goes with its namespaces."""
    for namespace in namespaces:
        with suppress(RuntimeError):
            await kube.delete("Namespace", None, namespace)


def versions(peers: Path) -> str:
    """What took part."""
    code = "import jupyterhub, kubespawner; print(jupyterhub.__version__, kubespawner.__version__)"
    hub, spawner = subprocess.run([peers, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    return f"JupyterHub {hub}, KubeSpawner {spawner}"


def spread(values: list[float], digits: int = 1) -> str:
    """Median (lowest to highest)."""
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def requests_a_launch(phases: list[Phase], verbs: tuple[str, ...]) -> Counter[str]:
    """Requests of all rounds by verb and resource."""
    found: Counter[str] = Counter()
    for phase in phases:
        for key, count in phase.asked.items():
            verb, _, resource = key.partition(" ")
            if verb in verbs and resource in ASKED:
                found[key] += count
    return found


PORTAL = "supervisor, web, worker, control"


def page(rounds: Rounds, alone: dict[str, list[float]], server: str, peers: str, load: float) -> str:
    """The section."""
    kept = {side: {what: phases[1:] or phases for what, phases in kinds.items()} for side, kinds in rounds.items()}
    rows = []
    for side in (OURS, BARE, HUB):
        for what in kept[side]:
            phases = kept[side][what]
            own = (PORTAL,) if side == OURS else ()
            rows.append(
                f"| {side}: {what} | {spread([p.rate for p in phases])} | {spread([p.cpu_ms(*own) for p in phases])} | "
                f"{spread([p.p95_ms() for p in phases], 0)} | {writes_text(kept, side, what)} | "
                f"{reads_text(kept, side, what)} |"
            )
    ours, bare, hub = kept[OURS], kept[BARE], kept[HUB]
    ratio = {
        what: [100 * a.rate / b.rate for a, b in zip(ours[what], bare[what], strict=True)] for what in ("new", "start")
    }
    against = [a.rate / b.rate for a, b in zip(ours["new"], hub["new"], strict=True)]
    cpu = [b.cpu_ms() / a.cpu_ms(PORTAL) for a, b in zip(ours["new"], hub["new"], strict=True)]
    share = [a.p95_ms() - b.p95_ms() for a, b in zip(ours["new"], bare["new"], strict=True)]
    beside = {part: statistics.median(p.cpu_ms(part) for p in ours["new"]) for part in ("postgres", "redis", "caddy")}
    lone = {side: 1000 * statistics.median(values) for side, values in alone.items()}
    return (
        "## B5 Instance launch\n\n"
        "From the REST request until the client sees it ready. One command, with a cluster of simulated nodes in "
        "`KUBECONFIG`: `make bench ARGS=b5`.\n\n"
        f"{LAUNCHES} launches in each round, {AT_ONCE} under way at once; {len(ours['new'])} rounds after one to warm "
        "up, the sides in turn; median (lowest to highest).\n\n"
        "| side | a second | CPU ms each | 95th percentile ms | writes each | reads each |\n|---|---|---|---|---|---|\n"
        + "\n".join(rows)
        + "\n\n"
        f"Of the bare client's rate: new {spread(ratio['new'], 0)} %, start {spread(ratio['start'], 0)} %. Against "
        f"KubeSpawner: {spread(against)} times its rate, its CPU {spread(cpu)} times ours. The 95th percentile is "
        f"{spread(share, 0)} ms above the bare client's. One launch after the other takes {lone[OURS]:.0f} ms, of the "
        f"bare client {lone[BARE]:.0f} ms; our client looks every 250 ms, the bare one watches. Beside the portal's "
        "own processes a new launch takes "
        + ", ".join(f"{value:.1f} ms of {part}" for part, value in beside.items())
        + ".\n\n"
        f"{server}; {peers}, on the same PostgreSQL, with a proxy that does nothing, and without asking whether the "
        "server in the pod answers, since simulated pods have none; its client is told by the answer to its request. "
        "Writes and reads are what the API server counted for the objects of a launch, without what it counts for the "
        f"bare client's rounds beyond its own four, three and two writes. {os.cpu_count()} cores for all sides and the "
        f"cluster, load average at the start {load:.1f}.\n"
    )


OF_BARE = {"new": 4, "start": 3, "stop": 2}


def writes_text(kept: Rounds, side: str, what: str) -> str:
    """Writes of a launch: what was counted above the controllers' own."""
    return f"{OF_BARE[what] + above_bare(kept, side, what, WRITES):.2f}"


def reads_text(kept: Rounds, side: str, what: str) -> str:
    """Reads of a launch, the same way."""
    return f"{above_bare(kept, side, what, ('GET', 'LIST')):.2f}"


def above_bare(kept: Rounds, side: str, what: str, verbs: tuple[str, ...]) -> float:
    """Requests a launch beyond those of the bare client's rounds, which have the controllers' and nodes' in them."""
    mine, bare = kept[side][what], kept[BARE][what]
    counted = sum(requests_a_launch(mine, verbs).values()) / sum(len(phase.waits) for phase in mine)
    beside = sum(requests_a_launch(bare, verbs).values()) / sum(len(phase.waits) for phase in bare)
    return counted - beside
