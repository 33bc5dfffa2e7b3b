"""B12: what the whole stack costs when nobody uses it: memory, CPU and SQL statements, and how long it takes to start.

The portal is the real command with a folder of its own. Memory is PSS, so that what processes share counts once.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from tests.benchmarks.page import write
from tests.journeys.portal import Portal

IDLE_S = 300
SETTLE_S = 60
TICKS = os.sysconf("SC_CLK_TCK")
WARM_STARTS = 5


def main() -> None:
    """Start cold and warm, sit still, write the section."""
    with tempfile.TemporaryDirectory(prefix="mlportal-b12-") as folder:
        portal = Portal(home=Path(folder) / "home")
        first = started_after(portal)
        portal.stop()
        warm = []
        for _ in range(WARM_STARTS):
            warm.append(started_after(portal))
            portal.stop()
        started_after(portal)
        log_statements(portal)
        time.sleep(SETTLE_S)
        root = root_of(portal)
        cpu, statements = cpu_seconds(root), counted(portal)
        time.sleep(IDLE_S)
        used, made = cpu_seconds(root) - cpu, counted(portal) - statements
        memory = pss_mib(root)
        portal.stop()
    text = page(first, sorted(warm), memory, used, made)
    print(text)
    write(text)


def started_after(portal: Portal) -> float:
    """Seconds from the command to the sign-in page's answer."""
    begun = time.monotonic()
    portal.start()
    return time.monotonic() - begun


def root_of(portal: Portal) -> int:
    """The process that everything of the portal descends from."""
    assert portal.process is not None
    return portal.process.pid


def processes(*roots: int) -> dict[int, str]:
    """Process id -> what it is, for these and all that they started."""
    children = defaultdict(list)
    names = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text()
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        parent = int(stat.rpartition(")")[2].split()[1])
        children[parent].append(int(entry.name))
        names[int(entry.name)] = command
    found, wait = {}, [*roots]
    while wait:
        pid = wait.pop()
        found[pid] = names.get(pid, "")
        wait += children[pid]
    return found


def kind(command: str) -> str:
    """The part of the stack that a command line belongs to."""
    for word in ("localkube", "postgres", "redis", "caddy"):  # localkube is told where Caddy listens
        if word in command:
            return word
    return "supervisor, web, worker, control"


def pss_mib(*roots: int) -> dict[str, float]:
    """Proportional set size by part."""
    total: dict[str, float] = defaultdict(float)
    for pid, command in processes(*roots).items():
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        found = re.search(r"^Pss:\s+(\d+) kB", rollup, re.MULTILINE)
        total[kind(command)] += int(found[1]) / 1024 if found else 0.0
    return dict(total)


def cpu_seconds(*roots: int) -> float:
    """User and system time of all processes so far, their ended children included."""
    total = 0
    for pid in processes(*roots):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(int(field) for field in fields[11:15])
    return total / TICKS


def database(portal: Portal, statement: str) -> list[tuple]:
    """One statement on the portal's own database."""
    import psycopg

    with psycopg.connect(host=str(portal.home / "run"), user="mlportal", dbname="mlportal", autocommit=True) as link:
        cursor = link.execute(statement)
        return cursor.fetchall() if cursor.description else []


def log_statements(portal: Portal) -> None:
    """Let the server write every statement down; counting them is reading its log."""
    database(portal, "ALTER SYSTEM SET log_statement = 'all'")
    database(portal, "SELECT pg_reload_conf()")


def counted(portal: Portal) -> int:
    """Statements in the server's log."""
    text = (portal.home / "log" / "postgres.log").read_text(errors="replace")
    return len(re.findall(r"LOG:  (?:statement|execute)", text))


def page(first: float, warm: list[float], memory: dict[str, float], cpu: float, statements: int) -> str:
    """The section."""
    rows = "\n".join(f"| {name} | {size:.0f} |" for name, size in sorted(memory.items(), key=lambda row: -row[1]))
    return (
        "## B12 Footprint and start\n\n"
        "The whole stack with nobody online and nothing in it. One command: `make bench ARGS=b12`.\n\n"
        f"| part | PSS MiB |\n|---|---|\n{rows}\n| all | {sum(memory.values()):.0f} |\n\n"
        f"Over {IDLE_S} s: {100 * cpu / IDLE_S:.2f} % of a core, {statements / IDLE_S:.3f} SQL statements a second "
        f"({statements} in all).\n\n"
        f"Ready to answer after {first:.1f} s at the first start (its database is made), {warm[len(warm) // 2]:.1f} "
        f"({warm[0]:.1f} to {warm[-1]:.1f}) s at the {len(warm)} starts after it. Load average at the end "
        f"{os.getloadavg()[0]:.1f}, {os.cpu_count()} cores.\n"
    )
