"""From the click on Create to a JupyterLab that answers, warm image: the whole and the portal's own share of it.

The portal's share is from the request to the moment at which the cluster has started the pod's program; the rest is
JupyterLab itself.
"""

from __future__ import annotations

import os
import tempfile
import time
from datetime import datetime
from pathlib import Path
from urllib.parse import urlsplit

from tests.benchmarks.page import write
from tests.journeys.portal import Portal, wait_until

LAUNCHES = 12


def main() -> None:
    """Launch, measure, write the section."""
    images = Path.home() / ".cache" / "mlportal" / "images"
    with tempfile.TemporaryDirectory(prefix="mlportal-launch-") as folder:
        portal = Portal(home=Path(folder) / "home", env={"LOCALKUBE_IMAGE_CACHE": str(images)})
        portal.start()
        try:
            portal.token()
            one_launch(portal, 0)  # builds the image where it is not there
            taken = [one_launch(portal, number) for number in range(1, LAUNCHES + 1)]
        finally:
            portal.stop()
    text = page(sorted(whole for whole, _ in taken), sorted(share for _, share in taken))
    print(text)
    write(text)


def one_launch(portal: Portal, number: int) -> tuple[float, float]:
    """Seconds until the lab answers to its key, and until its program was started."""
    begun, clock = time.monotonic(), time.time()
    body = {"name": f"bench-{number}", "image": "jupyter", "size": "small", "queue": "default"}
    made = portal.api("POST", "instances", body)
    assert made.status == 201, made.body
    pk, host = made.json["id"], urlsplit(made.json["url"]).hostname or ""
    key = portal.api("GET", f"instances/{pk}/key").json["key"]
    wait_until(
        "lab that answers",
        lambda: portal.at_instance(host, "/api/status", key=key).status == 200,
        seconds=300,
        every=0.02,
    )
    whole = time.monotonic() - begun
    program = started_at(portal, made.json["name"])
    portal.api("DELETE", f"instances/{pk}")
    wait_until("end of it", lambda: portal.api("GET", f"instances/{pk}").json.get("state") != "deleting", seconds=60)
    return whole, program - clock


def started_at(portal: Portal, name: str) -> float:
    """When the sandbox's process began, by the kernel's clock: pods say whole seconds only."""
    boot = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    newest = 0.0
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_bytes()
            if b"jupyter-lab" not in command:
                continue
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        newest = max(newest, boot + int(fields[19]) / os.sysconf("SC_CLK_TCK"))
    assert newest, f"no JupyterLab runs for {name}: {datetime.now().astimezone():%H:%M:%S}"
    return newest


def page(wholes: list[float], shares: list[float]) -> str:
    """The section."""
    p95 = shares[min(len(shares) - 1, round(0.95 * len(shares)))]
    return (
        "## Launch\n\n"
        "From the request for a new instance until its JupyterLab answers to its key, image built before. One command: "
        "`make bench ARGS=launch`.\n\n"
        f"{len(wholes)} launches one after the other: {wholes[len(wholes) // 2]:.1f} ({wholes[0]:.1f} to "
        f"{wholes[-1]:.1f}) s in all. From the request to the program's start, which is the portal's share and the "
        f"cluster's: {1000 * shares[len(shares) // 2]:.0f} ms (95th percentile {1000 * p95:.0f}). Load average at the "
        f"end {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores.\n"
    )
