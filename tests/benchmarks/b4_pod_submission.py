"""B4, the part of the API: how fast ready tasks become pods, over one and three clusters near and far.

API servers are scripted, so that their speed is not what is measured; they answer after a delay and count what they are
asked. Beside this project's worker stands its client alone, with as many requests under way and the pods built before:
what the delay allows.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import urllib.request
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.benchmarks.b1_cron_tick import HERE, ROOT, Bench
from tests.benchmarks.page import write

TASKS = int(os.environ.get("BENCH_TASKS", "1000"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "2"))  # the first one warms up
DELAYS_MS = (0, 20, 150)
CLUSTERS = (1, 3)


@dataclass
class Case:
    """One side in one setting, round after round."""

    rates: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)
    sql: list[float] = field(default_factory=list)
    asked: Counter[str] = field(default_factory=Counter)
    pods: int = 0


class Process:
    """A side that answers lines with JSON."""

    def __init__(self, argv: list[str], environ: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            argv, env=environ, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def read(self) -> Any:
        """The next answer."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(("{", "[")):
                return json.loads(line)
        raise RuntimeError("a side ended without an answer")

    def ask(self, line: str) -> Any:
        """Say a line; its answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.read()


def main() -> None:
    """Run, print, write the section."""
    from mlportal.embedded import postgres
    from mlportal.program import started

    with tempfile.TemporaryDirectory(prefix="mlportal-b4-") as name, ExitStack() as stack:
        folder = Path(name)
        postgres.initialise(data=folder / "pg", fsync=True)
        stack.enter_context(
            started(postgres.program(data=folder / "pg", run=folder, fsync=True), log=folder / "pg.log")
        )
        load = os.getloadavg()[0]
        servers = stack.enter_context(
            Process([sys.executable, str(HERE / "sides" / "b4_server.py")], {**os.environ, "BENCH_SERVERS": "3"})
        )
        ports = servers.read()
        bench = Bench(folder=folder, redis=folder / "none", peers=folder)
        environ = bench.ours(bench.database("b4")) | {
            "REDIS_URL": "memory://", "BENCH_PORTS": json.dumps(ports),
        }  # fmt: skip
        subprocess.run([sys.executable, "manage.py", "migrate", "-v0"], env=environ, cwd=ROOT, check=True)
        side = stack.enter_context(Process([sys.executable, "-m", "tests.benchmarks.sides.b4_ours"], environ))
        threads = side.read()["threads"]
        cases = compare(side, ports)
    text = page(cases, threads, load)
    print(text)
    write(text)


def compare(side: Process, ports: list[int]) -> dict[tuple[str, int, int], Case]:
    """Every setting in turn, and again."""
    cases: dict[tuple[str, int, int], Case] = {}
    for number in range(ROUNDS):
        for delay in DELAYS_MS:
            for clusters in CLUSTERS:
                lines = {"bare": f"bare {clusters} 0 {TASKS}", "ours": f"ours {clusters} 0 {TASKS}"}
                if clusters == 3:  # the same tasks on the two that live, with and without those for the dead one
                    lines |= {"two": f"ours 2 0 {TASKS * 2 // 3}", "dead": f"ours 3 1 {TASKS}"}
                for who, line in lines.items():
                    done = one_round(side, ports, delay, line)
                    if number:
                        add(cases.setdefault((who, clusters, delay), Case()), *done)
    return cases


def one_round(side: Process, ports: list[int], delay: int, line: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What the side and the servers say of it."""
    for port in ports:
        counted(port, f"?latency_ms={delay}")
    told = side.ask(line)
    return told, [counted(port) for port in ports]


def counted(port: int, query: str = "") -> dict[str, Any]:
    """What a server was asked since it was told to forget."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/bench{query}", timeout=30) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def add(case: Case, told: dict[str, Any], servers: list[dict[str, Any]]) -> None:
    """One more round."""
    used = [server for server in servers if server["pods"]]
    made = sum(server["pods"] for server in used)
    seconds = max(server["last"] for server in used) - min(server["first"] for server in used)
    case.rates.append(made / seconds)
    case.seconds.append(seconds)
    case.cpu_ms.append(1000 * told["cpu_s"] / made)
    case.sql.append(told["sql"] / made)
    case.pods += made
    for server in servers:
        case.asked.update(server["asked"])


def spread(values: list[float], digits: int = 0) -> str:
    """Median (lowest to highest)."""
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def page(cases: dict[tuple[str, int, int], Case], threads: int, load: float) -> str:
    """The section."""
    labels = {"bare": "its client alone", "ours": "this project", "two": "two thirds of it on two of them"}
    labels["dead"] = "one of them dead"
    rows = []
    for (who, clusters, delay), case in sorted(cases.items(), key=lambda row: (row[0][2], row[0][1], row[0][0])):
        alive = 2 if who in ("two", "dead") else clusters
        ceiling = f"{threads * alive * 1000 / delay:.0f}" if delay else ""
        asked = ", ".join(f"{count / case.pods:.2f} {what}" for what, count in sorted(case.asked.items()))
        sql = f"{statistics.median(case.sql):.1f}"
        rows.append(
            f"| {labels[who]} | {clusters} | {delay} | {spread(case.rates)} | {ceiling} | {spread(case.cpu_ms, 1)} | "
            f"{sql} | {asked} |"
        )
    took = {row: statistics.median(case.seconds) for row, case in cases.items()}
    dead = [100 * (took["dead", 3, delay] / took["two", 3, delay] - 1) for delay in DELAYS_MS]
    lost = ", ".join(f"{percent:.0f} % at {delay} ms" for percent, delay in zip(dead, DELAYS_MS, strict=True))
    return (
        "## B4 Pod submission\n\n"
        f"{TASKS:,} ready tasks until their pods are made. One command: `make bench ARGS=b4`.\n\n"
        f"{ROUNDS - 1} rounds after one to warm up, the settings in turn; median (lowest to highest).\n\n"
        "| side | clusters | delay ms | pods a second | under way / delay | CPU ms a pod | SQL a pod | asked a pod |\n"
        "|---|---|---|---|---|---|---|---|\n" + "\n".join(rows) + "\n\n"
        f"With tasks for a dead third cluster the other two have all their pods later by: {lost}.\n\n"
        f"The worker's own code in its eight threads on PostgreSQL with fsync on, with {threads} requests under way to "
        "each cluster, without broker and watch; API "
        "servers are scripted and answer after the delay. A dead cluster is one that its watch has found away. "
        "Airflow's KubernetesExecutor is not compared here. "
        f"{os.cpu_count()} cores for everything, load average at the start {load:.1f}.\n"
    )
