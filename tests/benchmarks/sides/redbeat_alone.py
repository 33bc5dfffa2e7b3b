"""B1, celery-redbeat: its scheduler over the same schedules, until every message is in the broker.

Its schedule is in Redis alone; no row says that a run is due.
"""

from __future__ import annotations

import os
import time
from datetime import datetime, timedelta
from importlib.metadata import version
from typing import Any
from zoneinfo import ZoneInfo

import celery
import time_machine
from celery.schedules import crontab
from redbeat import RedBeatScheduler, RedBeatSchedulerEntry
from work import START, schedule, serve

app = celery.Celery("bench", broker=os.environ["BENCH_BROKER"])
app.conf.update(
    task_ignore_result=True,
    task_default_queue="redbeat",
    timezone="UTC",
    enable_utc=True,
    redbeat_redis_url=os.environ["BENCH_REDIS"],
    redbeat_key_prefix=f"redbeat:{os.environ['BENCH_FLOWS']}:",  # it would go on from what another size left
    redbeat_lock_key=None,  # one scheduler, so none to keep out
)


@app.task(name="bench.run")
def run() -> None:
    """Never executed here: what counts is the message."""


class Side:
    """The running scheduler; one process, as beat runs."""

    scheduler: RedBeatScheduler


def setup(flows: int) -> None:
    """The entries, each with its next time in the sorted set that the scheduler reads."""
    with time_machine.travel(START - timedelta(seconds=30), tick=False):
        for number in range(flows):
            expression, zone = schedule(number)
            minute, hour, *_rest = expression.split()
            here = ZoneInfo(zone)
            due = crontab(minute=minute, hour=hour, nowfun=lambda here=here: datetime.now(here))
            RedBeatSchedulerEntry(f"f{number}", "bench.run", due, app=app).save()
        Side.scheduler = RedBeatScheduler(app=app, lazy=True)


def one_round(moment: datetime) -> dict[str, Any]:
    """Tick until nothing is due any more."""
    with app.connection_for_read() as broker:
        before = _waiting(broker)
        with time_machine.travel(moment + timedelta(milliseconds=500), tick=False):
            began = time.perf_counter()
            while Side.scheduler.tick() == 0:
                pass
            wall_ms = (time.perf_counter() - began) * 1000
        sent = _waiting(broker) - before
    return {"wall_ms": wall_ms, "runs": sent, "sql": 0, "messages": sent}


def _waiting(broker: Any) -> int:
    return int(broker.default_channel.client.llen("redbeat"))


if __name__ == "__main__":
    serve(setup, one_round, f"celery-redbeat {version('celery-redbeat')}")
