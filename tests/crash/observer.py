"""What the cluster really did, told by its own watch: every pod that was ever made, by the row it was made for."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from kubekit import names
from kubekit.client import Cluster
from kubekit.credentials import parse_kubeconfig
from kubekit.listwatch import ListWatch
from kubekit.observe import parse_time
from kubekit.streams import Streams
from tests.journeys.portal import wait_until

KINDS = ("Pod", "StatefulSet", "Service", "Ingress", "Secret")
OURS = {"app.kubernetes.io/part-of": "mlportal"}
Raw = dict[str, Any]


def id_of(raw: Raw) -> str:
    """The row that an object was made for."""
    found: str = raw["metadata"]["labels"].get(names.ID, "")
    return found


class Observer:
    """A list-watch of pods in a thread of its own, and plain lists of what is there now."""

    def __init__(self, kubeconfig: Path) -> None:
        self.credentials = parse_kubeconfig(kubeconfig.read_text())
        self._uids: dict[tuple[str, str], set[str]] = defaultdict(set)
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready = threading.Event()
        self._cluster = Cluster(self.credentials)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._watch()), name="observer", daemon=True)

    def start(self) -> None:
        """Watch from now on."""
        self._thread.start()
        assert self._ready.wait(30), "the cluster's pods could not be listed"

    def stop(self) -> None:
        """End the watch."""
        assert self._loop is not None and self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)
        self._cluster.close()

    async def _watch(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()

        def listed(raws: list[Raw]) -> None:
            for raw in raws:
                self._keep(raw)
            self._ready.set()

        async with Streams(self.credentials) as streams:
            watch = ListWatch(
                streams, "Pod", on_sync=listed, on_event=lambda _change, raw: self._keep(raw), longest_delay_s=1.0
            )
            running = asyncio.create_task(watch.run())
            await self._stop.wait()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    def _keep(self, raw: Raw) -> None:
        labels = raw["metadata"].get("labels") or {}
        if labels.get(names.KIND) == "attempt":
            self._uids[labels[names.ID], labels[names.ATTEMPT]].add(raw["metadata"]["uid"])
        elif labels.get(names.KIND) == "instance":
            self._uids[labels[names.ID], labels[names.GENERATION]].add(raw["metadata"]["uid"])

    def pods_made(self, row_id: str) -> list[int]:
        """For each attempt or launch of the row that had pods at all: how many."""
        return [len(uids) for (pk, _number), uids in sorted(self._uids.items()) if pk == row_id]

    def delete_ended_pod(self, row_id: str) -> None:
        """As the cluster's collector of ended pods, or a person, does it: at once, while its owner is away.

        Not within the second of its end: the cluster's times cannot tell which of the two came first then.
        """
        found = [raw for raw in self._cluster.list("Pod", labels=OURS) if id_of(raw) == row_id]
        if not found:
            return  # on a slow machine a lease ends in the middle, and the next holder has let it go already
        (raw,) = found
        (status,) = raw["status"]["containerStatuses"]
        ended = parse_time(status["state"]["terminated"]["finishedAt"])
        assert ended is not None
        wait_until("later second", lambda: datetime.now(UTC) >= ended + timedelta(seconds=2), seconds=30)
        metadata = raw["metadata"]
        self._cluster.delete("Pod", metadata["namespace"], metadata["name"], uid=metadata["uid"], grace_s=0)

    def objects(self) -> list[Raw]:
        """Everything that the portal made for instances and attempts and that is there now."""
        found = [raw for kind in KINDS for raw in self._cluster.list(kind, labels=OURS)]
        return [raw for raw in found if raw["metadata"]["labels"].get(names.KIND) in ("instance", "attempt")]

    def quota_used(self) -> list[str]:
        """What the cluster's own quota still counts for pods."""
        quotas = list(self._cluster.list("ResourceQuota", labels=OURS))
        assert quotas, "the queue has a quota in the cluster"
        used = [(quota["status"].get("used") or {}).get("requests.cpu", "0") for quota in quotas]
        return [f"quota counts {text} CPU" for text in used if text not in ("0", "0m")]

    def make_orphan(self) -> None:
        """A task pod as a worker makes it that comes too late: with our labels and finalizer, and no row behind it."""
        (quota,) = self._cluster.list("ResourceQuota", labels=OURS)
        labels = {**OURS, names.INSTALL: quota["metadata"]["labels"][names.INSTALL]}
        labels |= {names.KIND: "attempt", names.ID: str(uuid.uuid4()), names.ATTEMPT: "1"}
        room = {"cpu": "100m", "memory": "64Mi"}
        container = {
            "name": "main",
            "image": "mlportal/python:1",
            "command": ["sleep", "600"],
            "resources": {"requests": room, "limits": room},
        }
        metadata = {"name": "orphan", "namespace": quota["metadata"]["namespace"], "labels": labels}
        self._cluster.create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {**metadata, "finalizers": [names.RESULT_FINALIZER]},
                "spec": {"restartPolicy": "Never", "containers": [container]},
            }
        )
