"""Open web sockets and new requests while hosts come and go, through the portal's Caddy and its own cluster.

The server behind them is one pod. What is counted: sockets that broke, requests without an answer, and how long a new
host takes from its Ingress object to its first answer.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.benchmarks.page import write
from tests.journeys.portal import Portal
from tests.localkube.client import Client

SOCKETS, CHANGES, POLL_S = 200, 100, 0.02
DOMAIN = "apps.localhost"
SERVER = r"""
import asyncio
async def serve(reader, writer):
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            if b"upgrade: websocket" in head.lower():
                writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
                while piece := await reader.read(100):
                    writer.write(piece)
                return
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    except (asyncio.IncompleteReadError, OSError):
        pass
    finally:
        writer.close()
async def main():
    async with await asyncio.start_server(serve, "0.0.0.0", 8080, backlog=500) as server:
        await server.serve_forever()
asyncio.run(main())
"""
UPGRADE = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==\r\n"


def main() -> None:
    """Start, measure, write the section."""
    images = Path.home() / ".cache" / "mlportal" / "images"
    with tempfile.TemporaryDirectory(prefix="mlportal-routes-") as folder:
        portal = Portal(home=Path(folder) / "home", env={"LOCALKUBE_IMAGE_CACHE": str(images)})
        portal.start()
        try:
            address = f"127.0.0.1:{(portal.home / 'localkube.port').read_text().strip()}"
            cluster = Client(portal.home / "localkube", address)
            server(cluster)
            text = page(*asyncio.run(measure(cluster, portal.port)))
        finally:
            portal.stop()
    print(text)
    write(text)


def server(cluster: Client) -> None:
    """The pod, and the service before it."""
    assert cluster.post("/api/v1/namespaces", {"metadata": {"name": "bench"}}).code == 201
    container = {
        "name": "main",
        "image": "mlportal/python:1",
        "command": ["python3", "-c", SERVER],
        "readinessProbe": {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1},
    }
    pod = {"metadata": {"name": "echo", "labels": {"app": "echo"}}, "spec": {"containers": [container]}}
    made = cluster.post("/api/v1/namespaces/bench/pods", pod)
    assert made.code == 201, made
    spec = {"selector": {"app": "echo"}, "ports": [{"port": 80, "targetPort": 8080}]}
    service = {"metadata": {"name": "echo"}, "spec": spec}
    assert cluster.post("/api/v1/namespaces/bench/services", service).code == 201


def ingress(cluster: Client, name: str) -> None:
    """A host that leads to the service."""
    backend = {"service": {"name": "echo", "port": {"number": 80}}}
    rule = {"host": f"{name}.{DOMAIN}", "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}
    path = "/apis/networking.k8s.io/v1/namespaces/bench/ingresses"
    assert cluster.post(path, {"metadata": {"name": name}, "spec": {"rules": [rule]}}).code == 201


async def ask(
    port: int, name: str, more: str = "Connection: close\r\n"
) -> tuple[int, asyncio.StreamReader, asyncio.StreamWriter]:
    """A request on a connection of its own, and the status of its answer; 0 when there is none."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET / HTTP/1.1\r\nHost: {name}.{DOMAIN}:{port}\r\n{more}\r\n".encode())
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return 0, reader, writer
    return int(head.split()[1]), reader, writer


async def until(port: int, name: str, wanted: int) -> float:
    """Seconds until the host answers with this status."""
    began = time.monotonic()
    while True:
        status, _, writer = await ask(port, name)
        writer.close()
        if status == wanted:
            return time.monotonic() - began
        assert time.monotonic() - began < 120, f"{name} answers {status}"
        await asyncio.sleep(0.005)


async def measure(cluster: Client, port: int) -> tuple[int, Counter[int], list[float]]:
    """Sockets that broke, answers by status (0: none), and the seconds until each new host answered."""
    await asyncio.to_thread(ingress, cluster, "lasting")
    await until(port, "lasting", 200)
    sockets = [await ask(port, "lasting", UPGRADE) for _ in range(SOCKETS)]
    assert {status for status, _, _ in sockets} == {101}
    answers: Counter[int] = Counter()
    ended = asyncio.Event()

    async def poll() -> None:
        while not ended.is_set():
            status, _, writer = await ask(port, "lasting")
            writer.close()
            answers[status] += 1
            await asyncio.sleep(POLL_S)

    polls = [asyncio.create_task(poll()) for _ in range(2)]
    taken = []
    for number in range(CHANGES):
        name = f"n{number}"
        await asyncio.to_thread(ingress, cluster, name)
        taken.append(await until(port, name, 200))
        await asyncio.to_thread(cluster.delete, f"/apis/networking.k8s.io/v1/namespaces/bench/ingresses/{name}")
        await until(port, name, 404)
    ended.set()
    await asyncio.gather(*polls)
    broken = 0
    for _, reader, writer in sockets:
        try:
            writer.write(b"still here")
            async with asyncio.timeout(10):
                broken += await reader.readexactly(10) != b"still here"
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            broken += 1
        writer.close()
    return broken, answers, sorted(taken)


def page(broken: int, answers: Counter[int], taken: list[float]) -> str:
    """The section."""
    return (
        "## Hosts that come and go\n\n"
        "Through the portal's Caddy while hosts of its own cluster come and go. One command: "
        "`make bench ARGS=routes`.\n\n"
        f"{CHANGES} hosts came and went: {broken} of {SOCKETS} open web sockets broke, {answers[0]} of "
        f"{answers.total():,} new requests got no answer, {answers.total() - answers[200] - answers[0]} another one "
        f"than 200. From a new Ingress object to its host's first answer: {1000 * statistics.median(taken):.0f} "
        f"({1000 * taken[0]:.0f} to {1000 * taken[-1]:.0f}) ms. Load average at the end {os.getloadavg()[0]:.1f}, "
        f"{os.cpu_count()} cores.\n"
    )
