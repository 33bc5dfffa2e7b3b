"""A clock that jumps by an hour: nothing waits for it to come round again, and no worker keeps a row for an hour."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from apps.core import claims, control, loops, outbox, reconciling
from apps.core.models import OutboxMessage
from apps.storage.models import Volume

HOUR = timedelta(hours=1)


def test_after_a_step_back_what_was_due_in_seconds_is_due_now(volume: Volume, monkeypatch: pytest.MonkeyPatch) -> None:
    hinted: list[object] = []
    monkeypatch.setattr(reconciling, "send_hint", lambda kind, pk, **_: hinted.append(pk))
    monkeypatch.setattr(outbox, "send_hint", lambda pk: None)
    # Written two seconds before the clock went back by an hour.
    Volume.objects.as_system().update(due_at=timezone.now() + HOUR)
    OutboxMessage.objects.create(topic="t", key="k", payload={}, due_at=timezone.now() + HOUR)
    reconciling.sweep()
    assert hinted == []
    reconciling.clock_jumped()
    reconciling.sweep()
    assert hinted == [volume.pk]
    assert OutboxMessage.objects.as_system().get().due_at <= timezone.now()


def test_after_a_step_back_the_row_of_a_dead_worker_is_free_within_a_lease(volume: Volume) -> None:
    dead = claims.take(Volume, volume.pk, now=timezone.now() + HOUR)
    assert dead is not None
    reconciling.clock_jumped()
    row = Volume.objects.as_system().get(pk=volume.pk)
    assert row.claimed_until is not None and row.claimed_until <= timezone.now() + claims.LEASE
    later = claims.take(Volume, volume.pk, now=timezone.now() + claims.LEASE * 2)
    assert later is not None and later.token == dead.token + 1


def test_after_a_step_forward_a_second_worker_is_fenced_from_the_first(volume: Volume) -> None:
    first = claims.take(Volume, volume.pk)
    assert first is not None
    second = claims.take(Volume, volume.pk, now=timezone.now() + HOUR)
    assert second is not None
    with pytest.raises(claims.ClaimLost):
        claims.extend(Volume, first)
    assert not claims.release(Volume, first, due_at=None)


@pytest.mark.parametrize(
    ("moves", "told"),
    [([0.0, 5.0, -5.0], [0.0, 0.0, 0.0]), ([3600.0, 0.0], [3600.0, 0.0]), ([0.0, -3600.0, 0.0], [0.0, -3600.0, 0.0])],
)
def test_a_clock_that_was_set_is_noticed_once_and_one_that_is_kept_right_is_not(
    monkeypatch: pytest.MonkeyPatch, moves: list[float], told: list[float]
) -> None:
    wall, counted = [1_000_000.0], [50.0]
    monkeypatch.setattr(loops.time, "time", lambda: wall[0])
    monkeypatch.setattr(loops.time, "monotonic", lambda: counted[0])
    clock = loops.Clock()
    found = []
    for move in moves:
        wall[0] += 60 + move
        counted[0] += 60
        found.append(clock.jumped())
    assert found == told


async def test_the_sweep_looks_at_everything_when_the_clock_was_set(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    stop = asyncio.Event()

    async def here(work: Any, *args: Any) -> Any:
        return work(*args)

    def swept(told: reconciling.Told) -> None:
        done.append("sweep")
        stop.set()

    monkeypatch.setattr(control, "in_thread", here)
    monkeypatch.setattr(loops.Clock, "jumped", lambda self: -3600.0)
    monkeypatch.setattr(reconciling, "clock_jumped", lambda: done.append("all due"))
    monkeypatch.setattr(reconciling, "sweep", swept)
    await loops.sweep(stop)
    assert done == ["all due", "sweep"]
