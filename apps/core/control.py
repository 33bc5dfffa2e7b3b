"""What runs in the control process: asyncio loops that apps register, each restarted when it fails.

``manage.py control`` runs them all. A loop is ``async def loop(stop: asyncio.Event)``; database work
inside goes through ``in_thread``.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from asgiref.sync import sync_to_async
from django.db import close_old_connections

log = logging.getLogger(__name__)

T = TypeVar("T")
Loop = Callable[[asyncio.Event], Awaitable[None]]
_loops: dict[str, Loop] = {}


def register(name: str, loop: Loop) -> None:
    """Add a loop under a name that logs and tests use."""
    if name in _loops:
        raise ValueError(f"there are two control loops named {name!r}")
    _loops[name] = loop


def names() -> list[str]:
    """The registered loops."""
    return sorted(_loops)


async def run(stop: asyncio.Event) -> None:
    """Run every loop until ``stop``; a loop that raises is logged and started again with back-off."""
    async with asyncio.TaskGroup() as group:
        for name, loop in _loops.items():
            group.create_task(_keep(name, loop, stop), name=name)


async def _keep(name: str, loop: Loop, stop: asyncio.Event) -> None:
    wait_s = 1.0
    while not stop.is_set():
        started = asyncio.get_running_loop().time()
        try:
            await loop(stop)
        except asyncio.CancelledError:
            raise
        except Exception:  # one loop's fault must not end the others
            log.exception("control loop %s failed", name)
        if stop.is_set():
            return
        if asyncio.get_running_loop().time() - started > 60:
            wait_s = 1.0
        await sleep(stop, wait_s + random.random())  # noqa: S311 - jitter, not a secret
        wait_s = min(wait_s * 2, 30)


async def in_thread(work: Callable[..., T], *args: Any) -> T:
    """Database work from a loop: in a thread, whose connection goes back to the pool afterwards."""

    def call() -> T:
        try:
            return work(*args)
        finally:
            close_old_connections()

    return await sync_to_async(call, thread_sensitive=False)()


async def sleep(stop: asyncio.Event, seconds: float) -> bool:
    """Wait ``seconds`` or until ``stop``; True when stopping."""
    try:
        await asyncio.wait_for(stop.wait(), timeout=seconds)
    except TimeoutError:
        return False
    return True
