"""A cluster with simulated nodes, a whole portal that was filled, and a counting proxy between the two."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from base64 import b64encode
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import psycopg
import yaml
from aiohttp import web

from kubekit import client
from kubekit.credentials import Credentials, parse_kubeconfig
from kubekit.kinds import kind_named
from mlportal.paths import Home
from tests.faults.proxy import Fault, FaultProxy, Seen
from tests.journeys.portal import ROOT, Portal, wait_until

NODES = 2_000
QUEUES = 200
INSTANCES = 1_000
PODS = 5_000
#: Simulated nodes keep pods without a toleration away; these do not.
OPEN_NODES = 200
IN_FLIGHT = 32
PATIENCE_S = 600.0
OTHERS = "scale-others"
TICKS = os.sysconf("SC_CLK_TCK")
Obj = dict[str, Any]


class CountingProxy(FaultProxy):
    """Also knows which watches are open at this moment, and keeps few of their events."""

    def __init__(self, upstream: Credentials, folder: Path) -> None:
        super().__init__(upstream, folder)
        self.open: Counter[str] = Counter()
        self.events = deque(maxlen=10)  # type: ignore[assignment]

    async def _stream(
        self, request: web.Request, seen: Seen, upstream: aiohttp.ClientResponse, fault: Fault | None
    ) -> web.StreamResponse:
        self.open[seen.path] += 1
        try:
            return await super()._stream(request, seen, upstream, fault)
        finally:
            self.open[seen.path] -= 1

    def watched(self) -> dict[str, int]:
        """How many watches are open, by path."""
        return {path: count for path, count in self.open.items() if count}


class Place:
    """``fill`` it once; then look at it from behind."""

    def __init__(self, kubeconfig: str, folder: Path) -> None:
        self._upstream = parse_kubeconfig(kubeconfig)
        self._folder = folder
        self.direct = client.Cluster(self._upstream)
        self.proxy = CountingProxy(self._upstream, folder)
        self.proxy.start()
        (folder / "kubeconfig").write_text(kubeconfig, encoding="utf-8")
        (folder / "proxied").write_text(_kubeconfig(self.proxy.credentials), encoding="utf-8")
        self.portal = Portal(home=folder / "home", env={"PORTAL_CLUSTER": str(folder / "kubeconfig")})

    def close(self) -> None:
        """End the portal; what it made in the cluster stays, since the cluster is the test's own."""
        self.proxy.calm()
        if self.portal.process is not None and self.portal.process.poll() is None:
            self.portal.stop()
        self.proxy.stop()
        self.direct.close()

    # -- filling -----------------------------------------------------------------------------------------------

    def require_nodes(self, said: int) -> None:
        """Fail unless the cluster is as large as promised."""
        found = sum(1 for _ in self.direct.list("Node"))
        assert said >= NODES, f"these tests need {NODES} nodes, MLPORTAL_TEST_NODES says {said}"
        assert found >= said, f"the cluster of KUBECONFIG has {found} nodes, MLPORTAL_TEST_NODES says {said}"

    def fill(self, say: Callable[[str], None]) -> None:
        """Everything that is counted; the pods of others by themselves, all else by the portal's own code."""
        begun = time.monotonic()
        names = [node["metadata"]["name"] for node in self.direct.list("Node")]
        with ThreadPoolExecutor(1) as beside:
            others = beside.submit(asyncio.run, self._prepare(names))
            self.portal.start()
            say(f"portal started after {time.monotonic() - begun:.0f} s")
            others.result()
        say(f"{PODS - INSTANCES} pods of others made after {time.monotonic() - begun:.0f} s")
        for line in self._beside("fill", str(QUEUES), str(INSTANCES)):
            say(f"{line}; all in all {time.monotonic() - begun:.0f} s")

    def count_requests(self) -> None:
        """From now on the portal reaches its cluster through the proxy, which costs time and so is not there before."""
        for line in self._beside("reach", str(self._folder / "proxied")):
            raise AssertionError(line)

    def _beside(self, *words: str) -> Iterator[str]:
        """What a process says that acts beside the portal's own."""
        environ = self.portal.environ() | {"DJANGO_SETTINGS_MODULE": "mlportal.settings"}
        argv = [sys.executable, "-m", "tests.scale.filling", *words]
        with (
            (self._folder / "filling.log").open("w+b") as log,
            subprocess.Popen(argv, cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=log, text=True) as process,
        ):
            assert process.stdout is not None
            yield from (line.strip() for line in process.stdout)
            log.seek(0)
            assert process.wait() == 0, log.read()[-4000:].decode()

    async def _prepare(self, nodes: list[str]) -> None:
        """Nodes that take pods, volumes for the homes, and the pods of others."""
        kept = [{"key": "kwok.x-k8s.io/node", "operator": "Exists"}]
        container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}
        writes: list[tuple[str, str, Obj]] = [
            ("PATCH", kind_named("Node").path(None, name), {"spec": {"taints": None}}) for name in nodes[:OPEN_NODES]
        ]
        writes += [("POST", kind_named("PersistentVolume").path(None), _volume()) for _ in range(QUEUES)]
        pods = kind_named("Pod").path(OTHERS)
        writes += [
            (
                "POST",
                pods,
                {
                    "metadata": {"name": f"other-{number:04}"},
                    "spec": {"nodeName": nodes[number % len(nodes)], "tolerations": kept, "containers": [container]},
                },
            )
            for number in range(PODS - INSTANCES)
        ]
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._upstream.ssl_context(), limit=IN_FLIGHT),
            headers=self._upstream.headers(),
        ) as session:
            await self._write(session, "POST", kind_named("Namespace").path(None), {"metadata": {"name": OTHERS}})
            account = f"{kind_named('ServiceAccount').path(OTHERS)}/default"
            for _ in range(int(PATIENCE_S * 10)):
                async with session.get(self._upstream.server + account) as answer:
                    if answer.status == 200:
                        break
                await asyncio.sleep(0.1)
            waiting = iter(writes)

            async def work() -> None:
                for method, path, body in waiting:
                    await self._write(session, method, path, body)

            await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))

    async def _write(self, session: aiohttp.ClientSession, method: str, path: str, body: Obj) -> None:
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        async with session.request(
            method, self._upstream.server + path, json=body, headers={"Content-Type": kind}
        ) as answer:
            assert answer.status in (200, 201, 409), (method, path, answer.status, await answer.text())

    # -- looking -----------------------------------------------------------------------------------------------

    def rows(self, statement: str, *params: Any) -> list[tuple[Any, ...]]:
        """A read of the portal's database."""
        home = Home(root=self.portal.home)
        with psycopg.connect(host=str(home.run), user="mlportal", dbname="mlportal", autocommit=True) as link:
            return link.execute(statement, params).fetchall()

    def until(self, what: str, statement: str, wanted: Any, *params: Any, every: float = 0.2) -> float:
        """Seconds until the statement's first value is the wanted one (at least, where it is a number)."""
        begun = time.monotonic()
        home = Home(root=self.portal.home)
        with psycopg.connect(host=str(home.run), user="mlportal", dbname="mlportal", autocommit=True) as link:

            def there() -> bool:
                found = link.execute(statement, params).fetchone()  # type: ignore[arg-type]
                value = found[0] if found else None
                return bool(value is not None and value >= wanted) if isinstance(wanted, int) else value == wanted

            wait_until(what, there, seconds=PATIENCE_S, every=every)
        return time.monotonic() - begun

    def pid(self, program: str) -> int:
        """The process of a program, as the supervisor has noted it."""
        noted = yaml.safe_load(Home(root=self.portal.home).processes_file.read_text(encoding="utf-8"))
        return next(int(entry["pid"]) for entry in noted if entry["name"] == program)

    @contextmanager
    def stopped(self, program: str) -> Iterator[int]:
        """The program stands still meanwhile, and is dead afterwards."""
        pid = self.pid(program)
        os.kill(pid, signal.SIGSTOP)
        try:
            yield pid
        finally:
            os.kill(pid, signal.SIGKILL)

    def another_pod(self) -> tuple[str, str]:
        """The pod of a running instance is taken away and made anew: the instance's id, and the new pod's UID."""
        pk, namespace, old = self.rows(
            "SELECT i.id, q.namespace, i.pod_uid FROM instances_instance i JOIN tenants_queue q ON q.id = i.queue_id "
            "WHERE i.state = 'running' AND i.pod_uid <> '' ORDER BY random() LIMIT 1"
        )[0]
        labels = {"mlportal.io/id": str(pk)}
        (pod,) = self.direct.list("Pod", namespace, labels=labels)
        assert pod["metadata"]["uid"] == old
        self.direct.delete("Pod", namespace, pod["metadata"]["name"], grace_s=0)

        def ready() -> str | None:
            for found in self.direct.list("Pod", namespace, labels=labels):
                conditions = {row["type"]: row["status"] for row in (found.get("status") or {}).get("conditions", ())}
                if found["metadata"]["uid"] != old and conditions.get("Ready") == "True":
                    return str(found["metadata"]["uid"])
            return None

        return str(pk), str(wait_until("pod that replaces it", ready, seconds=PATIENCE_S, every=0.1))


def cpu_s(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory_mib(pid: int) -> tuple[float, float]:
    """What it holds now and what it held at most."""
    text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    now, most = (re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE) for name in ("VmRSS", "VmHWM"))
    assert now is not None and most is not None
    return int(now[1]) / 1024, int(most[1]) / 1024


def _volume() -> Obj:
    """There is no storage here; the homes' claims are bound to these."""
    return {
        "metadata": {"generateName": "scale-"},
        "spec": {
            "capacity": {"storage": "100Gi"},
            "accessModes": ["ReadWriteOnce", "ReadWriteMany"],
            "hostPath": {"path": "/nowhere"},
        },
    }


def _kubeconfig(credentials: Credentials) -> str:
    authority = b64encode((credentials.ca_data or "").encode()).decode()
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "c", "cluster": {"server": credentials.server, "certificate-authority-data": authority}}
            ],
            "users": [{"name": "u", "user": {"token": credentials.token}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
    )
