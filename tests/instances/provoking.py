"""A localkube of its own with small images that misbehave in one way each, and the loop that brings a row forward."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from apps.clusters import access
from apps.core import reconciling
from apps.instances.models import Instance
from kubekit.credentials import parse_kubeconfig

ROOT = Path(__file__).parents[2]
SERVER = """exec python3 -c '
from http.server import BaseHTTPRequestHandler as H, ThreadingHTTPServer
class Ready(H):
    def do_GET(self):
        self.send_response(200); self.end_headers()
ThreadingHTTPServer(("0.0.0.0", 8888), Ready).serve_forever()'
"""
#: Name of an image -> what its program does.
PROGRAMS = {
    "answers": SERVER,
    "crashes": "echo 'ModuleNotFoundError: torch' >&2; exit 3",
    "hungry": "exec python3 -c 'x = bytearray(400 << 20)'",
    "fills": "cat /dev/zero > /root/zeros",
    "silent": "exec sleep 600",
}


def write_images(folder: Path) -> Path:
    """The table of images and their files; the table's path."""
    lines = []
    for name, script in PROGRAMS.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "requirements.txt").write_text("")
        (folder / name / "entrypoint").write_text(f"#!/bin/sh\n{script}\n")
        lines.append(
            f'[images."test/{name}:1"]\nfolder = "{name}"\n'
            'entrypoint = "entrypoint"\ncommand = ["mlportal-entrypoint"]\n'
        )
    lines.append('[images."test/nothing:1"]\nfolder = "silent"\ncommand = ["there-is-no-such-program"]\n')
    table = folder / "images.toml"
    table.write_text("\n".join(lines))
    return table


class Localkube:
    """The process and how to end it."""

    def __init__(self, home: Path, images: Path) -> None:
        self.home, self.images = home, images
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start and wait until it serves."""
        ready = self.home / "ready"
        ready.unlink(missing_ok=True)
        command = (
            *(sys.executable, "-m", "localkube", "serve", "--home", str(self.home), "--listen", "127.0.0.1:0"),
            *("--images", str(self.images), "--cpu", "4", "--memory-mib", "8192"),
        )
        environ = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}"}
        with (self.home / "log").open("ab") as log:
            self.process = subprocess.Popen(command, env=environ, stdout=log, stderr=log, start_new_session=True)
        deadline = time.monotonic() + 30
        while not ready.exists():
            assert self.process.poll() is None, (self.home / "log").read_text()
            assert time.monotonic() < deadline, "localkube does not get ready"
            time.sleep(0.05)

    def stop(self) -> None:
        """End it and everything in it."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait(60)
            self.process = None

    def columns(self) -> dict[str, str]:
        """What a cluster's row needs to reach it."""
        credentials = parse_kubeconfig((self.home / "kubeconfig").read_text())
        return {"server": credentials.server, "credentials": access.pack(credentials)}


@contextmanager
def localkube(folder: Path) -> Iterator[Localkube]:
    """A running localkube that is gone afterwards."""
    home = folder / "home"
    home.mkdir(mode=0o700)
    made = Localkube(home, write_images(folder / "images"))
    made.start()
    try:
        yield made
    finally:
        made.stop()


def follow(instance: Instance, until: Callable[[Instance], Any], *, seconds: float = 40) -> Instance:
    """Reconcile round after round, as worker and sweep do, until the row is as wanted."""
    deadline = time.monotonic() + seconds
    while True:
        reconciling.reconcile_one("instance", instance.pk)
        instance.refresh_from_db()
        if until(instance):
            return instance
        assert time.monotonic() < deadline, (
            instance.state,
            instance.reason_code,
            list(instance.reason_evidence),
            instance.last_events,
        )
        time.sleep(0.3)
