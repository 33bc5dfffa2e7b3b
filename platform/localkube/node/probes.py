"""Readiness, liveness and startup probes of running containers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from typing import TYPE_CHECKING, Final

from localkube.node import execs
from localkube.node.podstatus import ContainerState
from localkube.status import Object

if TYPE_CHECKING:
    from localkube.node.worker import Worker

log = logging.getLogger(__name__)

_FIRST_READY_S: Final = 0.15
"""Until a container was ready once, its readiness is asked this often: people wait for exactly this."""
_BODY: Final = 200


class Probes:
    """The probe tasks of one pod."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._tasks: dict[str, list[asyncio.Task[None]]] = {}

    def start(self, container: ContainerState, spec: Object) -> None:
        """Begin the probes of a container that has just started."""
        if any(kind in spec for kind in ("startupProbe", "readinessProbe", "livenessProbe")):
            self._tasks[container.name] = [asyncio.create_task(self._all(container, spec))]

    async def stop(self, container: ContainerState | None = None) -> None:
        """End the probes of a container, or of all."""
        names = [container.name] if container else list(self._tasks)
        for name in names:
            for task in self._tasks.pop(name, []):
                if task is not asyncio.current_task():
                    task.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await task

    async def _all(self, container: ContainerState, spec: Object) -> None:
        startup = spec.get("startupProbe")
        if startup and not container.started:
            if not await self._until(container, startup, "Startup"):
                return
            container.started = True
            container.ready = "readinessProbe" not in spec
            self._worker.publish()
        loops = []
        if "readinessProbe" in spec:
            loops.append(self._readiness(container, spec["readinessProbe"]))
        if "livenessProbe" in spec:
            loops.append(self._until_dead(container, spec["livenessProbe"]))
        await asyncio.gather(*loops)

    async def _until(self, container: ContainerState, probe: Object, kind: str) -> bool:
        """Startup: until it succeeds (True) or has failed too often, when the container is restarted (False)."""
        failures = 0
        await asyncio.sleep(probe.get("initialDelaySeconds", 0))
        while True:
            problem = await self._ask(container, probe)
            if problem is None:
                return True
            failures += 1
            self._tell(container, kind, problem)
            if failures >= probe.get("failureThreshold", 3):
                await self._restart(container, kind.lower(), probe)
                return False
            await asyncio.sleep(probe.get("periodSeconds", 10))

    async def _readiness(self, container: ContainerState, probe: Object) -> None:
        period = float(probe.get("periodSeconds", 10))
        good = bad = 0
        was_ready = container.ready
        next_event = asyncio.get_running_loop().time() + period
        await asyncio.sleep(probe.get("initialDelaySeconds", 0))
        while True:
            problem = await self._ask(container, probe)
            good, bad = (good + 1, 0) if problem is None else (0, bad + 1)
            if problem is not None and asyncio.get_running_loop().time() >= next_event:
                self._tell(container, "Readiness", problem)
                next_event = asyncio.get_running_loop().time() + period
            ready = container.ready
            if good >= probe.get("successThreshold", 1):
                ready = was_ready = True
            elif bad >= probe.get("failureThreshold", 3):
                ready = False
            if ready != container.ready:
                container.ready = ready
                self._worker.publish()
            await asyncio.sleep(period if was_ready else min(period, _FIRST_READY_S))

    async def _until_dead(self, container: ContainerState, probe: Object) -> None:
        failures = 0
        await asyncio.sleep(probe.get("initialDelaySeconds", 0))
        while True:
            problem = await self._ask(container, probe)
            failures = 0 if problem is None else failures + 1
            if problem is not None:
                self._tell(container, "Liveness", problem)
            if failures >= probe.get("failureThreshold", 3):
                await self._restart(container, "liveness", probe)
                return
            await asyncio.sleep(probe.get("periodSeconds", 10))

    def _tell(self, container: ContainerState, kind: str, problem: str) -> None:
        self._worker.event("Unhealthy", f"{kind} probe failed: {problem}", warning=True, container=container.name)

    async def _restart(self, container: ContainerState, kind: str, probe: Object) -> None:
        text = f"Container {container.name} failed {kind} probe, will be restarted"
        self._worker.event("Killing", text, container=container.name)
        grace = probe.get("terminationGracePeriodSeconds")
        if grace is None:
            grace = self._worker.pod["spec"].get("terminationGracePeriodSeconds", 30)
        number = container.restarts
        await self._worker.signal(container, signal.SIGTERM)
        await asyncio.sleep(grace)
        if container.restarts == number:
            await self._worker.signal(container, signal.SIGKILL)

    async def _ask(self, container: ContainerState, probe: Object) -> str | None:
        """None when the probe succeeds, else what happened."""
        timeout_s = float(probe.get("timeoutSeconds", 1))
        try:
            async with asyncio.timeout(timeout_s):
                if "exec" in probe:
                    return await self._ask_exec(container, probe["exec"]["command"])
                if "tcpSocket" in probe:
                    port = self._port(container, probe["tcpSocket"]["port"])
                    (await self._dial(port)).close()
                    return None
                return await self._ask_http(container, probe["httpGet"])
        except TimeoutError:
            return "context deadline exceeded"
        except OSError as error:
            return str(error.strerror or error).lower()

    def _port(self, container: ContainerState, port: int | str) -> int:
        if isinstance(port, int):
            return port
        for entry in self._worker.spec_of(container.name).get("ports", []):
            if entry.get("name") == port:
                return int(entry["containerPort"])
        raise OSError(f"couldn't find port: {port}")

    async def _dial(self, port: int) -> asyncio.StreamWriter:
        if self._worker.agent is None:
            raise OSError("the pod has ended")
        sock = await self._worker.agent.dial(port)
        return (await asyncio.open_connection(sock=sock))[1]

    async def _ask_http(self, container: ContainerState, get: Object) -> str | None:
        port = self._port(container, get["port"])
        if self._worker.agent is None:
            raise OSError("the pod has ended")
        path = get.get("path") or "/"
        headers = {"Host": f"{self._worker.state.address}:{port}", "User-Agent": "kube-probe/1.36", "Accept": "*/*"}
        headers |= {entry["name"]: entry["value"] for entry in get.get("httpHeaders", [])}
        lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "Connection: close"]
        reader, writer = await asyncio.open_connection(sock=await self._worker.agent.dial(port))
        try:
            writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
            await writer.drain()
            first = (await reader.readline()).decode(errors="replace").split()
        finally:
            writer.close()
        if len(first) < 2 or not first[1].isdigit():
            return f'Get "http://{headers["Host"]}{path}": EOF'
        code = int(first[1])
        return None if 200 <= code < 400 else f"HTTP probe failed with statuscode: {code}"

    async def _ask_exec(self, container: ContainerState, command: list[str]) -> str | None:
        if self._worker.agent is None:
            raise OSError("the pod has ended")
        session = await execs.open_session(self._worker, container, command, tty=False, stdin=False)
        output = b""
        try:
            while (piece := await session.read()) is not None:
                output = (output + piece[1])[:_BODY]
        finally:
            await session.close()
        return None if session.exit_code == 0 else output.decode(errors="replace").strip() or "command failed"
