"""The alarm clock: who sleeps is woken at the earliest instant that anybody named, and not at every notification."""

from __future__ import annotations

import asyncio
import time

import pytest

from apps.core import wake


async def waited(alarms: wake.Alarms, seconds: float, payloads: list[str]) -> bool:
    """Whether the wait ended before its time; the payloads come while it lasts."""
    began = time.monotonic()
    waiting = asyncio.create_task(alarms.wait(wake.DUE, asyncio.Event(), seconds))
    await asyncio.sleep(0)
    for payload in payloads:
        alarms.ring(wake.DUE, payload)
        await asyncio.sleep(0)
    await asyncio.wait_for(waiting, 90)
    return time.monotonic() - began < seconds


def in_seconds(seconds: float) -> str:
    return f"{time.time() + seconds:.3f}"


@pytest.mark.parametrize(
    ("payloads", "ends_early"),
    [
        ([""], True),
        ([in_seconds(-5)], True),
        ([in_seconds(3600)], False),
        ([in_seconds(3600), in_seconds(7200)], False),
        ([in_seconds(3600), ""], True),
        ([], False),
    ],
    ids=["now", "in the past", "later than planned", "twice later", "later, then now", "nothing"],
)
def test_a_notification_shortens_the_wait_to_its_instant_and_no_further(payloads: list[str], ends_early: bool) -> None:
    seconds = 60.0 if ends_early else 0.2
    assert asyncio.run(waited(wake.Alarms(), seconds, payloads)) is ends_early


def test_a_notification_between_two_waits_is_kept_and_the_earliest_instant_counts() -> None:
    async def scene() -> bool:
        alarms = wake.Alarms()
        alarms.ring(wake.DUE, in_seconds(-1))
        alarms.ring(wake.DUE, in_seconds(3600))
        waiting = asyncio.create_task(alarms.wait(wake.DUE, asyncio.Event(), 3600))
        done, _ = await asyncio.wait({waiting}, timeout=90)
        return waiting in done

    assert asyncio.run(scene())


def test_who_stops_waits_no_longer() -> None:
    async def scene() -> tuple[bool, bool]:
        stop = asyncio.Event()
        waiting = asyncio.create_task(wake.Alarms().wait(wake.DUE, stop, 3600))
        await asyncio.sleep(0)
        waited = not waiting.done()
        stop.set()
        done, _ = await asyncio.wait({waiting}, timeout=90)
        return waited, waiting in done

    assert asyncio.run(scene()) == (True, True)
