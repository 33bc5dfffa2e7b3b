"""PostgreSQL's NOTIFY as an alarm clock: the control process sleeps and is woken, it never polls."""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import datetime
from typing import Any

import psycopg
from django.db import DatabaseError, connection

log = logging.getLogger(__name__)

DUE = "mlportal_due"
SCHEDULE = "mlportal_schedule"
CLUSTERS = "mlportal_clusters"
LIFETIMES = "mlportal_lifetimes"
INSTANCES = "mlportal_instances"
"""Rung by the database itself, with the id of an instance whose launch, pod or state changed; empty: read them all."""


def moment(at: datetime | None) -> str:
    """An instant as a notification carries it; empty is now."""
    return "" if at is None else f"{at.timestamp():.3f}"


def notify(channel: str, *, at: datetime | None = None) -> None:
    """Wake the listeners of ``channel`` when the current transaction commits (at once outside one).

    With ``at`` by then: who means to wake earlier anyway sleeps on.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_notify(%s, %s)", [channel, moment(at)])


def ring_sweep() -> None:
    """Have the sweep look now, because hints may have been lost; for a process that starts. Never raises."""
    try:
        notify(DUE)
    except DatabaseError as error:
        log.warning("the sweep was not woken, it looks within a minute: %s", error)
    finally:
        connection.close()


async def link() -> psycopg.AsyncConnection[Any]:
    """A connection to listen on, with the settings of Django's."""
    params = connection.get_connection_params()
    wanted = {"host", "port", "user", "password", "dbname", "sslmode", "options"}
    settings = {key: params[key] for key in params if params[key] and (key in wanted or key.startswith("keepalives"))}
    return await psycopg.AsyncConnection.connect(**settings, autocommit=True)


class Alarms:
    """One listening connection for all loops of the process.

    ``wait(channel, seconds)`` returns when the channel was notified, or after ``seconds``; a notification that carries
    an instant only shortens the wait to it. A notification between two waits is kept. After a lost connection every
    loop is woken once, since one may be missed.
    """

    def __init__(self) -> None:
        self._events: dict[str, asyncio.Event] = {
            name: asyncio.Event() for name in (DUE, SCHEDULE, CLUSTERS, LIFETIMES)
        }
        self._at: dict[str, float] = {}

    async def listen(self, stop: asyncio.Event) -> None:
        """Keep the connection until ``stop``; the control process runs this as a loop of its own."""
        async with await link() as line:
            for channel in self._events:
                await line.execute(f"LISTEN {channel}")
            for channel in self._events:
                self.ring(channel)
            closing = asyncio.create_task(stop.wait())
            closing.add_done_callback(lambda _: asyncio.get_running_loop().create_task(line.close()))
            try:
                async for message in line.notifies():
                    self.ring(message.channel, message.payload)
            except psycopg.OperationalError:
                if not stop.is_set():
                    raise
            finally:
                closing.cancel()

    def ring(self, channel: str, payload: str = "") -> None:
        """Take in a notification: the earliest instant that any of them named counts, and none means now."""
        at = float(payload) if payload else 0.0
        self._at[channel] = min(at, self._at.get(channel, at))
        self._events[channel].set()

    async def wait(self, channel: str, stop: asyncio.Event, seconds: float) -> None:
        """Sleep until the channel rings, ``stop`` is set, or ``seconds`` have passed."""
        ring, loop = self._events[channel], asyncio.get_running_loop()
        until = loop.time() + seconds
        stopping = asyncio.create_task(stop.wait())
        try:
            while not stop.is_set() and (left := until - loop.time()) > 0:
                ringing = asyncio.create_task(ring.wait())
                try:
                    await asyncio.wait((ringing, stopping), timeout=left, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    ringing.cancel()
                if ring.is_set():
                    ring.clear()
                    until = min(until, loop.time() + self._at.pop(channel, 0.0) - time.time())
        finally:
            stopping.cancel()


alarms = Alarms()
