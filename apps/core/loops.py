"""The control loops of the base: listening for alarms, and the sweep that makes everything right."""

from __future__ import annotations

import asyncio
import logging
import time

from django.utils import timezone

from apps.core import control, outbox, pulse, reconciling, wake

log = logging.getLogger(__name__)

LONGEST_SLEEP_S = 60.0
JUMP_S = 30.0
"""A clock that is off by more than this at once was set; a clock that is only kept right moves by less."""


class Clock:
    """Notices that this machine's clock was set, against the one that only ever counts."""

    def __init__(self) -> None:
        self._apart = self._now_apart()

    def jumped(self) -> float:
        """Seconds by which the clock was set since the last question: 0 when it was not, negative when back."""
        before, self._apart = self._apart, self._now_apart()
        moved = self._apart - before
        return moved if abs(moved) > JUMP_S else 0.0

    @staticmethod
    def _now_apart() -> float:
        return time.time() - time.monotonic()


async def sweep(stop: asyncio.Event) -> None:
    """Sweep when something is due, when woken, and at least every minute."""
    clock, told = Clock(), reconciling.Told()
    while not stop.is_set():
        if jumped := clock.jumped():
            log.warning("this machine's clock was set by %+.0f s: everything is looked at anew", jumped)
            await control.in_thread(reconciling.clock_jumped)
        due = await control.in_thread(reconciling.sweep, told)
        seconds = LONGEST_SLEEP_S if due is None else (due - timezone.now()).total_seconds()
        await wake.alarms.wait(wake.DUE, stop, min(max(seconds, 0.2), LONGEST_SLEEP_S))


def register() -> None:
    """Called once from ``AppConfig.ready``."""
    reconciling.sweep_also(outbox.SWEPT)
    control.register("alarms", wake.alarms.listen)
    control.register("sweep", sweep)
    control.register("pulse", pulse.loop)
