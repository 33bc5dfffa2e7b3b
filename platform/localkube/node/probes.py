"""Readiness of running containers, asked over HTTP as the kubelet asks it."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from localkube.node.podstatus import ContainerState
from localkube.status import Object

if TYPE_CHECKING:
    from localkube.node.worker import Worker

_FIRST_READY_S: Final = 0.15
"""Until a container was ready once, its readiness is asked this often: people wait for exactly this."""


class Probes:
    """The readiness probes of one pod's containers, a task each."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def start(self, container: ContainerState, spec: Object) -> None:
        """Begin the probe of a container that has just started, if it has one."""
        if probe := spec.get("readinessProbe"):
            self._tasks[container.name] = asyncio.create_task(self._run(container, spec, probe))

    async def stop(self, container: ContainerState | None = None) -> None:
        """End the probe of a container, or of all."""
        for name in [container.name] if container else list(self._tasks):
            if task := self._tasks.pop(name, None):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    async def _run(self, container: ContainerState, spec: Object, probe: Object) -> None:
        clock = asyncio.get_running_loop().time
        period = float(probe.get("periodSeconds", 10))
        good = bad = 0
        was_ready = container.ready
        next_event = clock() + period
        await asyncio.sleep(probe.get("initialDelaySeconds", 0))
        while True:
            problem = await self._ask(spec, probe)
            good, bad = (good + 1, 0) if problem is None else (0, bad + 1)
            if problem is not None and clock() >= next_event:
                text = f"Readiness probe failed: {problem}"
                self._worker.event("Unhealthy", text, warning=True, container=container.name)
                next_event = clock() + period
            ready = container.ready
            if good >= probe.get("successThreshold", 1):
                ready = was_ready = True
            elif bad >= probe.get("failureThreshold", 3):
                ready = False
            if ready != container.ready:
                container.ready = ready
                self._worker.publish()
            await asyncio.sleep(period if was_ready else min(period, _FIRST_READY_S))

    async def _ask(self, spec: Object, probe: Object) -> str | None:
        """None when the probe succeeds, else what happened."""
        try:
            async with asyncio.timeout(float(probe.get("timeoutSeconds", 1))):
                return await self._get(_port(spec, probe["httpGet"]["port"]), probe["httpGet"].get("path") or "/")
        except TimeoutError:
            return "context deadline exceeded"
        except OSError as error:
            return str(error.strerror or error).lower()

    async def _get(self, port: int, path: str) -> str | None:
        if self._worker.agent is None:
            raise OSError("the pod has ended")
        host = f"{self._worker.state.address}:{port}"
        head = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: kube-probe/1.36\r\nAccept: */*\r\n"
        reader, writer = await asyncio.open_connection(sock=await self._worker.agent.dial(port))
        try:
            writer.write(f"{head}Connection: close\r\n\r\n".encode())
            await writer.drain()
            first = (await reader.readline()).decode(errors="replace").split()
        finally:
            writer.close()
        if len(first) < 2 or not first[1].isdigit():
            return f'Get "http://{host}{path}": EOF'
        return None if 200 <= int(first[1]) < 400 else f"HTTP probe failed with statuscode: {first[1]}"


def _port(spec: Object, port: int | str) -> int:
    if isinstance(port, int):
        return port
    for entry in spec.get("ports", []):
        if entry.get("name") == port:
            return int(entry["containerPort"])
    raise OSError(f"couldn't find port: {port}")
