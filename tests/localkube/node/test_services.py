"""Services, Ingress routes and probes: how requests find a pod, and when they stop finding it."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from localkube.node.ingress import ROUTES, Ingresses, routes
from tests.localkube.node.support import Node, ready

SERVER = """
import http.server, os
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        bad = self.path == '/ready' and os.path.exists('/tmp/sick')
        self.send_response(500 if bad else 200)
        self.end_headers()
        self.wfile.write(b'hello from ' + os.uname().nodename.encode())
    def log_message(self, *_): pass
print('up')
http.server.ThreadingHTTPServer(('0.0.0.0', 8080), Handler).serve_forever()
"""


_numbers = itertools.count(1)


def service(node: Node, name: str = "web", **spec: Any) -> Any:
    address = f"127.97.{os.getpid() % 256}.{next(_numbers)}"
    wanted = {
        "clusterIP": address,
        "selector": {"app": name},
        "ports": [{"name": "http", "port": 80, "targetPort": "http"}],
        **spec,
    }
    return node.store.create("services", {"metadata": {"name": name, "namespace": "default"}, "spec": wanted})


def web(node: Node, **changes: Any) -> Any:
    return node.create(SERVER, labels={"app": "web"}, ports=[{"name": "http", "containerPort": 8080}], **changes)


async def fetch(address: str | None) -> bytes:
    """The body, or nothing when the connection is closed without an answer."""
    assert address
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET / HTTP/1.0\r\n\r\n")
    try:
        answer = await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()
    return answer.rpartition(b"\r\n\r\n")[2]


async def listening(node: Node, name: str = "web") -> str:
    services = node.kubelet._services
    assert services
    while (address := services.where("default", name, 80)) is None:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    return address


PROBE = {"httpGet": {"path": "/ready", "port": "http"}, "periodSeconds": 1, "failureThreshold": 1}


async def test_a_service_reaches_ready_pods_alone(node: Node) -> None:
    service(node)
    address = await listening(node)
    assert await fetch(address) == b""
    pod = web(node, readinessProbe=PROBE)
    await node.until(pod, ready)
    assert await fetch(address) == b"hello from " + pod["metadata"]["name"].encode()
    await node.exec(pod, "touch", "/tmp/sick")
    await node.until(pod, lambda p: not ready(p))
    assert await fetch(address) == b""
    assert any(reason == "Unhealthy" and "statuscode: 500" in text for reason, text in node.events(pod))
    await node.exec(pod, "rm", "/tmp/sick")
    await node.until(pod, ready)
    assert (await fetch(address)).startswith(b"hello")


async def test_requests_go_round_all_ready_pods(node: Node) -> None:
    service(node)
    address = await listening(node)
    pods = [web(node, readinessProbe=PROBE) for _ in range(2)]
    for pod in pods:
        await node.until(pod, ready)
    answers = {await fetch(address) for _ in range(6)}
    assert answers == {b"hello from " + pod["metadata"]["name"].encode() for pod in pods}


async def test_a_service_that_is_gone_listens_no_more(node: Node) -> None:
    service(node)
    address = await listening(node)
    node.store.delete("services", "default", "web")
    await asyncio.sleep(0.05)
    with pytest.raises(ConnectionRefusedError):
        await fetch(address)


async def test_readiness_is_noticed_within_a_fraction_of_its_period(node: Node) -> None:
    pod = web(node, readinessProbe={"httpGet": {"path": "/ready", "port": 8080}, "periodSeconds": 10})
    await node.running(pod)
    begun = time.monotonic()
    await node.until(pod, ready)
    assert time.monotonic() - begun < 8.0  # not a whole period


async def test_a_probe_that_takes_too_long_fails(node: Node) -> None:
    script = "import socket, time; s = socket.create_server(('0.0.0.0', 8080)); time.sleep(60)"
    probe = {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1, "timeoutSeconds": 1}
    stuck = node.create(script, readinessProbe=probe)
    told = ("Unhealthy", "Readiness probe failed: context deadline exceeded")
    await node.until(stuck, lambda p: told in node.events(stuck))


# --- routes


def ingress(name: str, host: str, *paths: tuple[str, str], created: str = "2026-01-01T00:00:00Z") -> Any:
    backend = {"service": {"name": name, "port": {"number": 80}}}
    entries = [{"path": path, "pathType": kind, "backend": backend} for path, kind in paths]
    metadata = {"name": name, "namespace": "default", "uid": name, "creationTimestamp": created}
    return {"metadata": metadata, "spec": {"rules": [{"host": host, "http": {"paths": entries}}]}}


def test_routes_are_exact_before_long_before_short() -> None:
    made = routes(
        [
            ingress("a", "x.test", ("/", "Prefix"), ("/deep/er", "Prefix"), ("/deep", "Exact")),
            ingress("b", "y.test", ("/", "Prefix")),
        ],
        lambda _namespace, name, _port: f"127.0.0.9:{ord(name)}",
    )
    assert [route["match"][0] for route in made] == [
        {"host": ["x.test"], "path": ["/deep"]},
        {"host": ["x.test"], "path": ["/deep/er", "/deep/er/*"]},
        {"host": ["x.test"]},
        {"host": ["y.test"]},
    ]
    proxy = made[0]["handle"][0]
    assert proxy["upstreams"] == [{"dial": "127.0.0.9:97"}]
    assert proxy["stream_close_delay"] == "24h"  # without it every web socket ends with every new route


def test_a_route_without_a_ready_pod_answers_503() -> None:
    (route,) = routes([ingress("a", "x.test", ("/", "Prefix"))], lambda *_: None)
    assert route["handle"][0]["status_code"] == 503


class FakeCaddy:
    """The admin interface of Caddy, as far as routes go."""

    def __init__(self) -> None:
        self.routes: list[Any] = []
        self.patches = 0
        self._writers: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server | None = None

    async def start(self, path: Path) -> None:
        path.unlink(missing_ok=True)  # noqa: ASYNC240
        self._server = await asyncio.start_unix_server(self._serve, str(path))

    async def stop(self) -> None:
        assert self._server
        self._server.close()
        for writer in self._writers:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        while head := await reader.readline():
            method, path, _ = head.decode().split()
            assert path == ROUTES
            length = 0
            while line := (await reader.readline()).strip():
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            body = await reader.readexactly(length)
            answer = b""
            if method == "PATCH":
                self.routes = json.loads(body)
                self.patches += 1
            else:
                answer = json.dumps(self.routes).encode()
            writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(answer)}\r\n\r\n".encode() + answer)


@pytest.fixture
async def caddy(node: Node, tmp_path: Path) -> AsyncIterator[FakeCaddy]:
    """A Caddy that the node's Ingresses are sent to."""
    fake = FakeCaddy()
    await fake.start(tmp_path / "admin.sock")
    assert node.kubelet._services
    node.kubelet._ingresses = Ingresses(node.store, node.kubelet._services, tmp_path / "admin.sock")
    node.kubelet._ingresses.start()
    yield fake
    await node.kubelet._ingresses.stop()
    node.kubelet._ingresses = None
    await fake.stop()
    (tmp_path / "admin.sock").unlink()


async def until(test: Any, timeout_s: float = 90.0) -> float:
    """Wait for a condition; returns the seconds it took."""
    begun = time.monotonic()
    while not test():
        assert time.monotonic() - begun < timeout_s
        await asyncio.sleep(0.005)
    return time.monotonic() - begun


def hosts(fake: FakeCaddy) -> list[str]:
    return [route["match"][0]["host"][0] for route in fake.routes]


async def test_a_route_comes_with_its_ingress_leads_to_ready_pods_and_goes_at_once(
    node: Node, caddy: FakeCaddy
) -> None:
    service(node)
    node.store.create("ingresses", ingress("web", "i-1.test", ("/", "Prefix")))
    await until(lambda: hosts(caddy) == ["i-1.test"])
    assert caddy.routes[0]["handle"][0]["status_code"] == 503
    pod = web(node, readinessProbe=PROBE)
    await node.until(pod, ready)
    await until(lambda: "upstreams" in caddy.routes[0]["handle"][0])
    assert (await fetch(caddy.routes[0]["handle"][0]["upstreams"][0]["dial"])).startswith(b"hello")
    assert node.store.get("ingresses", "default", "web")["status"] == {
        "loadBalancer": {"ingress": [{"ip": "127.0.0.1"}]}
    }
    node.store.delete("ingresses", "default", "web")
    assert await until(lambda: caddy.routes == []) < 5.0


async def test_routes_are_sent_only_when_they_differ(node: Node, caddy: FakeCaddy) -> None:
    service(node)
    node.store.create("ingresses", ingress("web", "i-1.test", ("/", "Prefix")))
    await until(lambda: hosts(caddy) == ["i-1.test"])
    before = caddy.patches
    for _ in range(5):
        assert node.kubelet._ingresses
        node.kubelet._ingresses.nudge()
        await asyncio.sleep(0.02)
    assert caddy.patches == before


async def test_a_restarted_caddy_gets_its_routes_back(node: Node, caddy: FakeCaddy, tmp_path: Path) -> None:
    service(node)
    node.store.create("ingresses", ingress("web", "i-1.test", ("/", "Prefix")))
    await until(lambda: hosts(caddy) == ["i-1.test"])
    await caddy.stop()
    caddy.routes = []
    await asyncio.sleep(0.1)
    await caddy.start(tmp_path / "admin.sock")
    await until(lambda: hosts(caddy) == ["i-1.test"])


async def test_the_routes_go_when_the_node_stops(node: Node, caddy: FakeCaddy) -> None:
    service(node)
    node.store.create("ingresses", ingress("web", "i-1.test", ("/", "Prefix")))
    await until(lambda: hosts(caddy) == ["i-1.test"])
    assert node.kubelet._ingresses
    await node.kubelet._ingresses.stop()
    assert caddy.routes == []
