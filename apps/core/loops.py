"""The control loops of the base: listening for alarms, and the sweep that makes everything right."""

from __future__ import annotations

import asyncio
from datetime import datetime

from asgiref.sync import sync_to_async
from django.db import close_old_connections
from django.utils import timezone

from apps.core import control, outbox, reconciling, wake

LONGEST_SLEEP_S = 60.0


def sweep_once() -> datetime | None:
    """Hint all that is due; when the next row of any kind is due."""
    close_old_connections()
    moments = [moment for moment in (reconciling.sweep(), outbox.sweep()) if moment is not None]
    return min(moments, default=None)


async def sweep(stop: asyncio.Event) -> None:
    """Sweep when something is due, when woken, and at least every minute."""
    while not stop.is_set():
        due = await sync_to_async(sweep_once, thread_sensitive=False)()
        seconds = LONGEST_SLEEP_S if due is None else (due - timezone.now()).total_seconds()
        await wake.alarms.wait(wake.DUE, stop, min(max(seconds, 0.2), LONGEST_SLEEP_S))


def register() -> None:
    """Called once from ``AppConfig.ready``."""
    control.register("alarms", wake.alarms.listen)
    control.register("sweep", sweep)
