"""What the app registers with the base when Django starts."""

from __future__ import annotations

import asyncio

from apps.clusters import abandoning, access, checks, contact, leavings, reaper, wording
from apps.core import control, reasons, reconciling


async def _watch(stop: asyncio.Event) -> None:
    from apps.clusters import watcher  # noqa: PLC0415 - brings aiohttp, which the control process alone needs

    await watcher.run(stop)


def register() -> None:
    """Called once from ``AppConfig.ready``."""
    reasons.register(wording.WORDINGS)
    reasons.register(contact.WORDINGS)
    reasons.register(abandoning.WORDINGS)
    access.register_denied(checks.note_denied)
    reconciling.register(checks.RECONCILER)
    reaper.register(checks.REAPABLE)
    leavings.register(checks.REAPABLE.label, checks.alive_ids)
    control.register("clusters", _watch)
    control.register("reaper", reaper.loop)
