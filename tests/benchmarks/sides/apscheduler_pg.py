"""B1, APScheduler 3 with its job store in PostgreSQL, until every due job has put its message into Redis."""

from __future__ import annotations

import os
import time
from datetime import datetime, timedelta, timezone
from typing import Any
from urllib.parse import parse_qs, urlsplit
from zoneinfo import ZoneInfo

import apscheduler
import redis
import sqlalchemy
import time_machine
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.cron import CronTrigger
from work import START, schedule, serve

LIST = "apscheduler"
_database = urlsplit(os.environ["BENCH_DATABASE"])
URL = sqlalchemy.URL.create(
    "postgresql+psycopg2",
    username=_database.username,
    database=_database.path.lstrip("/"),
    query={"host": parse_qs(_database.query)["host"][0]},
)
broker = redis.Redis.from_url(os.environ["BENCH_REDIS"])


def job(number: int) -> None:
    """What makes the run visible to a worker."""
    broker.lpush(LIST, number)


class Hand(BackgroundScheduler):  # type: ignore[misc]  # comes without types
    """A scheduler whose loop the benchmark turns by hand."""

    def _main_loop(self) -> None:
        return


class Side:
    """The scheduler and how many statements its engine has sent."""

    scheduler: Hand
    statements = 0


def setup(flows: int) -> None:
    """The jobs in the store."""
    engine = sqlalchemy.create_engine(URL)
    sqlalchemy.event.listen(engine, "before_cursor_execute", _count)
    store = SQLAlchemyJobStore(engine=engine)
    Side.scheduler = Hand(
        jobstores={"default": store},
        executors={"default": ThreadPoolExecutor(10)},
        job_defaults={"coalesce": True, "misfire_grace_time": 3600, "max_instances": 3},
        timezone=timezone.utc,  # noqa: UP017 - peers may be older
    )
    with time_machine.travel(START - timedelta(seconds=20), tick=False):
        Side.scheduler.start(paused=True)
        for number in range(flows):
            expression, zone = schedule(number)
            trigger = CronTrigger.from_crontab(expression, timezone=ZoneInfo(zone))
            Side.scheduler.add_job(job, trigger, args=[number], id=str(number))
        Side.scheduler.resume()


def one_round(moment: datetime) -> dict[str, Any]:
    """Process what is due at this instant and wait until each job has run."""
    before, statements = int(broker.llen(LIST)), Side.statements
    with time_machine.travel(moment + timedelta(milliseconds=500), tick=False):
        began = time.perf_counter()
        Side.scheduler._process_jobs()
        wanted = int(os.environ["BENCH_DUE"])
        until = time.perf_counter() + 30
        while int(broker.llen(LIST)) - before < wanted and time.perf_counter() < until:
            time.sleep(0.001)
        wall_ms = (time.perf_counter() - began) * 1000
    sent = int(broker.llen(LIST)) - before
    return {"wall_ms": wall_ms, "runs": sent, "sql": Side.statements - statements, "messages": sent}


def _count(*_: Any) -> None:
    Side.statements += 1


if __name__ == "__main__":
    serve(setup, one_round, f"APScheduler {apscheduler.version}, SQLAlchemy {sqlalchemy.__version__}")
