"""One asyncio task per cluster in the control process: list and watch, store capacity, call the apps' handlers.

Only the control process imports this module (aiohttp comes with it).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import OperationalError, close_old_connections, connections

from apps.clusters import access, capacity, checks, contact, watching
from apps.clusters.access import CredentialsUnusable
from apps.clusters.capacity import Capacity
from apps.clusters.installation import install_id
from apps.clusters.models import Cluster
from apps.clusters.states import ClusterState
from apps.core import control, wake
from kubekit import collector, names
from kubekit.credentials import Credentials
from kubekit.errors import KubeError, PermissionDenied, Unreachable
from kubekit.listwatch import ListWatch
from kubekit.observe import trimmed_pod
from kubekit.streams import Streams

log = logging.getLogger(__name__)

LOOK_AGAIN_S = 300.0
UNREACHABLE_AFTER_S = 10.0
CONTACT_NOTED_EVERY_S = 60.0
FLUSH_AFTER_S = 1.0
EVENT_WAITS_S = 20.0
"""How long an Event waits for the object that it is about; the two come over different watches."""
GATHER_S = 0.02
"""What comes within this long of the first is handed over with it: a burst is one batch."""
DATABASE_AWAY_S = (0.5, 1.0, 2.0, *(5.0 for _ in range(60)))
"""Pauses between tries to store what a cluster said; after five minutes the next list has to make it good."""
MOST_AT_ONCE = 1000
MOST_WAITING = 5000
"""The watches are read no further while so much of what they said has not been handled."""

Raw = dict[str, Any]


async def run(stop: asyncio.Event) -> None:
    """Keep one watcher per cluster that is not removed; look for new ones when woken."""
    running: dict[UUID, tuple[str, asyncio.Task[None]]] = {}
    try:
        while not stop.is_set():
            wanted = await control.in_thread(_clusters)
            for pk in [pk for pk, (mark, _task) in running.items() if wanted.get(pk, ("", None))[0] != mark]:
                await _cancel(running.pop(pk)[1])
            for pk, (mark, credentials) in wanted.items():
                if pk not in running or running[pk][1].done():
                    task = asyncio.create_task(_keep_watching(pk, credentials), name=f"cluster {pk}")
                    running[pk] = (mark, task)
            await wake.alarms.wait(wake.CLUSTERS, stop, LOOK_AGAIN_S)
    finally:
        for _mark, task in running.values():
            await _cancel(task)


def _clusters() -> dict[UUID, tuple[str, Credentials]]:
    install_id()
    found: dict[UUID, tuple[str, Credentials]] = {}
    for row in Cluster.objects.as_system().exclude(state=ClusterState.REMOVED):
        try:
            credentials = access.credentials_of(row)
        except CredentialsUnusable as error:
            contact.note_unreadable(row.pk, error.message)
            continue
        except Unreachable as error:  # its name leads to an internal address, or nowhere
            contact.note_failure(row.pk, error)
            continue
        found[row.pk] = (access.mark(credentials), credentials)
    return found


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _keep_watching(cluster_pk: UUID, credentials: Credentials) -> None:
    """A fault of ours in one cluster's watcher must neither end it for good nor touch the other clusters."""
    while True:
        try:
            async with Watcher(cluster_pk, credentials) as watcher:
                await watcher.run()
        except asyncio.CancelledError:
            raise
        except Exception:  # logged, and started again below
            log.exception("the watcher of cluster %s failed and starts again", cluster_pk)
            await asyncio.sleep(10)


@dataclass(frozen=True)
class _Waiting:
    since: float
    event: Raw


@dataclass(frozen=True)
class _News:
    resource: str
    change: str
    raw: Raw


class Watcher:
    """The watches of one cluster. Use as an async context manager, then `run` until cancelled."""

    def __init__(self, cluster_pk: UUID, credentials: Credentials) -> None:
        self.cluster_pk = cluster_pk
        self.capacity = Capacity()
        self.install = install_id()
        self._streams = Streams(credentials)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"cluster-{cluster_pk.hex[:8]}")
        self._watches: dict[str, ListWatch] = {}
        self._ours: dict[tuple[str, str, str], Mapping[str, str]] = {}
        self._waiting: deque[_Waiting] = deque(maxlen=1000)
        self._news: deque[_News] = deque()
        self._there_is_news = asyncio.Event()
        self._handing_over = asyncio.Lock()
        self._announced = False
        self._broken: frozenset[str] = frozenset()

    async def __aenter__(self) -> Watcher:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._streams.close()
        await self._in_thread(connections.close_all)  # a connection belongs to its thread, and would outlive it
        self._thread.shutdown(wait=False)

    async def run(self) -> None:
        """List and watch nodes, pods and what handlers ask for, until cancelled."""
        resources = {"nodes", "pods"} | watching.registry.resources()
        async with asyncio.TaskGroup() as group:
            for resource in sorted(resources):
                group.create_task(self._watch(resource).run())
            if watching.registry.events:
                group.create_task(self._watch("events").run())
            group.create_task(self._flush())
            group.create_task(self._hand_over())

    def silent_s(self) -> float:
        """Seconds since any watch of the cluster gave a sign of life."""
        return min((watch.silent_s() for watch in self._watches.values()), default=float("inf"))

    def _watch(self, resource: str) -> ListWatch:
        async def on_sync(items: list[Raw]) -> None:
            await self._synced(resource, items)

        async def on_event(event_type: str, raw: Raw) -> None:
            await self._changed(resource, event_type, raw)

        async def on_error(error: KubeError) -> None:
            await self._failed(error, resource)

        # Pods of others count for a node's room, so pods are read whole; the rest is ours alone.
        mine = resource not in {"nodes", "pods", "events"}
        watch = ListWatch(
            self._streams,
            watching.kind_of(resource),
            labels={names.INSTALL: self.install} if mine else None,
            on_sync=on_sync,
            on_event=on_event,
            on_error=on_error,
            trim=trimmed_pod if resource == "pods" else None,
        )
        self._watches[resource] = watch
        return watch

    # -- what the watches say --------------------------------------------------------------------------------

    async def _synced(self, resource: str, items: list[Raw]) -> None:
        await self.settle()
        self._broken -= {resource}
        if not self._announced:
            self._announced = True
            await self._in_thread(contact.note_connected, self.cluster_pk)
        if resource == "nodes":
            self.capacity.sync_nodes(items)
            return
        if resource == "events":
            return  # what happened before is not told again
        with collector.at_rest():
            if resource == "pods":
                self.capacity.sync_pods(items)
            ours = [raw for raw in items if self._is_ours(raw)]
            kind = watching.kind_of(resource)
            self._ours = {key: labels for key, labels in self._ours.items() if key[0] != kind}
            self._ours.update({_key(kind, raw): _labels(raw) for raw in ours})
        for (wanted, label), handlers in watching.registry.resyncs.items():
            if wanted == resource:
                chosen = [raw for raw in ours if _labels(raw).get(names.KIND) == label]
                await self._call(handlers, self.cluster_pk, chosen)

    async def _changed(self, resource: str, event_type: str, raw: Raw) -> None:
        """Keep what one watch said for the thread. It waits only when the thread is far behind."""
        if resource == "nodes":
            self.capacity.node_changed(event_type, raw)
            return
        if resource == "events":
            if event_type == "DELETED":
                return
        else:
            if resource == "pods":
                self.capacity.pod_changed(event_type, raw)
            if not self._is_ours(raw):
                return
        self._news.append(_News(resource, event_type, raw))
        self._there_is_news.set()
        if len(self._news) >= MOST_WAITING:
            await self.settle()

    async def _hand_over(self) -> None:
        while True:
            await self._there_is_news.wait()
            await asyncio.sleep(GATHER_S)
            await self.settle()

    async def settle(self) -> None:
        """Hand over what the watches have said so far; what they say meanwhile, too."""
        async with self._handing_over:
            while self._news:
                taken = [self._news.popleft() for _ in range(min(len(self._news), MOST_AT_ONCE))]
                objects, events = self._sorted(taken)
                for key, changes in objects.items():
                    await self._call(watching.registry.objects.get(key, ()), self.cluster_pk, changes)
                if events:
                    await self._call(watching.registry.events, self.cluster_pk, events)
            self._there_is_news.clear()

    def _sorted(
        self, news: list[_News]
    ) -> tuple[dict[tuple[str, str], list[tuple[str, Raw]]], list[tuple[Raw, Mapping[str, str]]]]:
        """Changes by resource and label, and Events with the labels of what they are about, both in order."""
        objects: dict[tuple[str, str], list[tuple[str, Raw]]] = defaultdict(list)
        told: list[Raw] = []
        for one in news:
            if one.resource == "events":
                told.append(one.raw)
                continue
            # A deleted object's last Events ("Killing") still come for a while; the next list forgets it.
            self._ours[_key(watching.kind_of(one.resource), one.raw)] = _labels(one.raw)
            objects[one.resource, _labels(one.raw).get(names.KIND, "")].append((one.change, one.raw))
        return objects, self._about_ours(told, again=bool(objects))

    def _about_ours(self, told: list[Raw], *, again: bool) -> list[tuple[Raw, Mapping[str, str]]]:
        """Those Events whose object is known, ``again`` those that waited for one; the rest wait."""
        now = time.monotonic()
        waited = list(self._waiting) if again else []
        if again:
            self._waiting.clear()
        found = []
        for one in [*waited, *(_Waiting(now, event) for event in told)]:
            if one.since < now - max(EVENT_WAITS_S, 0.0):
                continue
            about = one.event.get("involvedObject") or {}
            labels = self._ours.get((about.get("kind", ""), about.get("namespace", ""), about.get("name", "")))
            if labels is not None:
                found.append((one.event, labels))
            elif str(about.get("namespace", "")).startswith("mlp-"):
                self._waiting.append(one)
        return found

    async def _failed(self, error: KubeError, resource: str) -> None:
        """One connection that broke says nothing of a quiet cluster: only that it cannot be made again does."""
        if isinstance(error, PermissionDenied):
            await self._in_thread(checks.note_denied, self.cluster_pk, error)
        again, self._broken = resource in self._broken, self._broken | {resource}
        if contact.is_decisive(error) or (again and self.silent_s() > UNREACHABLE_AFTER_S):
            self._announced = False
            await self._in_thread(contact.note_failure, self.cluster_pk, error)

    def _is_ours(self, raw: Raw) -> bool:
        return _labels(raw).get(names.INSTALL) == self.install

    # -- to the database -------------------------------------------------------------------------------------

    async def _flush(self) -> None:
        noted = time.monotonic()
        while True:
            await asyncio.sleep(FLUSH_AFTER_S)
            changes = self.capacity.take()
            if changes is not None:
                await self._in_thread(self._store, changes)
            if time.monotonic() - noted > CONTACT_NOTED_EVERY_S and self.silent_s() < CONTACT_NOTED_EVERY_S:
                noted = time.monotonic()
                await self._in_thread(contact.note_alive, self.cluster_pk)

    def _store(self, changes: capacity.Changes) -> None:
        """Those that went may have gone while nobody watched: the rows tell."""
        for name in capacity.store(self.cluster_pk, changes).gone:
            for handler in watching.registry.nodes_gone:
                handler(self.cluster_pk, name)

    async def _call(self, handlers: Any, *args: Any) -> None:
        for handler in handlers:
            await self._in_thread(handler, *args)

    async def _in_thread(self, work: Callable[..., Any], *args: Any) -> None:
        """While the database is away the news waits for it, and the watches for the news: nothing is missed."""
        loop = asyncio.get_running_loop()
        for delay_s in (*DATABASE_AWAY_S, None):
            if await loop.run_in_executor(self._thread, _guarded, work, args, delay_s is None):
                return
            await asyncio.sleep(delay_s or 0.0)


def _guarded(work: Callable[..., Any], args: tuple[Any, ...], last: bool) -> bool:
    """False when it should be tried again."""
    try:
        work(*args)
    except OperationalError as error:
        if last:
            log.exception("%s.%s is given up", work.__module__, getattr(work, "__qualname__", work))
        else:
            log.warning("the database does not answer, what a cluster said waits: %s", " ".join(str(error).split()))
        return last
    except Exception:  # one handler's fault must not stop the watch; the sweep makes good what it missed
        log.exception("%s.%s failed", work.__module__, getattr(work, "__qualname__", work))
    finally:
        close_old_connections()
    return True


def _labels(raw: Raw) -> Mapping[str, str]:
    return (raw.get("metadata") or {}).get("labels") or {}


def _key(kind: str, raw: Raw) -> tuple[str, str, str]:
    metadata = raw.get("metadata") or {}
    return kind, metadata.get("namespace", ""), metadata.get("name", "")
