"""B12, filled: what the whole stack costs with years of use in it and nobody online, beside others that are empty.

1,000 tenants with a queue and a home each, 5,000 stopped instances, 10,000 flows that fire later. The cluster is the
embedded one, started apart so that a proxy can count what is asked of it. Peers: JupyterHub with its proxy, Prefect's
server with a worker; each as it is started by its own command, one after the other in this run.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.benchmarks import b12_footprint as b12
from tests.benchmarks.b1_cron_tick import ROOT, peer_environment
from tests.benchmarks.page import write
from tests.benchmarks.sides import b12_size as size
from tests.faults.proxy import FaultProxy
from tests.journeys.portal import Portal, fetch, free_port, wait_until
from tests.scale.place import _kubeconfig

IDLE_S = float(os.environ.get("MLPORTAL_B12_IDLE_S", b12.IDLE_S))
SETTLE_S = float(os.environ.get("MLPORTAL_B12_SETTLE_S", b12.SETTLE_S))
WARM_STARTS = 3
PATIENCE_S = 1800.0
CHP = "configurable-http-proxy@5.3.0"


@dataclass(kw_only=True)
class Result:
    """One stack: seconds to its first good answer, and what it cost while nobody used it."""

    name: str
    ready: list[float]
    memory: dict[str, float] = field(default_factory=dict)
    cpu_s: float = 0.0
    sql: int | None = None
    requests: int | None = None

    def row(self) -> str:
        """Of the table."""
        sql = "-" if self.sql is None else f"{self.sql / IDLE_S:.3f}"
        asked = "-" if self.requests is None else str(self.requests)
        return (
            f"| {self.name} | {sum(self.memory.values()):.0f} | {100 * self.cpu_s / IDLE_S:.2f} | {sql} | {asked} | "
            f"{statistics.median(self.ready):.1f} ({min(self.ready):.1f} to {max(self.ready):.1f}) |"
        )


def main() -> None:
    """Fill, sit still, start again; then the peers; write the section."""
    load = os.getloadavg()[0]
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)  # a portal that stops leaves its watches
    with tempfile.TemporaryDirectory(prefix="mlportal-b12-") as name:
        mine = ours(Path(name))
        print(mine.row(), flush=True)  # the peers take as long again
        others = [jupyterhub(Path(name)), prefect(Path(name))]
    text = page(mine, others, load)
    print(text)
    write(text)


# --- this project ---------------------------------------------------------------------------------------------------


def ours(folder: Path) -> Result:
    """The portal on an embedded cluster behind a counting proxy."""
    with cluster(folder / "cluster") as (kube, proxy):
        (folder / "kubeconfig").write_text(_kubeconfig(proxy.credentials), encoding="utf-8")
        portal = Portal(home=folder / "home", env={"PORTAL_CLUSTER": str(folder / "kubeconfig")})
        found = Result(name="this project, filled", ready=[])
        try:
            portal.start()
            filled(portal)
            for _ in range(WARM_STARTS):
                portal.stop()
                found.ready.append(b12.started_after(portal))
            b12.log_statements(portal)
            time.sleep(SETTLE_S)
            roots = (b12.root_of(portal), kube)
            before, seen = b12.counted(portal), len(proxy.seen)
            found.cpu_s = used(roots)
            found.sql, found.requests = b12.counted(portal) - before, sum(not one.watch for one in proxy.seen[seen:])
            found.memory = b12.pss_mib(*roots)
        finally:
            portal.stop()
    return found


@contextmanager
def cluster(home: Path) -> Iterator[tuple[int, FaultProxy]]:
    """The embedded cluster by itself, as the supervisor runs it, and a proxy before it."""
    from kubekit.credentials import parse_kubeconfig

    argv = [sys.executable, "-m", "localkube", "serve", "--home", str(home), "--listen", "127.0.0.1:0"]
    environ = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}"}
    with run([*argv, "--images", str(ROOT / "docker" / "images.toml")], home.with_suffix(".log"), environ) as process:
        wait_until("embedded cluster", (home / "ready").exists, seconds=90)
        proxy = FaultProxy(parse_kubeconfig((home / "kubeconfig").read_text(encoding="utf-8")), home)
        proxy.start()
        try:
            yield process.pid, proxy
        finally:
            proxy.stop()


def filled(portal: Portal) -> None:
    """The rows, and what the portal's own reconcilers make of them in the cluster."""
    environ = {
        **os.environ,
        **portal.env,
        "PORTAL_HOME": str(portal.home),
        "PORTAL_HTTP_PORT": str(portal.port),
        "PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}",
    }
    for name in ("DATABASE_URL", "REDIS_URL"):
        environ.pop(name, None)
    done = {
        "queues": ("tenants_queue", "ready", "queues that are ready"),
        "rest": ("storage_volume", "bound", "homes that are there"),
    }
    for part, (table, state, what) in done.items():
        subprocess.run(
            [sys.executable, "-m", "tests.benchmarks.sides.b12_fill", part], env=environ, cwd=ROOT, check=True
        )
        count = f"SELECT count(*) FROM {table} WHERE state = '{state}'"
        wait_until(what, lambda sql=count: b12.database(portal, sql)[0][0] >= size.TENANTS, seconds=PATIENCE_S, every=1)


# --- peers ----------------------------------------------------------------------------------------------------------


def jupyterhub(folder: Path) -> Result:
    """JupyterHub with configurable-http-proxy and SQLite."""
    python = peer_environment("stacks")
    proxy = node_package(python.parents[1])
    home, port, hub, api = folder / "jupyterhub", free_port(), free_port(), free_port()
    home.mkdir()
    (home / "config.py").write_text(
        f"c.JupyterHub.bind_url = 'http://127.0.0.1:{port}'\n"
        f"c.JupyterHub.hub_port = {hub}\n"
        "c.JupyterHub.authenticator_class = 'dummy'\n"
        "c.JupyterHub.spawner_class = 'simple'\n"
        f"c.ConfigurableHTTPProxy.api_url = 'http://127.0.0.1:{api}'\n"
        f"c.ConfigurableHTTPProxy.command = {[str(word) for word in proxy]!r}\n",
        encoding="utf-8",
    )
    argv = [[python.with_name("jupyterhub"), "-f", home / "config.py"]]
    return measured("JupyterHub + configurable-http-proxy, empty", argv, home, f"http://127.0.0.1:{port}/hub/login")


def prefect(folder: Path) -> Result:
    """Prefect's server with SQLite, and one worker."""
    python = peer_environment("stacks")
    home, port = folder / "prefect", free_port()
    home.mkdir()
    program = python.with_name("prefect")
    argv = [
        [program, "server", "start", "--host", "127.0.0.1", "--port", str(port)],
        [program, "worker", "start", "--pool", "bench", "--type", "process"],
    ]
    url = f"http://127.0.0.1:{port}/api"
    settings = {"PREFECT_HOME": str(home), "PREFECT_API_URL": url, "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
    return measured("Prefect server + worker, empty", argv, home, f"{url}/health", settings)


def measured(
    name: str, argv: list[list[object]], home: Path, url: str, settings: dict[str, str] | None = None
) -> Result:
    """Start a stack's programs as often as this project's, the first one until it answers at ``url``."""
    environ = {**os.environ, **(settings or {})}
    found = Result(name=name, ready=[])
    for again in range(WARM_STARTS + 1):
        began = time.monotonic()
        with run(argv[0], home / "log", environ) as first:
            wait_until(name, answers(url), seconds=240, every=0.05)
            if again:  # the first start makes its database
                found.ready.append(time.monotonic() - began)
            if again < WARM_STARTS:
                continue
            with (
                run(argv[1], home / "log-2", environ)
                if argv[1:]
                else run(["sleep", "999999"], home / "log-2") as second
            ):
                time.sleep(SETTLE_S)
                found.cpu_s = used((first.pid, second.pid))
                found.memory = b12.pss_mib(first.pid, second.pid)
    return found


def answers(url: str) -> Callable[[], bool]:
    """Whether somebody answers well."""

    def ask() -> bool:
        try:
            return fetch(url).status == 200
        except OSError:
            return False

    return ask


def node_package(home: Path) -> list[Path]:
    """The command of configurable-http-proxy, installed once beside the other peers."""
    folder = home / "node"
    program = folder / "node_modules" / "configurable-http-proxy" / "bin" / "configurable-http-proxy"
    node = Path(sys.executable).with_name("node")
    if not program.exists():
        shutil.rmtree(folder, ignore_errors=True)
        npm = Path(sys.executable).with_name("npm")
        subprocess.run([npm, "install", "--silent", "--no-audit", "--prefix", folder, CHP], check=True)
    return [node, program]


@contextmanager
def run(argv: list[object], log: Path, environ: dict[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A program and all that it starts, for the length of a block."""
    words = [str(word) for word in argv]
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        process = subprocess.Popen(
            words, env=environ, cwd=log.parent, stdout=file, stderr=file, stdin=subprocess.DEVNULL
        )
    try:
        yield process
    finally:
        started = b12.processes(process.pid)
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for pid, command in started.items():  # JupyterHub leaves its proxy behind
            if command and b12.processes(pid).get(pid) == command:
                os.kill(pid, signal.SIGKILL)


def used(roots: tuple[int, ...]) -> float:
    """CPU seconds of these and all that they started, over the idle time from now."""
    before = b12.cpu_seconds(*roots)
    time.sleep(IDLE_S)
    return b12.cpu_seconds(*roots) - before


def page(mine: Result, others: list[Result], load: float) -> str:
    """The section."""
    parts = "\n".join(f"| {name} | {mib:.0f} |" for name, mib in sorted(mine.memory.items(), key=lambda row: -row[1]))
    rows = "\n".join(one.row() for one in (mine, *others))
    return (
        "## B12 With years of use in it\n\n"
        f"{size.TENANTS:,} tenants with a queue and a home each, {size.INSTANCES:,} stopped instances, {size.FLOWS:,} "
        f"flows, nobody online, over {IDLE_S:.0f} s. One command: `make bench ARGS=b12-filled`.\n\n"
        "| stack | PSS MiB | % of a core | SQL a second | API requests besides watches | ready after s |\n"
        f"|---|---|---|---|---|---|\n{rows}\n\n"
        f"Of this project:\n\n| part | PSS MiB |\n|---|---|\n{parts}\n\n"
        f"Ready: median (lowest to highest) of {WARM_STARTS} starts after the first. The cluster is the embedded one, "
        "which counts; queues and homes are there as objects, stopped instances as rows alone. JupyterHub 6.1.1 with "
        f"{CHP.replace('@', ' ')} and Prefect 3.9.1 with a worker, each with SQLite and nothing in it. Load average at "
        f"the start {load:.1f}, {os.cpu_count()} cores.\n"
    )
