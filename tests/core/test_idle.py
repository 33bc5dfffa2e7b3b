"""What a portal that nobody uses asks of its database: at most one statement in ten seconds."""

from __future__ import annotations

import asyncio
import selectors
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.db import connection

from apps.clusters import contact, watcher
from apps.clusters.models import Cluster
from apps.core import control, wake

SPEED = 100
MINUTES = 10
SETTLE_MINUTES = 1
MOST_A_MINUTE = 6


class _HastySelector(selectors.DefaultSelector):
    def select(self, timeout: float | None = None) -> Any:
        return super().select(None if timeout is None else timeout / SPEED)


class HastyLoop(asyncio.SelectorEventLoop):
    """Its clock runs a hundred times as fast as the one on the wall, and its waits are as much shorter."""

    def __init__(self) -> None:
        super().__init__(_HastySelector())

    def time(self) -> float:
        return time.monotonic() * SPEED


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Every statement that goes to the server, the ends of transactions too (each as two: it began as well)."""
    found: Counter[str] = Counter()
    execute, commit = psycopg.Cursor.execute, psycopg.Connection.commit

    def count(self: Any, query: Any, *args: Any, **options: Any) -> Any:
        found[str(query)] += 1
        return execute(self, query, *args, **options)

    def count_twice(self: Any) -> None:
        found["BEGIN", "COMMIT"] += 2  # type: ignore[index]
        commit(self)

    monkeypatch.setattr(psycopg.Cursor, "execute", count)
    monkeypatch.setattr(psycopg.Connection, "commit", count_twice)
    return found


@pytest.fixture
def pooled(transactional_db: None) -> Iterator[None]:
    """Connections from a pool, as in the portal's processes."""
    options = connection.settings_dict["OPTIONS"]
    connection.close()
    options["pool"] = {"min_size": 0, "max_size": 12, "timeout": 10, "max_idle": 60, "num_workers": 1}
    yield
    connection.close()
    connection.close_pool()
    del options["pool"]
    assert connection.pool is None


async def _idle(asked: Counter[str]) -> Counter[str]:
    """Run the loops; what they asked within the minutes after the first."""
    stop = asyncio.Event()
    running = asyncio.create_task(control.run(stop))
    await asyncio.sleep(SETTLE_MINUTES * 60)
    assert not running.done()
    before = asked.copy()
    await asyncio.sleep(MINUTES * 60)
    found = asked - before
    stop.set()
    await running
    return found


def test_an_idle_minute_costs_at_most_six_statements(
    pooled: None, asked: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Twelve hours lie between two rounds of the one that is left out, and it makes tables.
    loops = {name: loop for name, loop in control._loops.items() if name != "log retention"}
    assert {"alarms", "sweep", "scheduler", "log collector", "clusters", "reaper"} <= set(loops)
    monkeypatch.setattr(control, "_loops", loops)
    monkeypatch.setattr(wake.alarms, "_events", {name: asyncio.Event() for name in wake.alarms._events})
    with asyncio.Runner(loop_factory=HastyLoop) as runner:
        found = runner.run(_idle(asked))
    # The sweep, the log collector, the scheduler, and those that look at clusters: each has asked something at all.
    for part in ("core_outboxmessage", "log_complete", "flows_schedule", "clusters_cluster"):
        assert any(part in str(statement) for statement in asked), part
    cluster = Cluster.objects.create(
        name="c", server="https://c", credentials="{}", apps_domain="a.test", state="connected"
    )
    asked.clear()
    contact.note_alive(cluster.pk)
    contacts = asked.total() * 60 / watcher.CONTACT_NOTED_EVERY_S
    assert found.total() / MINUTES + contacts <= MOST_A_MINUTE, found
