"""A node without processes: pods run at once, end when told to, and their streams are scripted."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, datetime

from localkube.config import Config
from localkube.runtime import STDERR, STDOUT
from localkube.status import ApiError, Object, bad_request
from localkube.store import Store, now

HOLD = "fake/hold"
"""Annotation: the pod stays Pending on its node."""


def node_object(name: str, *, cpu: str = "4", memory: str = "8Gi", pods: str = "110", **more: str) -> Object:
    amounts = {"cpu": cpu, "memory": memory, "pods": pods} | more
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": now()}],
        },
    }


class FakeSession:
    """`echo ARGS` writes ARGS; `cat` gives back its input; `exit N` ends with N; `size` answers with the terminal's."""

    def __init__(self, command: list[str]) -> None:
        self.exit_code: int | None = None
        self.closed = False
        self._out: asyncio.Queue[tuple[int, bytes] | None] = asyncio.Queue()
        self._command = command
        if command[0] == "echo":
            self._out.put_nowait((STDOUT, " ".join(command[1:]).encode()))
            self._out.put_nowait((STDERR, b"said"))
            self._end(0)
        elif command[0] == "exit":
            self._end(int(command[1]))

    def _end(self, code: int) -> None:
        self.exit_code = code
        self._out.put_nowait(None)

    async def read(self) -> tuple[int, bytes] | None:
        return await self._out.get()

    async def write(self, data: bytes) -> None:
        if data:
            self._out.put_nowait((STDOUT, data))
        else:
            self._end(0)

    async def resize(self, width: int, height: int) -> None:
        self._out.put_nowait((STDOUT, f"{width}x{height}".encode()))

    async def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._end(137 if self.exit_code is None else self.exit_code)


class FakeNode:
    """See localkube.runtime.NodeRuntime."""

    def __init__(self) -> None:
        self.sessions: list[FakeSession] = []
        self.stopped_logs = 0

    async def start(self, store: Store, config: Config) -> None:
        self.store = store
        self.name = config.node_name
        with contextlib.suppress(ApiError):
            store.create("nodes", node_object(self.name, **{"nvidia.com/gpu": "2"}))
        self._stop = store.subscribe("pods", self._on_pod)

    async def stop(self) -> None:
        self._stop()

    def _on_pod(self, event: str, pod: Object) -> None:
        metadata = pod["metadata"]
        if event == "DELETED" or pod["spec"].get("nodeName") != self.name:
            return
        if metadata.get("deletionTimestamp"):
            if metadata["deletionGracePeriodSeconds"] > 0:
                self.store.delete("pods", metadata["namespace"], metadata["name"], grace_period_s=0)
        elif pod["status"]["phase"] == "Pending" and HOLD not in (metadata.get("annotations") or {}):
            self.run(metadata["namespace"], metadata["name"])

    def run(self, namespace: str, name: str) -> None:
        pod = self.store.get("pods", namespace, name)
        pod["status"] |= {"phase": "Running", "podIP": "127.200.0.1", "startTime": now()}
        pod["status"]["conditions"] = [
            *(c for c in pod["status"].get("conditions", []) if c["type"] != "Ready"),
            {"type": "Ready", "status": "True", "lastTransitionTime": now()},
        ]
        pod["status"]["containerStatuses"] = [
            {
                "name": container["name"],
                "image": container["image"],
                "ready": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": now()}},
            }
            for container in pod["spec"]["containers"]
        ]
        self.store.update("pods", pod, subresource="status")

    def end(self, namespace: str, name: str, exit_code: int) -> None:
        pod = self.store.get("pods", namespace, name)
        pod["status"]["phase"] = "Failed" if exit_code else "Succeeded"
        pod["status"]["conditions"] = []
        for status in pod["status"]["containerStatuses"]:
            ended = {"exitCode": exit_code, "reason": "Error" if exit_code else "Completed", "finishedAt": now()}
            status |= {"ready": False, "state": {"terminated": ended}}
        self.store.update("pods", pod, subresource="status")

    async def logs(self, pod, container, options):
        if options.previous:
            raise bad_request(
                f'previous terminated container "{container}" in pod "{pod["metadata"]["name"]}" not found'
            )
        stamp = datetime(2026, 1, 1, tzinfo=UTC).isoformat() + " " if options.timestamps else ""
        lines = [f"{stamp}line {number}\n".encode() for number in range(3)]
        for line in lines[-options.tail_lines if options.tail_lines is not None else 0 :]:
            yield line
        try:
            if options.follow:
                await asyncio.Event().wait()
        finally:
            self.stopped_logs += 1

    async def exec(self, pod, container, command, *, tty, stdin):
        session = FakeSession(command)
        self.sessions.append(session)
        return session

    async def dial(self, pod, port):
        if port != 7777:
            raise ConnectionRefusedError(111, "Connection refused")
        reader = asyncio.StreamReader()
        return reader, EchoWriter(reader)

    def check_pod(self, pod: Object) -> tuple[list[str], list[str]]:
        spec = pod["spec"]
        warnings = ["spec.hostAliases: stored, but localkube does not act on it"] if spec.get("hostAliases") else []
        return warnings, ["spec.hostNetwork"] if spec.get("hostNetwork") else []


class EchoWriter:
    """A connection that says back what it hears."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    def write(self, data: bytes) -> None:
        self._reader.feed_data(data)

    async def drain(self) -> None:
        await asyncio.sleep(0)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self._reader.feed_eof()

    def close(self) -> None:
        return None
