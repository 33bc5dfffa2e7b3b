"""The control loops of the base: listening for alarms, and the sweep that makes everything right."""

from __future__ import annotations

import asyncio

from django.utils import timezone

from apps.core import control, outbox, reconciling, wake

LONGEST_SLEEP_S = 60.0


async def sweep(stop: asyncio.Event) -> None:
    """Sweep when something is due, when woken, and at least every minute."""
    while not stop.is_set():
        due = await control.in_thread(reconciling.sweep)
        seconds = LONGEST_SLEEP_S if due is None else (due - timezone.now()).total_seconds()
        await wake.alarms.wait(wake.DUE, stop, min(max(seconds, 0.2), LONGEST_SLEEP_S))


def register() -> None:
    """Called once from ``AppConfig.ready``."""
    reconciling.sweep_also(outbox.SWEPT)
    control.register("alarms", wake.alarms.listen)
    control.register("sweep", sweep)
