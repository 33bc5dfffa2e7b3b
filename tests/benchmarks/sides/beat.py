"""B1, django-celery-beat: its DatabaseScheduler over the same schedules, until every message is in the broker."""

from __future__ import annotations

import os
import time
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import celery
import django
import django_celery_beat
import time_machine
from django.conf import settings
from work import START, schedule, serve

_database = urlsplit(os.environ["BENCH_DATABASE"])
settings.configure(
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": _database.path.lstrip("/"),
            "USER": _database.username,
            "HOST": parse_qs(_database.query)["host"][0],
            "PORT": 5432,
        }
    },
    INSTALLED_APPS=["django.contrib.contenttypes", "django_celery_beat"],
    USE_TZ=True,
    TIME_ZONE="UTC",
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
)
django.setup()

from django.core.management import call_command  # noqa: E402 - Django has to be set up first
from django.db import connection  # noqa: E402
from django_celery_beat.models import CrontabSchedule, PeriodicTask, PeriodicTasks  # noqa: E402
from django_celery_beat.schedulers import DatabaseScheduler  # noqa: E402

app = celery.Celery("bench", broker=os.environ["BENCH_BROKER"])
app.conf.update(task_ignore_result=True, task_default_queue="beat", timezone="UTC", enable_utc=True)


@app.task(name="bench.run")
def run() -> None:
    """Never executed here: what counts is the message."""


class Side:
    """The running scheduler; one process, as beat runs."""

    scheduler: DatabaseScheduler


def setup(flows: int) -> None:
    """The rows, then a scheduler that has loaded them and built its heap."""
    call_command("migrate", verbosity=0)
    crontabs: dict[tuple[str, str], CrontabSchedule] = {}
    tasks = []
    for number in range(flows):
        expression, zone = schedule(number)
        if (expression, zone) not in crontabs:
            minute, hour, *_rest = expression.split()
            crontabs[expression, zone] = CrontabSchedule.objects.create(minute=minute, hour=hour, timezone=zone)
        tasks.append(
            PeriodicTask(
                name=f"f{number}",
                task="bench.run",
                crontab=crontabs[expression, zone],
                last_run_at=START - timedelta(seconds=30),
            )
        )
    PeriodicTask.objects.bulk_create(tasks, batch_size=2000)
    PeriodicTasks.update_changed()
    with time_machine.travel(START - timedelta(seconds=20), tick=False):
        Side.scheduler = DatabaseScheduler(app=app, lazy=True)
        Side.scheduler.sync_every = 180
        Side.scheduler.tick()
        while Side.scheduler.tick() == 0:
            pass


def one_round(moment: datetime) -> dict[str, Any]:
    """Tick until nothing is due any more, then sync, which stores what ran last."""
    statements = 0

    def count(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        nonlocal statements
        statements += 1
        return execute(sql, params, many, context)

    with app.connection_for_read() as broker:
        before = _waiting(broker)
        with time_machine.travel(moment + timedelta(milliseconds=500), tick=False):
            began = time.perf_counter()
            with connection.execute_wrapper(count):
                while Side.scheduler.tick() == 0:
                    pass
                Side.scheduler.sync()
            wall_ms = (time.perf_counter() - began) * 1000
        sent = _waiting(broker) - before
    return {"wall_ms": wall_ms, "runs": sent, "sql": statements, "messages": sent}


def _waiting(broker: Any) -> int:
    return int(broker.default_channel.client.llen("beat"))


if __name__ == "__main__":
    serve(
        setup,
        one_round,
        f"django-celery-beat {django_celery_beat.__version__}, Celery {celery.__version__}",
    )
