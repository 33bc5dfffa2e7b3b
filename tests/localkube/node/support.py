"""A node without an API server, and what tests ask of it. Imports no pytest: one test runs it with a bare Python."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from localkube.config import Config
from localkube.node.context import Timing
from localkube.node.kubelet import Kubelet
from localkube.runtime import LogOptions
from localkube.store import Store

FAST = Timing(backoff_s=0.3, longest_backoff_s=5.0, mount_retry_s=0.2, orphan_after_s=30.0)
_names = itertools.count()


class Node:
    """A running kubelet and what tests ask of it."""

    def __init__(self, home: Path, table: Path, timing: Timing = FAST) -> None:
        self.home, self._table, self._timing = home, table, timing
        self.store = Store(home / "store.db")
        self.kubelet = Kubelet(timing)

    async def start(self) -> None:
        for name in ("default", "other"):
            if self.store.peek("namespaces", None, name) is None:
                self.store.create("namespaces", {"metadata": {"name": name}})
        await self.kubelet.start(self.store, Config(home=self.home, images=self._table, cpu=2, memory=4 * 2**30))

    async def stop(self) -> None:
        await self.kubelet.stop()
        self.store.close()

    def create(self, script: str = "", *, namespace: str = "default", labels: Any = None, **changes: Any) -> Any:
        """A pod with one container `main` that runs a Python script; `spec` and other keys go into the container."""
        spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 2, **changes.pop("spec", {})}
        container = {"name": "main", "image": "test/python:1", "command": ["python3", "-u", "-c", script], **changes}
        spec = {"nodeName": "localkube", "containers": [container], **spec}
        metadata = {"name": f"pod-{next(_names)}", "namespace": namespace, "labels": labels or {}}
        return self.store.create("pods", {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}})

    def now(self, pod: Any) -> Any:
        """The pod as stored; None when it is gone."""
        return self.store.peek("pods", pod["metadata"]["namespace"], pod["metadata"]["name"])

    async def until(self, pod: Any, test: Callable[[Any], Any], timeout_s: float = 90.0) -> Any:
        """The stored pod once `test` holds."""
        deadline = time.monotonic() + timeout_s
        while not test(self.now(pod)):
            assert time.monotonic() < deadline, f"never: {self.now(pod)} {self.events(pod)}"
            await asyncio.sleep(0.01)
        return self.now(pod)

    async def finished(self, pod: Any, timeout_s: float = 90.0) -> Any:
        return await self.until(pod, lambda p: p["status"].get("phase") in ("Succeeded", "Failed"), timeout_s)

    async def running(self, pod: Any) -> Any:
        """Once its container has started (it may have ended since)."""
        return await self.until(pod, lambda p: main_state(p).keys() & {"running", "terminated"})

    async def log(self, pod: Any, **options: Any) -> str:
        pieces = self.kubelet.logs(pod, "main", LogOptions(**options))
        return b"".join([piece async for piece in pieces]).decode()

    async def output(self, script: str, **changes: Any) -> str:
        """What a script prints in a pod of its own."""
        pod = self.create(script, **changes)
        done = await self.finished(pod)
        text = await self.log(pod)
        assert done["status"]["phase"] == "Succeeded", text
        return text

    async def exec(self, pod: Any, *command: str, tty: bool = False, stdin: bytes | None = None) -> tuple[int, str]:
        session = await self.kubelet.exec(pod, "main", list(command), tty=tty, stdin=stdin is not None)
        if stdin is not None:
            await session.write(stdin)
            await session.write(b"")
        text = b""
        while (piece := await session.read()) is not None:
            text += piece[1]
        code = session.exit_code
        await session.close()
        assert code is not None
        return code, text.decode()

    def events(self, pod: Any) -> list[tuple[str, str]]:
        uid = pod["metadata"]["uid"]
        found = [e for e in self.store.iterate("events") if e["involvedObject"]["uid"] == uid]
        return [(event["reason"], event["message"]) for event in found]

    def claim(self, name: str, size: str = "16Mi") -> None:
        """A bound PersistentVolumeClaim and its volume."""
        spec = {"volumeName": f"pv-{name}", "resources": {"requests": {"storage": size}}}
        metadata = {"name": name, "namespace": "default"}
        self.store.create("persistentvolumes", {"metadata": {"name": f"pv-{name}"}, "spec": {}})
        self.store.create("persistentvolumeclaims", {"metadata": metadata, "spec": spec, "status": {"phase": "Bound"}})


def main_state(pod: Any) -> Any:
    """The state of container `main`."""
    entries = pod.get("status", {}).get("containerStatuses", [{"state": {}}])
    return entries[0]["state"]


def ready(pod: Any) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod.get("status", {}).get("conditions", []))


def leftovers(home: Path) -> list[str]:
    """Processes, mounts, loop devices, cgroups and sockets that belong to a node's home.

    The kernel lets go of a loop device a moment after it was asked to, when another process had it open meanwhile.
    """
    end = time.monotonic() + 20
    while any(text.startswith("loop device") for text in belonging_to(home)) and time.monotonic() < end:
        time.sleep(0.1)
    return belonging_to(home)


def belonging_to(home: Path) -> list[str]:
    """What belongs to that home at this moment."""
    found = [f"socket {path}" for path in home.rglob("*") if path.is_socket()]
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().split(b"\0")
        except OSError:
            continue
        own = int(entry.parent.name) in (os.getpid(), os.getppid()) or b"pytest" in b" ".join(words)
        if any(word.startswith(os.fsencode(home)) for word in words) and not own:
            found.append(f"process {words}")
    found += [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(home) in line]
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            text = backing.read_text()
        except OSError:
            continue
        if str(home) in text:
            found.append(f"loop device {text}")
    own = "localkube-" + hashlib.sha256(str(home).encode()).hexdigest()[:12]
    found += [f"control group {path}" for path in Path("/sys/fs/cgroup").glob(f"*/{own}")]
    found += [f"control group {path}" for path in Path("/sys/fs/cgroup").glob(own)]
    return found
