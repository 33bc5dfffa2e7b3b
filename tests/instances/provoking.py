"""Two clusters with small images that misbehave in one way each, and the loop that brings a row forward.

One is a localkube of the tests' own. The other is a real cluster that KUBECONFIG names: there each program is the
command of the one image that it must have, ``mlportal/python:1``.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from apps.clusters import access
from apps.core import reconciling
from apps.instances.models import Instance
from kubekit.credentials import Credentials, parse_kubeconfig
from tests.conformance.servers import KUBERNETES, LOCALKUBE

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


def columns_of(credentials: Credentials) -> dict[str, str]:
    """What a cluster's row needs to be reached with these."""
    return {"server": credentials.server, "credentials": access.pack(credentials)}


class Localkube:
    """The process and how to end it."""

    kind = LOCALKUBE

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

    @property
    def credentials(self) -> Credentials:
        """The whole cluster's."""
        return parse_kubeconfig((self.home / "kubeconfig").read_text())

    def written(self, workload: dict[str, Any]) -> None:
        """Nothing to change: it has an image for each program."""

    @contextmanager
    def breakable(self, folder: Path) -> Iterator[tuple[Credentials, Callable[[], None]]]:
        """Credentials of a cluster that stops to answer once the function is called: another one of these."""
        with localkube(folder) as other:
            yield other.credentials, other.stop


class RealCluster:
    """The one that KUBECONFIG names."""

    kind = KUBERNETES

    def __init__(self) -> None:
        self.credentials = parse_kubeconfig(Path(os.environ["KUBECONFIG"]).read_text())

    def written(self, workload: dict[str, Any]) -> None:
        """Let the one image that is there do what the test's image would do."""
        (main,) = workload["spec"]["template"]["spec"]["containers"]
        name = main["image"].removeprefix("test/").removesuffix(":1")
        if name in PROGRAMS or name == "nothing":
            command = ["sh", "-c", PROGRAMS[name]] if name in PROGRAMS else ["there-is-no-such-program"]
            main |= {"image": "mlportal/python:1", "command": command}

    @contextmanager
    def breakable(self, folder: Path) -> Iterator[tuple[Credentials, Callable[[], None]]]:
        """As `Localkube.breakable`: the way to this one, which ends."""
        target = urlsplit(self.credentials.server)
        assert target.hostname is not None
        way = Way(target.hostname, target.port or 443)
        server = f"https://127.0.0.1:{way.port}"
        yield replace(self.credentials, server=server, tls_server_name=target.hostname), way.close
        way.close()


class Way:
    """Carries connections to an address until it is closed; then nobody listens and what was open is cut."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._door.getsockname()[1]
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for end in (self._door, *self._open):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._door.accept()
                far = socket.create_connection(self._target)
                self._open += [near, far]
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=_carry, args=pair, daemon=True).start()


def _carry(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(65536):
            sink.sendall(piece)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


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


def follow(instance: Instance, until: Callable[[Instance], Any], *, seconds: float = 150) -> Instance:
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
