"""The command as users start it: API server and node in one process, driven over HTTPS."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.localkube.client import Client
from tests.localkube.node.support import leftovers

CORE = "/api/v1/namespaces/default"
APPS = "/apis/apps/v1/namespaces/default"
SERVER = """
import http.server, os
with open('/root/started', 'a') as file: file.write('x')
print('start', os.stat('/root/started').st_size, open('/etc/key/key').read(), flush=True)
http.server.ThreadingHTTPServer(('', 8080), http.server.SimpleHTTPRequestHandler).serve_forever()
"""


class Process:
    def __init__(self, home: Path, images: Path, cache: Path) -> None:
        root = Path(__file__).parents[3]
        env = {**os.environ, "PYTHONPATH": str(root / "platform"), "LOCALKUBE_IMAGE_CACHE": str(cache)}
        command = [sys.executable, "-m", "localkube", "serve", "--home", str(home), "--listen", "127.0.0.1:0"]
        self.home = home
        self.process = subprocess.Popen([*command, "--images", str(images)], env=env)
        deadline = time.monotonic() + 90
        while not (home / "ready").exists():
            assert time.monotonic() < deadline
            assert self.process.poll() is None
            time.sleep(0.02)
        self.client = Client(home, (home / "ready").read_text().strip().removeprefix("https://"))

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            assert self.process.wait(90) == 0


@pytest.fixture
def server(tmp_path: Path, images: Path, image_cache: Path) -> Iterator[Process]:
    process = Process(tmp_path / "home", images, image_cache)
    yield process
    process.end()
    assert leftovers(tmp_path) == []


def stateful_set(replicas: int) -> Any:
    container = {
        "name": "main",
        "image": "test/python:1",
        "command": ["python3", "-c", SERVER],
        "ports": [{"name": "http", "containerPort": 8080}],
        "readinessProbe": {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 1},
        "volumeMounts": [{"name": "home", "mountPath": "/root"}, {"name": "key", "mountPath": "/etc/key"}],
    }
    volumes = [
        {"name": "home", "persistentVolumeClaim": {"claimName": "home"}},
        {"name": "key", "secret": {"secretName": "key"}},
    ]
    template = {
        "metadata": {"labels": {"app": "dev"}},
        "spec": {"containers": [container], "volumes": volumes, "terminationGracePeriodSeconds": 1},
    }
    spec = {
        "replicas": replicas,
        "serviceName": "dev",
        "selector": {"matchLabels": {"app": "dev"}},
        "template": template,
    }
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "dev"}, "spec": spec}


def is_ready(pod: Any) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod.get("status", {}).get("conditions", []))


def test_a_dev_instance_by_its_contract_starts_stops_and_keeps_its_home(server: Process) -> None:
    client = server.client
    assert client.post(f"{CORE}/secrets", {"metadata": {"name": "key"}, "stringData": {"key": "k1"}}).code == 201
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "16Mi"}}}
    assert client.post(f"{CORE}/persistentvolumeclaims", {"metadata": {"name": "home"}, "spec": claim}).code == 201
    ports = {"ports": [{"port": 80, "targetPort": "http"}], "selector": {"app": "dev"}}
    assert client.post(f"{CORE}/services", {"metadata": {"name": "dev"}, "spec": ports}).code == 201
    assert client.apply(f"{APPS}/statefulsets/dev", stateful_set(1)).code == 201
    for starts in (1, 2):
        client.until(f"{CORE}/pods/dev-0", is_ready)
        assert client.get(f"{CORE}/pods/dev-0/log").body.startswith(f"start {starts} k1\n")
        if starts == 2:
            break
        assert client.apply(f"{APPS}/statefulsets/dev", stateful_set(0)).code == 200
        client.until(f"{CORE}/pods", lambda pods: pods["items"] == [])
        assert client.apply(f"{APPS}/statefulsets/dev", stateful_set(1)).code == 200
    events = client.get(f"{CORE}/events").body["items"]
    assert {"Scheduled", "Pulled", "Created", "Started", "Killing"} <= {event["reason"] for event in events}


def test_fields_are_warned_of_or_refused_by_the_server(server: Process) -> None:
    plain = {"name": "main", "image": "test/python:1", "command": ["true"]}
    stored = {
        "metadata": {"name": "a"},
        "spec": {"containers": [plain], "restartPolicy": "Never", "runtimeClassName": "x"},
    }
    answer = server.client.post(f"{CORE}/pods", stored)
    assert answer.code == 201
    assert any("spec.runtimeClassName: stored" in text for text in answer.warnings)
    refused = {"metadata": {"name": "b"}, "spec": {"containers": [plain], "hostNetwork": True}}
    answer = server.client.post(f"{CORE}/pods", refused)
    assert answer.code == 501
    assert "spec.hostNetwork" in answer.message


def test_the_node_says_which_limits_are_hard(server: Process) -> None:
    node = server.client.get("/api/v1/nodes/localkube").body
    labels = node["metadata"]["labels"]
    assert labels["localkube.io/limits"] in ("hard", "soft")
    assert labels["localkube.io/volume-sizes"] in ("hard", "soft")
    assert any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"]["conditions"])
