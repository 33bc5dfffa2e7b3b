"""SSH through the portal's entrance: a file against ``kubectl port-forward``, 200 sessions, one that is stuck.

Outside the cluster, so through the API server's port-forward. The same ``ssh`` fetches the same bytes on both ways, in
turns. kubectl is on the path. Without ``KUBECONFIG`` the portal's own cluster is measured.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import asyncssh

from kubekit.client import Cluster
from kubekit.credentials import parse_kubeconfig
from tests.benchmarks.page import write
from tests.journeys.desk import Desk
from tests.journeys.portal import Portal, free_port, wait_until

BYTES, ROUNDS = 200_000_000, 5
CONNECTIONS, EACH = 100, 2
ECHOES = 200
NAME = "bench"


def main() -> None:
    """Start, measure, write the section."""
    given = os.environ.get("KUBECONFIG")
    images = Path.home() / ".cache" / "mlportal" / "images"
    environ = {"PORTAL_CLUSTER": given} if given else {"LOCALKUBE_IMAGE_CACHE": str(images)}
    with tempfile.TemporaryDirectory(prefix="mlportal-ssh-") as folder:
        portal = Portal(home=Path(folder) / "home", env=environ)
        portal.start()
        config = Path(given) if given else portal.home / "localkube" / "kubeconfig"
        try:
            desk = prepared(portal, Path(folder))
            ways = files(portal, desk, config)
            text = page(ways, asyncio.run(sessions(portal, desk)), real=bool(given))
        finally:
            spaces = [row["namespace"] for row in portal.api("GET", "queues").json["items"]]
            portal.stop()
            if given:
                remove(spaces, config)
    print(text)
    write(text)


def prepared(portal: Portal, folder: Path) -> Desk:
    """A running instance and somebody who may enter it."""
    (folder / "desk").mkdir()
    desk = Desk(portal, folder / "desk")
    desk.portalctl("key", "add", str(desk.folder / "mine.pub"))
    words = ("--image", "jupyter", "--size", "large", "--queue", "default", "--name", NAME, "--wait")
    desk.portalctl("instance", "create", *words)
    desk.configure()
    desk.wait_for(NAME)
    return desk


def fetch(desk: Desk, *more: str) -> float:
    """Seconds for the file over SSH."""
    began = time.monotonic()
    command = ["ssh", *desk.options(), *more, NAME, f"head -c {BYTES} /dev/zero"]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.monotonic() - began


def remove(spaces: list[str], config: Path) -> None:
    """Take these namespaces from the cluster."""
    cluster = Cluster(parse_kubeconfig(config.read_text(encoding="utf-8")))
    for space in spaces:
        cluster.delete("Namespace", None, space)
    cluster.close()


def files(portal: Portal, desk: Desk, config: Path) -> dict[str, list[float]]:
    """Megabytes a second by the entrance and by ``kubectl port-forward``, in turns, after one of each to warm up."""
    kubectl = shutil.which("kubectl")
    assert kubectl, "kubectl is not on the path"
    kubeconfig = ["--kubeconfig", str(config)]
    ours = ["get", "pods", "-A", "-l", "mlportal.io/kind=instance", "-o", "json"]
    listed = subprocess.run([kubectl, *kubeconfig, *ours], capture_output=True, text=True, check=True)
    (pod,) = json.loads(listed.stdout)["items"]
    port, meta = free_port(), pod["metadata"]
    forward = [kubectl, *kubeconfig, "-n", meta["namespace"], "port-forward", meta["name"], f"{port}:2222"]
    pinned = portal.api("GET", f"instances/{meta['labels']['mlportal.io/id']}/ssh").json["address"]
    around = ("-oProxyJump=none", "-oHostName=127.0.0.1", f"-oPort={port}", f"-oHostKeyAlias={pinned}")
    found: dict[str, list[float]] = {"entrance": [], "kubectl": []}
    with subprocess.Popen(forward, stdout=subprocess.DEVNULL) as process:
        try:
            there = ["ssh", *desk.options(), *around, NAME, "true"]
            wait_until("port-forward", lambda: subprocess.run(there, check=False).returncode == 0, seconds=60)
            for number in range(ROUNDS + 1):
                for name, more in (("entrance", ()), ("kubectl", around)):
                    rate = BYTES / 1e6 / fetch(desk, *more)
                    if number:
                        found[name].append(rate)
        finally:
            process.kill()
    return found


def memory(portal: Portal) -> tuple[int, float]:
    """The entrance's process and its proportional set size in MiB."""
    noted = json.loads((portal.home / "run" / "processes.json").read_text())
    pid = next(entry["pid"] for entry in noted if entry["name"] == "sshgateway")
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return pid, next(int(line.split()[1]) for line in rollup if line.startswith("Pss:")) / 1024


async def sessions(portal: Portal, desk: Desk) -> dict[str, Any]:
    """Memory with one and with all sessions, and an echo's round trip without and with a session that is stuck."""
    way = portal.api("GET", "instances").json["items"][0]
    way = portal.api("GET", f"instances/{way['id']}/ssh").json
    known = str(desk.folder / ".ssh" / "mlportal_known_hosts")
    keys = [str(desk.folder / "mine")]
    outer: list[asyncssh.SSHClientConnection] = []
    inner: list[asyncssh.SSHClientConnection] = []

    async def connect() -> None:
        gate = await asyncssh.connect(
            way["host"], way["port"], username=way["person"], client_keys=keys, known_hosts=known, config=None
        )
        outer.append(gate)
        for _ in range(EACH):
            pod = await asyncssh.connect(
                way["address"], 22, tunnel=gate, username="user", client_keys=keys, known_hosts=known, config=None
            )
            inner.append(pod)

    await connect()
    _pid, one = memory(portal)
    alone = await echoes(inner[0])
    while len(outer) < CONNECTIONS:
        await connect()
    _pid, all_of_them = memory(portal)
    stuck = await inner[-1].create_process("cat /dev/zero", encoding=None)
    await asyncio.sleep(2)  # until nothing more fits between it and us, which never reads
    beside = await echoes(inner[0])
    _pid, with_stuck = memory(portal)
    stuck.close()
    for connection in (*inner, *outer):
        connection.close()
    return {"one": one, "all": all_of_them, "stuck": with_stuck, "alone": alone, "beside": beside}


async def echoes(connection: asyncssh.SSHClientConnection) -> list[float]:
    """Milliseconds of round trips through a shell that repeats each line."""
    taken = []
    async with connection.create_process("cat") as process:
        for number in range(ECHOES):
            began = time.monotonic()
            process.stdin.write(f"{number}\n")
            assert await process.stdout.readline() == f"{number}\n"
            taken.append(1000 * (time.monotonic() - began))
        process.stdin.write_eof()
    return sorted(taken)


def page(ways: dict[str, list[float]], seen: dict[str, Any], *, real: bool) -> str:
    """The section."""
    ratios = [ours / theirs for ours, theirs in zip(ways["entrance"], ways["kubectl"], strict=True)]

    def spread(values: list[float], digits: int = 0) -> str:
        return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"

    return (
        f"## SSH, {'real' if real else 'embedded'} cluster\n\n"
        f"Through the portal's entrance to an instance of {'a real' if real else 'its own'} cluster, over the API "
        f"server's port-forward. One command: `{'KUBECONFIG=... ' if real else ''}make bench ARGS=ssh`.\n\n"
        f"{BYTES / 1e6:.0f} MB over `ssh`, {ROUNDS} rounds in turns, MB/s: entrance {spread(ways['entrance'])}, "
        f"`kubectl port-forward` {spread(ways['kubectl'])}; ratio {spread(ratios, 2)}.\n\n"
        f"The entrance's process: {seen['one']:.0f} MiB with one connection, {seen['all']:.0f} MiB with "
        f"{CONNECTIONS * EACH} sessions in {CONNECTIONS} connections, {seen['stuck']:.0f} MiB when one of them is "
        f"stuck. An echo's round trip takes {statistics.median(seen['alone']):.1f} ms alone and "
        f"{statistics.median(seen['beside']):.1f} ms (at most {seen['beside'][-1]:.0f}) beside all of those and the "
        f"stuck one. Load average at the end {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores.\n"
    )
