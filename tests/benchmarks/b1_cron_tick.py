"""B1: how long until every due run is a durable row and visible to a worker.

Four sides take turns on one PostgreSQL (fsync on) and one Redis: this project's tick, django-celery-beat's
DatabaseScheduler, celery-redbeat and APScheduler with its store in PostgreSQL. The clock of the peers is moved, so a
round is a minute of the schedules and not of the day. Afterwards two schedulers of ours race through more minutes while
one of them is killed between its insert and its commit; the runs are counted.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.benchmarks.page import write
from tests.benchmarks.work import due_in

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
SMALL = 1_000
FLOWS = 10_000
LARGE = 100_000
ROUNDS = 6  # the first one warms up
RACE_MINUTES = range(20, 26)
ALL_DUE_MINUTES = (70, 71, 72)
LABELS = {
    "ours": "this project",
    "beat": "django-celery-beat",
    "redbeat_alone": "celery-redbeat (Redis alone)",
    "apscheduler_pg": "APScheduler + PostgreSQL",
}


def main() -> None:
    """Run, print, and write the page."""
    from mlportal.embedded import postgres, redis
    from mlportal.program import started

    peers = peer_environment()
    with tempfile.TemporaryDirectory(prefix="mlportal-b1-") as name, ExitStack() as stack:
        folder = Path(name)
        postgres.initialise(data=folder / "pg", fsync=True)
        stack.enter_context(
            started(postgres.program(data=folder / "pg", run=folder, fsync=True), log=folder / "pg.log")
        )
        socket = folder / "redis.sock"
        stack.enter_context(started(redis.program(data=folder / "redis", socket=socket), log=folder / "redis.log"))
        bench = Bench(folder=folder, redis=socket, peers=peers)
        load = os.getloadavg()[0]
        small = bench.compare(SMALL)
        rounds = bench.compare(FLOWS)
        race = bench.race()
        large, everything = bench.alone(LARGE)
    text = page(small, rounds, large, everything, race, load)
    print(text)
    write(text)


def peer_environment(listed: str = "peers") -> Path:
    """The interpreter with the packages of ``<listed>.txt``; made once and kept in the data folder."""
    home = ROOT / ".portal" / listed
    python = home / "bin" / "python"
    wanted = (HERE / f"{listed}.txt").read_text(encoding="utf-8")
    mark = home / "packages.txt"
    if mark.is_file() and mark.read_text(encoding="utf-8") == wanted:
        return python
    uv = Path(sys.executable).with_name("uv")
    shutil.rmtree(home, ignore_errors=True)
    subprocess.run([uv, "venv", "-q", "--python", sys.executable, home], check=True)
    subprocess.run([uv, "pip", "install", "-q", "--python", python, "-r", HERE / f"{listed}.txt"], check=True)
    mark.write_text(wanted, encoding="utf-8")
    return python


@dataclass
class Side:
    """A process that plays one side."""

    name: str
    process: subprocess.Popen[str]
    versions: str = ""
    rounds: list[dict[str, Any]] = field(default_factory=list)

    def ready(self) -> None:
        """Wait until it has made its rows."""
        self.versions = self._answer()["versions"]

    def play(self, minute: int, *, everything: bool = False) -> None:
        """One round; with ``everything`` each flow is due in it."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"all {minute}\n" if everything else f"{minute}\n")
        self.process.stdin.flush()
        self.rounds.append(self._answer())

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                found: dict[str, Any] = json.loads(line)
                return found
        raise RuntimeError(f"{self.name} ended without an answer")


@dataclass(kw_only=True)
class Bench:
    """Servers, and how to start a side on them."""

    folder: Path
    redis: Path
    peers: Path

    def database(self, name: str) -> str:
        """A new, empty database."""
        import psycopg

        with psycopg.connect(host=str(self.folder), user="mlportal", dbname="postgres", autocommit=True) as link:
            link.execute(f"CREATE DATABASE {name}")
        return f"postgresql://mlportal@/{name}?host={self.folder}&port=5432"

    def ours(self, database: str) -> dict[str, str]:
        """The environment of this project's processes."""
        inherited = [name for name in os.environ if name.startswith(("PORTAL_", "DATABASE_", "REDIS_"))]
        return {
            **os.environ,
            **dict.fromkeys(inherited, ""),
            "PORTAL_HOME": str(self.folder / "home"),
            "DATABASE_URL": database,
            "REDIS_URL": f"unix://{self.redis}",
            "PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}",
            "DJANGO_SETTINGS_MODULE": "mlportal.settings",
        }

    @contextmanager
    def side(self, name: str, flows: int) -> Iterator[Side]:
        """Start a side; it ends with the block."""
        database = self.database(f"{name}_{flows}")
        if name == "ours":
            environ = self.ours(database)
            subprocess.run([sys.executable, "manage.py", "migrate", "-v0"], env=environ, cwd=ROOT, check=True)
            argv = [sys.executable, "-m", "tests.benchmarks.sides.ours"]
        else:
            environ = {**os.environ, "PYTHONPATH": str(HERE), "BENCH_DATABASE": database}
            argv = [str(self.peers), str(HERE / "sides" / f"{name}.py")]
        environ |= {
            "BENCH_FLOWS": str(flows),
            "BENCH_DUE": str(due_in(0, flows)),
            "BENCH_BROKER": f"redis+socket://{self.redis}",
            "BENCH_REDIS": f"unix://{self.redis}",
        }
        with subprocess.Popen(
            argv, env=environ, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            try:
                yield Side(name=name, process=process)
            finally:
                process.kill()

    def compare(self, flows: int) -> dict[str, Side]:
        """All sides in turn, round after round."""
        with ExitStack() as stack:
            sides = {name: stack.enter_context(self.side(name, flows)) for name in LABELS}
            for side in sides.values():
                side.ready()
            # Minutes whose count of due flows is the same for all rounds.
            for minute in range(ROUNDS):
                for side in sides.values():
                    side.play(minute)
            return sides

    def alone(self, flows: int) -> tuple[Side, Side]:
        """This project at a size that the peers would take minutes for: 1/60 due, then all."""
        with self.side("ours", flows) as side:
            side.ready()
            for minute in range(ROUNDS):
                side.play(minute)
            everything = Side(name="ours", process=side.process)
            for minute in ALL_DUE_MINUTES:
                everything.play(minute, everything=True)
            return side, everything

    def race(self) -> dict[str, int]:
        """Two schedulers through the same minutes; one is killed between insert and commit, then a third goes on."""
        import psycopg

        environ = self.ours(f"postgresql://mlportal@/ours_{FLOWS}?host={self.folder}&port=5432")
        points = self.folder / "points"
        points.mkdir()
        (points / "tick-inserted.armed").touch()
        crashing = {**environ, "MLPORTAL_CRASH_POINTS": str(points)}
        first, last = RACE_MINUTES.start, RACE_MINUTES.stop
        argv = [sys.executable, "-m", "tests.benchmarks.sides.racer", str(first), str(last)]
        # What lies between the compared minutes and the race is fired before, so that the race alone is counted.
        self._tick_to(environ, ROUNDS, first)
        racers = [
            subprocess.Popen(argv, env=one, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for one in (crashing, environ)
        ]
        for racer in racers:
            assert racer.stdout is not None
            racer.stdout.readline()
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.write("\n")
            racer.stdin.flush()
        until = time.monotonic() + 30
        while not (points / "tick-inserted.reached").exists():
            if time.monotonic() > until:
                raise RuntimeError("the crash point was not reached")
            time.sleep(0.01)
        racers[0].send_signal(signal.SIGKILL)
        for racer in racers:
            racer.communicate(timeout=120)
        self._tick_to(environ, last - 1, last)
        with psycopg.connect(host=str(self.folder), user="mlportal", dbname=f"ours_{FLOWS}") as link:
            row = link.execute(
                "SELECT count(*), count(DISTINCT (flow_id, scheduled_at)), "
                "(SELECT count(*) FROM flows_attempt a JOIN flows_run r ON r.id = a.run_id WHERE r.scheduled_at >= %s) "
                "FROM flows_run WHERE scheduled_at >= %s",
                [f"2031-05-05T12:{first}:00Z"] * 2,
            ).fetchone()
        assert row is not None
        expected = sum(due_in(minute, FLOWS) for minute in RACE_MINUTES)
        found = {"expected": expected, "runs": row[0], "distinct": row[1], "attempts": row[2]}
        if len(set(found.values())) != 1:
            raise RuntimeError(f"not exactly once: {found}")
        return found

    def _tick_to(self, environ: dict[str, str], first: int, last: int) -> None:
        argv = [sys.executable, "-m", "tests.benchmarks.sides.racer", str(first), str(last)]
        subprocess.run(argv, env=environ, cwd=ROOT, input="\n", text=True, check=True, stdout=subprocess.DEVNULL)


def figures(side: Side, key: str) -> list[float]:
    """Of all rounds but the first."""
    return [float(row[key]) for row in side.rounds[1:]]


def spread(values: list[float]) -> str:
    """``median (lowest to highest)``."""
    return f"{statistics.median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})"


def ratio(other: Side, ours: Side) -> str:
    """How many times longer the other takes, round by round."""
    pairs = zip(figures(other, "wall_ms"), figures(ours, "wall_ms"), strict=True)
    found = [theirs / mine for theirs, mine in pairs]
    return f"{statistics.median(found):,.0f} ({min(found):,.0f} to {max(found):,.0f})"


def table(sides: dict[str, Side], flows: int) -> list[str]:
    """One row a side. Raises RuntimeError when one did not fire all that was due."""
    ours = sides["ours"]
    due = [due_in(minute, flows) for minute in range(1, ROUNDS)]
    rows = [
        "| side | wall ms | CPU ms of the scheduler | SQL statements | broker messages | times longer |",
        "|---|---|---|---|---|---|",
    ]
    for name, side in sides.items():
        if [row["runs"] for row in side.rounds[1:]] != due:
            raise RuntimeError(f"{name} did not fire all that was due: {[row['runs'] for row in side.rounds]}")
        cells = [LABELS[name], spread(figures(side, "wall_ms")), spread(figures(side, "cpu_ms"))]
        cells += [spread(figures(side, "sql")), spread(figures(side, "messages"))]
        cells.append("1" if side is ours else ratio(side, ours))
        rows.append("| " + " | ".join(cells) + " |")
    return rows


def page(
    small: dict[str, Side], sides: dict[str, Side], large: Side, everything: Side, race: dict[str, int], load: float
) -> str:
    """B1's part of ``docs/benchmarks.md``."""
    if any(row["runs"] != LARGE for row in everything.rounds):
        raise RuntimeError(f"not all of {LARGE} were fired: {[row['runs'] for row in everything.rounds]}")
    versions = "; ".join(side.versions for side in sides.values())
    due_large = due_in(1, LARGE)
    return "\n".join(
        [
            "## B1 Cron tick",
            "",
            "Until each due run is a durable row and visible to a worker. One command: `make bench ARGS=b1`.",
            "",
            f"{FLOWS:,} flows, 1,000 distinct expressions, 5 time zones, {due_in(1, FLOWS)} due in each round; "
            f"{ROUNDS - 1} rounds after one to warm up, the sides in turn; median (lowest to highest).",
            "",
            *table(sides, FLOWS),
            "",
            f"{SMALL:,} flows, {due_in(1, SMALL)} due:",
            "",
            *table(small, SMALL),
            "",
            f"This project alone with {LARGE:,} flows, {due_large:,} due: {spread(figures(large, 'wall_ms'))} ms, "
            f"{spread(figures(large, 'cpu_ms'))} ms of CPU, {spread(figures(large, 'sql'))} statements. "
            f"All {LARGE:,} due at once: {spread(figures(everything, 'wall_ms'))} ms, "
            f"{spread(figures(everything, 'sql'))} statements, {spread(figures(everything, 'messages'))} messages.",
            "",
            f"Exactly once: two schedulers went through {len(RACE_MINUTES)} minutes at the same time, one was killed "
            "with SIGKILL after its insert and before its commit. "
            f"Runs expected {race['expected']:,}, found {race['runs']:,}, "
            f"distinct (flow, instant) {race['distinct']:,}, first attempts {race['attempts']:,}.",
            "",
            f"{versions}. PostgreSQL with fsync on and Redis on unix sockets, shared by all sides; "
            f"{os.cpu_count()} cores, Python {platform.python_version()}, load average at the start {load:.1f}. "
            "django-celery-beat with its defaults (its heap built before the first round); celery-redbeat without its "
            "lock, its schedule in that Redis, which keeps nothing on disk; APScheduler with a pool of "
            "ten threads, coalescing, its store's engine at defaults. The peers' clocks are set with time-machine and "
            "stand still during a round.",
            "",
        ]
    )


if __name__ == "__main__":
    main()
