"""PostgreSQL's NOTIFY as an alarm clock: the control process sleeps and is woken, it never polls."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import psycopg
from django.db import DatabaseError, connection

log = logging.getLogger(__name__)

DUE = "mlportal_due"
SCHEDULE = "mlportal_schedule"
CLUSTERS = "mlportal_clusters"
INSTANCES = "mlportal_instances"
"""Rung by the database itself, with the id of an instance whose launch, pod or state changed; empty: read them all."""


def notify(channel: str) -> None:
    """Wake the listeners of ``channel`` when the current transaction commits (at once outside one)."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_notify(%s, '')", [channel])


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

    ``wait(channel, seconds)`` returns when the channel was notified, or after ``seconds``. A notification
    between two waits is kept. After a lost connection every loop is woken once, since one may be missed.
    """

    def __init__(self) -> None:
        self._events: dict[str, asyncio.Event] = {name: asyncio.Event() for name in (DUE, SCHEDULE, CLUSTERS)}

    async def listen(self, stop: asyncio.Event) -> None:
        """Keep the connection until ``stop``; the control process runs this as a loop of its own."""
        async with await link() as line:
            for channel in self._events:
                await line.execute(f"LISTEN {channel}")
            for event in self._events.values():
                event.set()
            closing = asyncio.create_task(stop.wait())
            closing.add_done_callback(lambda _: asyncio.get_running_loop().create_task(line.close()))
            try:
                async for message in line.notifies():
                    self._events[message.channel].set()
            except psycopg.OperationalError:
                if not stop.is_set():
                    raise
            finally:
                closing.cancel()

    async def wait(self, channel: str, stop: asyncio.Event, seconds: float) -> None:
        """Sleep until the channel rings, ``stop`` is set, or ``seconds`` have passed."""
        ring = self._events[channel]
        tasks = [asyncio.create_task(ring.wait()), asyncio.create_task(stop.wait())]
        try:
            await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
        ring.clear()


alarms = Alarms()
