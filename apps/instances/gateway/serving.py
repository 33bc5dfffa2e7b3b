"""The gateway as a process: keeps its table true, dials, drains."""

from __future__ import annotations

import asyncio
import gc
import logging
import resource
import signal
import socket
import time
from collections.abc import Coroutine
from typing import Any
from uuid import UUID

import psycopg
from django.conf import settings
from django.db import DatabaseError

from apps.core import wake
from apps.core.control import in_thread, sleep
from apps.instances.gateway import pages, people, table, way
from apps.instances.gateway.places import Door, Places
from apps.instances.gateway.upstreams import Upstream
from apps.instances.gateway.visitors import Request, Visitor
from kubekit.errors import KubeError
from kubekit.names import parse_id

log = logging.getLogger(__name__)

#: A process that was started by a connection ends when there has been none for this long.
LEAVES_AFTER_S = 300.0
#: Everything is read again after this, whatever was heard.
FULL_S = 30.0
#: A connection on which nothing is asked, or whose head does not come to an end.
IDLE_S = 75.0
#: An instance's connection that is kept for the next request.
KEPT_S = 30.0
#: So often the connection on which changes are heard looks whether the process is to end.
HEAR_S = 1.0
#: For what is open when the process is told to end: answers are finished, and web sockets get this long. On one machine
#: everything before it ends too.
DRAIN_S, DRAIN_ALONE_S = 1.0, 20.0
#: While the first table is being read.
FIRST_S = 10.0


class Gateway:
    """Everything that the connections of this process share; a ``visitors.Gate``."""

    def __init__(self) -> None:
        self.now = time.monotonic()
        self.draining = False
        self.hidden_cookies = frozenset(
            {settings.SESSION_COOKIE_NAME.encode(), settings.CSRF_COOKIE_NAME.encode(), people.COOKIE}
        )
        self.visitors: set[Visitor] = set()
        self.places = Places(open_states=table.OPEN, starting_states=table.STARTING)
        self.passes = people.Passes()
        self.ways = way.Ways()
        self.used_at = self.now
        self._tasks: set[asyncio.Task[None]] = set()
        self._told: set[UUID] = set()
        self._all = True
        self._mark: object = None
        self._ring = asyncio.Event()
        self.read_once = asyncio.Event()

    # --- what connections ask

    def find(self, request: Request) -> Door | pages.Said:
        """Where a request leads."""
        found = self.places.at(request.host)
        if isinstance(found, Door) and found.checked and not request.enters:
            person = people.judge(self.passes, found, request.cookie, request.method, request.fields, request.host)
            if not person:
                return pages.NOT_LET_IN
            request.person = person
        return found

    def enter(self, visitor: Visitor, door: Door, form: bytes) -> None:
        """Look at a ticket in the background."""
        self._soon(self._enter(visitor, door, form))

    async def _enter(self, visitor: Visitor, door: Door, form: bytes) -> None:
        visitor.reply(await in_thread(people.admit, door, form))

    def page(self, said: pages.Said, language: str) -> bytes:
        """What is said in place of an instance."""
        return pages.answer(said, language=language, portal=settings.PORTAL_ORIGIN)

    def dial(self, upstream: Upstream) -> None:
        """Connect in the background."""
        self._soon(self._dial(upstream))

    def _soon(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _dial(self, upstream: Upstream) -> None:
        try:
            await self.ways.to(upstream)
        except (KubeError, OSError) as error:
            log.info("%s was not reached: %s", upstream.door.place.launch.pod, error)
            upstream.failed(pages.NO_ANSWER)
        except Exception:
            log.exception("the way to an instance could not be opened")
            upstream.failed(pages.NO_ANSWER)

    # --- what the rows say

    async def listen(self, stop: asyncio.Event) -> None:
        """Hear of changes. A connection that breaks is made again; what was missed meanwhile is read then."""
        while not stop.is_set():
            try:
                async with await wake.link() as line:
                    await line.execute(f"LISTEN {wake.INSTANCES}")
                    self._hear("")
                    while not stop.is_set():
                        async for message in line.notifies(timeout=HEAR_S):
                            self._hear(message.payload)
            except (psycopg.Error, OSError) as error:
                log.warning("changes of instances are not heard at once: %s", error)
                await sleep(stop, 1.0)

    def _hear(self, payload: str) -> None:
        pk = parse_id(payload)
        if pk is None:
            self._all = True
        else:
            self._told.add(pk)
        self._ring.set()

    async def follow(self, stop: asyncio.Event) -> None:
        """Read what changed, and everything now and then; one after the other, so that the later always counts."""
        while not stop.is_set():
            told, self._told = self._told, set()
            everything, self._all = self._all, False
            self._ring.clear()
            try:
                mark = await in_thread(table.mark) if everything else None
                if everything and mark != self._mark:
                    found = await in_thread(table.read)
                    self._mark = mark
                    self.ways.clusters = found.clusters
                    self.places.replace(found.launches)
                    self.places.open_ports(found.ports, time.time())
                    self.read_once.set()
                if told:
                    self._mark = None
                    found = await in_thread(table.read, told)
                    self.ways.clusters |= found.clusters
                    for launch in found.launches:
                        self.places.put(launch)
                    self.places.open_some(found.ports)
                    for pk in told - {launch.instance_id for launch in found.launches}:
                        self.places.forget(pk)
                        self.ways.forget(pk)
            except (DatabaseError, OSError) as error:
                log.warning("what runs could not be read: %s", error)
                self._all = True
                if await sleep(stop, 1.0):
                    return
                continue
            try:
                async with asyncio.timeout(FULL_S):
                    await self._ring.wait()
            except TimeoutError:
                self._all = True

    # --- over time

    async def tick(self, stop: asyncio.Event) -> None:
        """Once a second: tell the time, and end what nobody uses."""
        while not await sleep(stop, 1.0):
            self.now = time.monotonic()
            if self.visitors:
                self.used_at = self.now
            for visitor in list(self.visitors):
                if self.now - visitor.since > IDLE_S:
                    visitor.close_if_idle()
            for place in self.places:
                if place.ports:
                    place.show_out(time.time())
                for upstreams in place.idle.values():
                    for upstream in list(upstreams):
                        if self.now - upstream.since > KEPT_S:
                            upstream.drop()

    @property
    def quiet_s(self) -> float:
        """Seconds since there was anybody."""
        return time.monotonic() - self.used_at

    async def drain(self, within_s: float) -> None:
        """Finish what is being answered, give web sockets a moment, then end everything."""
        self.draining = True
        self._ring.set()
        deadline = time.monotonic() + within_s
        while self.visitors and time.monotonic() < deadline:
            for visitor in list(self.visitors):
                visitor.close_if_idle()
            await asyncio.sleep(0.05)
        for visitor in list(self.visitors):
            visitor.cut()
        self.places.replace(())
        await asyncio.sleep(0)
        await self.ways.close()


def run(listener: socket.socket, *, stays: bool) -> None:
    """Serve on the listening socket until told to stop; one that need not stay ends when nobody is left."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    gc.set_threshold(
        20_000, 50, 100
    )  # requests leave no cycles behind, and going through the table holds all of them up
    asyncio.run(_run(listener, stays=stays))


async def _run(listener: socket.socket, *, stays: bool) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await serve(listener, stop, stays=stays)


async def serve(listener: socket.socket, stop: asyncio.Event, *, stays: bool) -> None:
    """Serve on the listening socket until ``stop``."""
    loop = asyncio.get_running_loop()
    gateway = Gateway()
    loops = [asyncio.create_task(work(stop)) for work in (gateway.listen, gateway.follow, gateway.tick)]
    try:
        async with asyncio.timeout(FIRST_S):
            await gateway.read_once.wait()
    except TimeoutError:
        log.warning("the first table could not be read in time; nothing is known to run")
    make = loop.create_unix_server if listener.family == socket.AF_UNIX else loop.create_server
    server = await make(lambda: Visitor(gateway), sock=listener, backlog=1024)
    while not await sleep(stop, 1.0 if not stays else 60.0):
        if not stays and gateway.quiet_s > LEAVES_AFTER_S:
            stop.set()
    server.close()
    await gateway.drain(DRAIN_ALONE_S if stays else DRAIN_S)
    await asyncio.gather(*loops)
