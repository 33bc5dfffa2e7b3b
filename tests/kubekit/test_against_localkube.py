"""The conformance checks on the embedded cluster, and streams of pods that really run on its node."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubekit.client import Cluster
from kubekit.credentials import parse_kubeconfig
from tests.kubekit.conformance import Conformance
from tests.kubekit.conformance_pods import PodConformance

ROOT = Path(__file__).parents[2]


def serve(home: Path, *options: str) -> subprocess.Popen[bytes]:
    """Start localkube on a free port and wait until it serves."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}"}
    command = [sys.executable, "-m", "localkube", "serve", "--home", str(home), "--listen", "127.0.0.1:0", *options]
    with (home.parent / "localkube.log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, cwd=home.parent, stdout=log, stderr=log)
    deadline = time.monotonic() + 30
    while not (home / "ready").exists():
        alive = process.poll() is None and time.monotonic() < deadline
        if not alive:
            process.kill()
        assert alive, (home.parent / "localkube.log").read_text()[-3000:]
        time.sleep(0.05)
    return process


class TestLocalkube(Conformance):
    @pytest.fixture(scope="class")
    @classmethod
    def kubeconfig(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
        home = tmp_path_factory.mktemp("localkube") / "home"
        process = serve(home, "--no-node")
        yield (home / "kubeconfig").read_text()
        process.terminate()
        process.wait(20)


class TestLocalkubesNode(PodConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def cluster(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
        home = tmp_path_factory.mktemp("localkube") / "home"
        process = serve(home, "--images", str(ROOT / "docker" / "images.toml"))
        found = Cluster(parse_kubeconfig((home / "kubeconfig").read_text()))
        yield found
        found.close()
        process.terminate()
        process.wait(20)
