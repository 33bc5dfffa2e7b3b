"""B6: what it costs to follow 5,000 instances: idle, when some or all change, after a gap, after a restart.

An API server is played (tests/benchmarks/sides/b6_kube.py), so that all sides are told exactly the same and it counts
what they ask. Sides in turn: this project's watcher, which stores what it hears in PostgreSQL (fsync on) and signals
it; KubeSpawner's reflector, which keeps it in memory; one LIST through the official client's typed models, which can
only be made again and again. Afterwards the whole way to a browser: 500 events a second from the API server through
database, Redis and web process to a web socket.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from tests.benchmarks.b1_cron_tick import HERE, ROOT, peer_environment
from tests.benchmarks.page import write
from tests.benchmarks.sides import b6_pods as pods

ROUNDS = 6  # the first one warms up
SOME = pods.PODS // 100
IDLE_S = 45
LIVE_EVENTS, LIVE_RATE = 4_000, 500
PATIENCE_S = 300.0
LABELS = {"ours": "this project", "kubespawner": "KubeSpawner's reflector", "typed": "typed LIST"}
Figures = dict[str, float]


def main() -> None:
    """Run, print, and write the page."""
    from mlportal.embedded import postgres, redis
    from mlportal.program import started

    peers = peer_environment()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="mlportal-b6-") as name, ExitStack() as stack:
        folder = Path(name)
        postgres.initialise(data=folder / "pg", fsync=True)
        stack.enter_context(
            started(postgres.program(data=folder / "pg", run=folder, fsync=True), log=folder / "pg.log")
        )
        socket = folder / "redis.sock"
        stack.enter_context(started(redis.program(data=folder / "redis", socket=socket), log=folder / "redis.log"))
        bench = Bench(folder, socket, peers, stack)
        restarts = bench.restarts()
        rounds, idle = bench.follow()
        live = bench.live()
    text = page(restarts, rounds, idle, live, bench, load)
    print(text)
    write(text)


class Side:
    """A process that plays one side; what it says when it has the first list is in ``first``."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.first = self.answer()

    def ask(self, *words: str) -> Figures:
        """One command."""
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(words) + "\n")
        self.process.stdin.flush()
        return self.answer()

    def answer(self) -> dict[str, Any]:
        """The next line that is one."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                found: dict[str, Any] = json.loads(line)
                return found
        raise RuntimeError("a side ended without an answer")


class Bench:
    """Servers, rows, and how to start a side on them."""

    def __init__(self, folder: Path, redis: Path, peers: Path, stack: ExitStack) -> None:
        import psycopg

        self.folder, self.redis, self.peers = folder, redis, peers
        with psycopg.connect(host=str(folder), user="mlportal", dbname="postgres", autocommit=True) as link:
            link.execute("CREATE DATABASE bench")
        self.database = f"postgresql://mlportal@/bench?host={folder}&port=5432"
        kube = stack.enter_context(
            self._process([sys.executable, "-m", "tests.benchmarks.sides.b6_kube"], self._ours_environment())
        )
        said = kube.first
        self.server, self.pod_bytes = f"http://127.0.0.1:{said['port']}", int(said["bytes"])
        subprocess.run(
            [sys.executable, "manage.py", "migrate", "-v0"], env=self._ours_environment(), cwd=ROOT, check=True
        )
        with self._process(
            [sys.executable, "-m", "tests.benchmarks.sides.b6_ours", "fill", self.server], self._ours_environment()
        ) as filled:
            self.session = str(filled.first["session"])
        self.link = stack.enter_context(
            psycopg.connect(host=str(folder), user="mlportal", dbname="bench", autocommit=True)
        )
        self.versions: dict[str, str] = {}

    # -- sides -------------------------------------------------------------------------------------------------

    @contextmanager
    def _process(self, argv: Sequence[str | Path], environ: dict[str, str]) -> Iterator[Side]:
        with subprocess.Popen(
            argv, env=environ, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            try:
                yield Side(process)
            finally:
                process.kill()

    def _ours_environment(self) -> dict[str, str]:
        inherited = [name for name in os.environ if name.startswith(("PORTAL_", "DATABASE_", "REDIS_"))]
        return {
            **os.environ,
            **dict.fromkeys(inherited, ""),
            "PORTAL_HOME": str(self.folder / "home"),
            "DATABASE_URL": getattr(self, "database", ""),
            "REDIS_URL": f"unix://{self.redis}",
            "PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}",
            "DJANGO_SETTINGS_MODULE": "mlportal.settings",
        }

    @contextmanager
    def side(self, name: str) -> Iterator[Side]:
        """Start a side; it ends with the block."""
        if name == "ours":
            argv = [sys.executable, "-m", "tests.benchmarks.sides.b6_ours"]
            environ = self._ours_environment()
        else:
            argv = [str(self.peers), str(HERE / "sides" / f"b6_{name}.py")]
            environ = {**os.environ, "PYTHONPATH": str(HERE), "BENCH_SERVER": self.server}
        with self._process(argv, environ) as side:
            self.versions.setdefault(name, str(side.first.get("versions", "")))
            yield side

    # -- what happens ------------------------------------------------------------------------------------------

    def kube(self, **asked: Any) -> Any:
        """Have the played server do something."""
        request = Request(f"{self.server}/bench", data=json.dumps(asked).encode(), method="POST")
        with urlopen(request, timeout=PATIENCE_S) as response:
            return json.load(response)

    def unlearn(self, count: int) -> None:
        """So many instances are on their way up again, as far as the database knows."""
        changed = [pods.instance_id(number) for number in range(count)]
        self.link.execute(
            "UPDATE instances_instance SET state = 'starting', ready_at = NULL, pod_uid = '', node = '', stages = '{}' "
            "WHERE id = ANY(%s)",
            [changed],
        )

    def until_learnt(self) -> None:
        """All of them run."""
        statement = "SELECT count(*) FROM instances_instance WHERE state <> 'running'"
        _until("rows that are as the cluster is", lambda: self.link.execute(statement).fetchone() == (0,))

    def restarts(self) -> dict[str, list[Figures]]:
        """Each side is started anew; of this project 50 rows are not as the cluster is by then."""
        found: dict[str, list[Figures]] = defaultdict(list)
        for _ in range(ROUNDS):
            for name in LABELS:
                if name == "ours":
                    self.unlearn(SOME)
                self.kube(op="counts")
                with self.side(name) as side:
                    if name == "ours":
                        self.until_learnt()
                    found[name].append({**side.first, "pages": self.kube(op="counts").get("pages of pods", 0)})
        return found

    def follow(self) -> tuple[dict[str, dict[str, list[Figures]]], dict[str, Figures]]:
        """Two sides that follow, round by round: a list again, 1 % and all changed; then nothing."""
        found: dict[str, dict[str, list[Figures]]] = {name: defaultdict(list) for name in ("ours", "kubespawner")}
        idle: dict[str, Figures] = {}
        with ExitStack() as stack:
            sides = {name: stack.enter_context(self.side(name)) for name in found}
            for _ in range(ROUNDS):
                for name, side in sides.items():
                    for what, count in (("resync_some", SOME), ("resync_all", pods.PODS)):
                        found[name][what].append(self._resync(name, side, count))
                    for what, count in (("some", SOME), ("all", pods.PODS)):
                        found[name][what].append(self._change(name, side, count))
        for name in found:
            with self.side(name) as side:
                _until("watch of pods", lambda: max(self.kube(op="watched").values()) >= 1)
                side.ask("begin")
                self.kube(op="counts")
                time.sleep(IDLE_S)
                idle[name] = {**side.ask("end"), **self.kube(op="counts")}
        return found, idle

    def _resync(self, name: str, side: Side, count: int) -> Figures:
        """The watch ends as expired; what changed meanwhile is in the list alone."""
        self._watched()
        if name == "ours":
            self.unlearn(count)
        side.ask("begin")
        self.kube(op="counts")
        begun = time.monotonic()
        self.kube(op="expire")
        if name == "ours":
            self.until_learnt()
        figures = side.ask("listed")
        return {**figures, "wall_ms": 1000 * (time.monotonic() - begun), **self.kube(op="counts")}

    def _change(self, name: str, side: Side, count: int) -> Figures:
        self._watched()
        if name == "ours":
            self.unlearn(count)
        side.ask("begin")
        self.kube(op="counts")
        begun = time.monotonic()
        version = self.kube(op="change", pods=count, rate=0)["version"]
        if name == "ours":
            self.until_learnt()
        figures = side.ask("seen", f"{pods.namespace(count - 1)}/{pods.name(count - 1)}", str(version))
        return {**figures, "wall_ms": 1000 * (time.monotonic() - begun), **self.kube(op="counts")}

    def _watched(self) -> None:
        """Both sides hear of changes."""
        _until("watches of pods", lambda: min(self.kube(op="watched").values()) >= 1)

    # -- to the browser ----------------------------------------------------------------------------------------

    def live(self) -> list[float]:
        """Milliseconds from the event's leaving the API server to its arrival at a web socket."""
        log = (self.folder / "web.log").open("wb")
        port = _free_port()
        argv = [sys.executable, "-m", "uvicorn", "mlportal.asgi:application", "--port", str(port), "--lifespan", "off"]
        environ = self._ours_environment() | {"PORTAL_HTTP_PORT": str(port)}
        with subprocess.Popen(argv, env=environ, cwd=ROOT, stdout=log, stderr=log) as web:
            try:
                with self.side("ours"):
                    return asyncio.run(self._live(port))
            finally:
                web.kill()

    async def _live(self, port: int) -> list[float]:
        import aiohttp

        came: dict[str, float] = {}
        origin = f"http://127.0.0.1:{port}"
        async with aiohttp.ClientSession(cookies={"mlportal-session": self.session}) as session:
            for _ in range(int(PATIENCE_S)):
                try:
                    async with session.get(f"{origin}/livez") as answer:
                        if answer.status == 200:
                            break
                except aiohttp.ClientError:
                    await asyncio.sleep(1)
            async with session.ws_connect(f"{origin}/live/", headers={"Origin": origin}) as socket:

                async def hear(wanted: int) -> None:
                    while len(came) < wanted:
                        told = json.loads(await socket.receive_str())
                        came.setdefault(told["pk"], time.monotonic())

                _until("watch of pods", lambda: self.kube(op="watched")["ours"] >= 1)
                for count, rate in ((SOME, 0), (LIVE_EVENTS, LIVE_RATE)):  # the first warms up
                    self.unlearn(count)
                    came.clear()
                    asked = asyncio.to_thread(self.kube, op="change", pods=count, rate=rate)
                    async with asyncio.timeout(PATIENCE_S):
                        sent, _ = await asyncio.gather(asked, hear(count))
        return sorted(1000 * (came[pk] - at) for pk, at in sent["sent"].items())


def _until(what: str, probe: Any) -> None:
    end = time.monotonic() + PATIENCE_S
    while not probe():
        if time.monotonic() > end:
            raise RuntimeError(f"still no {what}")
        time.sleep(0.01)


def _free_port() -> int:
    from tests.journeys.portal import free_port

    return free_port()


# --- the page ----------------------------------------------------------------------------------------------------


def spread(rows: Sequence[Figures], key: str, *, digits: int = 0) -> str:
    """``median (lowest to highest)`` of all rounds but the first."""
    values = [float(row.get(key, 0)) for row in rows[1:]]
    return f"{statistics.median(values):,.{digits}f} ({min(values):,.{digits}f} to {max(values):,.{digits}f})"


def page(
    restarts: dict[str, list[Figures]],
    rounds: dict[str, dict[str, list[Figures]]],
    idle: dict[str, Figures],
    live: list[float],
    bench: Bench,
    load: float,
) -> str:
    """The section."""
    lines = [
        "## B6 Reconcile",
        "",
        f"{pods.PODS:,} instances in {pods.QUEUES} queues, each with its pod ({bench.pod_bytes:,} bytes). One command: "
        "`make bench ARGS=b6`.",
        "",
        f"{ROUNDS - 1} rounds after one to warm up, the sides in turn; median (lowest to highest). This project writes "
        "each change to PostgreSQL, with an audit entry, and signals it; the peers keep it in memory.",
        "",
        "Restart: from the start of the process to the first complete list taken in; of this project "
        f"{SOME} rows had changed meanwhile and were right by then.",
        "",
        "| side | ms to serving | CPU ms, imports included | most memory, MiB | pages |",
        "|---|---|---|---|---|",
    ]
    for name, label in LABELS.items():
        rows = restarts[name]
        lines.append(
            f"| {label} | {spread(rows, 'serving_ms')} | {spread(rows, 'cpu_ms')} | {spread(rows, 'mib')} "
            f"| {spread(rows, 'pages')} |"
        )
    lines += [
        "",
        "In a process that runs. `list again`: its watch was ended as expired, and the list tells what changed; "
        "`events`: the watch tells, as fast as it is read.",
        "",
        "| changed | side | CPU ms | wall ms | memory more, MiB | SQL | rows written | requests for pages |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for what, label in (
        ("resync_some", f"{SOME}, list again"),
        ("resync_all", f"{pods.PODS:,}, list again"),
        ("some", f"{SOME}, events"),
        ("all", f"{pods.PODS:,}, events"),
    ):
        for name in rounds:
            rows = rounds[name][what]
            cells = [spread(rows, key) for key in ("cpu_ms", "wall_ms", "mib")]
            cells += [spread(rows, key) if name == "ours" else "none" for key in ("sql", "rows")]
            lines.append(f"| {label} | {LABELS[name]} | {' | '.join(cells)} | {spread(rows, 'pages of pods')} |")
    ours, theirs = idle["ours"], idle["kubespawner"]
    at = [live[min(len(live) - 1, round(share * len(live)))] for share in (0.5, 0.95, 0.99)]
    lines += [
        "",
        f"Idle for {IDLE_S} s: this project {ours.get('sql', 0):.0f} SQL statements, {_asked(ours)}, "
        f"{ours['cpu_ms']:.0f} ms of CPU; the reflector {_asked(theirs)}, {theirs['cpu_ms']:,.0f} ms of CPU.",
        "",
        f"From event to browser at {LIVE_RATE} events/s, {len(live):,} events, each another instance that comes up: "
        f"{at[0]:.0f} ms, 95th percentile {at[1]:.0f}, 99th {at[2]:.0f}, longest {live[-1]:.0f}: API server, watch, "
        "PostgreSQL (fsync on), Redis, web process, web socket.",
        "",
        f"{'; '.join(text for text in bench.versions.values() if text)}, at their defaults. PostgreSQL and Redis on "
        f"unix sockets; the API server is played, over plain HTTP, for all sides; {os.cpu_count()} cores, Python "
        f"{platform.python_version()}, load average at the start {load:.1f}.",
        "",
    ]
    return "\n".join(lines)


def _asked(figures: Figures) -> str:
    """What was asked besides: pages, single objects, watches begun again."""
    other = sum(count for key, count in figures.items() if key.endswith("others") or key == "version")
    return (
        f"{figures.get('pages of pods', 0):.0f} lists, {other:.0f} other requests and "
        f"{figures.get('watches', 0):.0f} watches begun again"
    )


if __name__ == "__main__":
    main()
