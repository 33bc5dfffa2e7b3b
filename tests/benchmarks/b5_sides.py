"""The three sides of B5: each makes new launches, stops them, starts them again and takes them away."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Callable, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Protocol
from uuid import UUID, uuid5

import aiohttp

from kubekit.build import instance as build
from kubekit.kinds import kind_named
from kubekit.specs import HOME_PATH, Identity, InstanceSpec, Mount, Resources
from tests.benchmarks.b12_footprint import TICKS, kind
from tests.benchmarks.kube import Kube
from tests.journeys.portal import Portal, free_port

HERE = Path(__file__).resolve().parent
LOOK_EVERY_S = 0.25
PATIENCE_S = 180.0
ANYWHERE = UUID(int=5)


class Side(Protocol):
    """What the benchmark asks of a side. Each answers when the launch is ready, stopped or gone, as its client sees."""

    async def new(self, name: str) -> None: ...
    async def stop(self, name: str) -> None: ...
    async def start(self, name: str) -> None: ...
    async def gone(self, name: str) -> None: ...
    def cpu(self) -> dict[str, float]:
        """Seconds so far, by part."""
        ...


def seconds_of(pids: Iterable[int]) -> float:
    """User and system time of these processes."""
    total = 0
    for pid in pids:
        with suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += sum(int(one) for one in fields[11:13])
    return total / TICKS


def family(root: int) -> list[int]:
    """A process and all that descend from it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


class Board:
    """One reader for all launches under way: who waits is told when the list has the name in the state."""

    def __init__(self, read: Callable[[set[str]], Any]) -> None:
        self._read = read
        self._waiting: dict[str, tuple[str, asyncio.Future[None]]] = {}
        self._task = asyncio.create_task(self._keep_reading())

    async def wait(self, name: str, state: str) -> None:
        """Until the name is in the state; ``gone`` is to be in none."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[name] = state, future
        await asyncio.wait_for(future, PATIENCE_S)

    async def _keep_reading(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            if not self._waiting:
                continue
            asked = set(self._waiting)
            found: dict[str, str] = await self._read({self._waiting[name][0] for name in asked})
            for name in asked:
                state, future = self._waiting[name]
                if found.get(name, "gone") == state and not future.done():
                    del self._waiting[name]
                    future.set_result(None)

    def close(self) -> None:
        """Read no more."""
        self._task.cancel()


class Ours:
    """The portal over REST, as a script uses it."""

    def __init__(self, portal: Portal, queue: str) -> None:
        self._portal, self._queue = portal, queue
        self._ids: dict[str, str] = {}

    @asynccontextmanager
    async def open(self) -> Any:
        """With one session, whose connections are kept."""
        headers = {"Authorization": f"Bearer {self._portal.token()}"}
        async with aiohttp.ClientSession(
            f"{self._portal.url}/api/v1/", headers=headers, connector=aiohttp.TCPConnector(limit=64)
        ) as self._session:
            self._board = Board(self._states)
            yield self
            self._board.close()

    async def new(self, name: str) -> None:
        body = {"name": name, "image": "jupyter", "size": "small", "queue": self._queue}
        self._ids[name] = (await self._send("POST", "instances", body))["id"]
        await self._board.wait(name, "running")

    async def stop(self, name: str) -> None:
        await self._send("POST", f"instances/{self._ids[name]}/stop")
        await self._board.wait(name, "stopped")

    async def start(self, name: str) -> None:
        await self._send("POST", f"instances/{self._ids[name]}/start")
        await self._board.wait(name, "running")

    async def gone(self, name: str) -> None:
        await self._send("DELETE", f"instances/{self._ids[name]}")
        await self._board.wait(name, "gone")

    def cpu(self) -> dict[str, float]:
        found: dict[str, float] = {}
        assert self._portal.process is not None
        for pid in family(self._portal.process.pid):
            with suppress(OSError):
                part = kind(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
                found[part] = found.get(part, 0.0) + seconds_of([pid])
        return found

    async def _send(self, method: str, path: str, body: Any = None) -> Any:
        async with self._session.request(method, path, json=body) as answer:
            if answer.status >= 300:
                raise RuntimeError(f"{method} {path}: {answer.status} {await answer.text()}")
            return await answer.json()

    async def _states(self, wanted: set[str]) -> dict[str, str]:
        """The instances in these states, or all that there are for who waits that one is gone."""
        found: dict[str, str] = {}
        states, cursor = "" if "gone" in wanted else f"&state={','.join(wanted)}", ""
        while True:
            page = await self._send("GET", f"instances?queue={self._queue}&limit=200{states}{cursor}")
            found |= {row["name"]: row["state"] for row in page["items"]}
            if not page["next"]:
                return found
            cursor = f"&cursor={page['next']}"


class Bare:
    """The same writes by a client that does nothing else, and one watch."""

    def __init__(self, kube: Kube, namespace: str) -> None:
        self._kube, self._namespace = kube, namespace
        self._ready: set[str] = set()
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def open(self) -> Any:
        """With its watch."""
        task = asyncio.create_task(self._keep_watching())
        yield self
        task.cancel()

    async def new(self, name: str) -> None:
        spec = self._spec(name)
        for obj in (build.secret(spec, {"key": secrets.token_urlsafe(32)}), build.service(spec), build.ingress(spec)):
            await self._kube.apply(obj)
        await self._kube.apply(build.stateful_set(spec, replicas=1))
        await self._until(spec, there=True)

    async def stop(self, name: str) -> None:
        spec = self._spec(name)
        await self._kube.delete("Ingress", spec.namespace, spec.object_name)
        await self._kube.scale(spec.namespace, spec.object_name, 0)
        await self._until(spec, there=False)

    async def start(self, name: str) -> None:
        spec = self._spec(name)
        for obj in (build.secret(spec, {"key": secrets.token_urlsafe(32)}), build.ingress(spec)):
            await self._kube.apply(obj)
        await self._kube.apply(build.stateful_set(spec, replicas=1))
        await self._until(spec, there=True)

    async def gone(self, name: str) -> None:
        spec = self._spec(name)
        for one in ("Ingress", "StatefulSet", "Service", "Secret"):
            await self._kube.delete(one, spec.namespace, spec.object_name)
        await self._until(spec, there=False)

    def cpu(self) -> dict[str, float]:
        return {"bare client": time.process_time()}

    def _spec(self, name: str) -> InstanceSpec:
        pk = uuid5(ANYWHERE, name)
        return InstanceSpec(
            identity=Identity(install="bench", kind="instance", id=str(pk), generation=1, name=name),
            namespace=self._namespace,
            image="mlportal/jupyter:1",
            resources=Resources(cpu_millis=500, memory_bytes=1 << 30),
            host=f"i-{pk.hex}.apps.localhost",
            public_host=f"i-{pk.hex}.apps.localhost",
            portal_origin="http://127.0.0.1:8000",
            mounts=(Mount(claim="home", path=HOME_PATH),),
            grace_s=10,
        )

    async def _until(self, spec: InstanceSpec, *, there: bool) -> None:
        async with asyncio.timeout(PATIENCE_S), self._changed:
            await self._changed.wait_for(lambda: (f"{spec.object_name}-0" in self._ready) == there)

    async def _keep_watching(self) -> None:
        async for change, pod in self._kube.watch("Pod", self._namespace):
            rows = (pod.get("status") or {}).get("conditions") or ()
            ready = any(row["type"] == "Ready" and row["status"] == "True" for row in rows)
            name = pod["metadata"]["name"]
            async with self._changed:
                if change == "DELETED":
                    self._ready.discard(name)
                elif ready:
                    self._ready.add(name)
                self._changed.notify_all()


class Hub:
    """JupyterHub over its REST interface; a start of a stopped server is a spawn, as a new one is."""

    def __init__(self, python: Path, *, database: str, namespace: str, kubeconfig: Path, folder: Path) -> None:
        self._python, self._folder = python, folder
        self._token, self._port = secrets.token_hex(16), free_port()
        self._environ = {
            **os.environ,
            "KUBECONFIG": str(kubeconfig),
            "BENCH_TOKEN": self._token,
            "BENCH_PORT": str(self._port),
            "BENCH_DATABASE": database,
            "BENCH_NAMESPACE": namespace,
        }

    @asynccontextmanager
    async def open(self) -> Any:
        """The hub's process, and a session."""
        argv = [str(self._python), "-m", "jupyterhub", "-f", str(HERE / "sides" / "hub_config.py")]
        self._folder.mkdir(exist_ok=True)
        with (self._folder / "hub.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *argv, env=self._environ, cwd=self._folder, stdout=log, stderr=log
            )
        self._pid = process.pid
        headers = {"Authorization": f"token {self._token}"}
        try:
            async with aiohttp.ClientSession(
                f"http://127.0.0.1:{self._port + 1}/hub/api/", headers=headers, connector=aiohttp.TCPConnector(limit=64)
            ) as self._session:
                await self._answers()
                yield self
        finally:
            process.terminate()
            await process.wait()

    async def prepare(self, names: list[str]) -> None:
        """The users, whose making is not measured."""
        await self._send("POST", "users", {"usernames": names})

    async def new(self, name: str) -> None:
        await self._send("POST", f"users/{name}/server")
        await self._until(name, ready=True)

    async def stop(self, name: str) -> None:
        await self._send("DELETE", f"users/{name}/server")
        await self._until(name, ready=False)

    start, gone = new, stop

    def cpu(self) -> dict[str, float]:
        return {"hub": seconds_of([self._pid])}

    async def _answers(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                with suppress(aiohttp.ClientError, RuntimeError):
                    await self._send("GET", "users")
                    return
                await asyncio.sleep(0.2)

    async def _until(self, name: str, *, ready: bool) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                server = (await self._send("GET", f"users/{name}"))["servers"].get("")
                if (server is not None and server["ready"]) if ready else server is None:
                    return
                await asyncio.sleep(LOOK_EVERY_S)

    async def _send(self, method: str, path: str, body: Any = None) -> Any:
        async with self._session.request(method, path, json=body) as answer:
            if answer.status >= 300:
                raise RuntimeError(f"{method} {path}: {answer.status} {await answer.text()}")
            return await answer.json() if answer.content_type == "application/json" and answer.status != 202 else None


def home_volume(number: int) -> dict[str, Any]:
    """Storage for one home, on a cluster that makes none."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"bench-{number}"},
        "spec": {
            "capacity": {"storage": "1Ti"},
            "accessModes": ["ReadWriteOnce", "ReadWriteMany"],
            "hostPath": {"path": f"/tmp/bench-{number}"},
            "persistentVolumeReclaimPolicy": "Retain",
        },
    }


async def claim_home(kube: Kube, namespace: str) -> None:
    """The bare client's home, once."""
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "home", "namespace": namespace},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    await kube.send("POST", kind_named("PersistentVolumeClaim").path(namespace), claim)
