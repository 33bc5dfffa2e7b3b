"""``manage.py control``: schedule, watch, collect logs and sweep, in one asyncio process."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

from django.core.management.base import BaseCommand

from apps.core import control


class Command(BaseCommand):
    """Runs every registered control loop until SIGTERM or SIGINT."""

    help = "Run the control loops: schedule, watch clusters, collect logs, sweep."

    def handle(self, *args: Any, **options: Any) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        stop = asyncio.Event()
        for signum in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(signum, stop.set)
        self.stdout.write(f"control loops: {', '.join(control.names())}")
        await control.run(stop)
