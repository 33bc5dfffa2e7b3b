"""B1, this project: the scheduler's tick as the control process runs it."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import Any

import django

django.setup()

from django.conf import settings  # noqa: E402 - Django has to be set up first
from django.db import connection  # noqa: E402

from apps.clusters.models import Cluster  # noqa: E402
from apps.flows import schedule as cron  # noqa: E402
from apps.flows import scheduler  # noqa: E402
from apps.flows.models import Attempt, Flow, FlowVersion, Run, Schedule  # noqa: E402
from apps.tenants.models import Queue, Team, User  # noqa: E402
from mlportal.celery import app  # noqa: E402
from tests.benchmarks.work import START, schedule, serve  # noqa: E402

DOCUMENT = {"name": "f", "queue": "q", "schedules": [], "nodes": [{"name": "main"}], "alerts": []}


def setup(flows: int) -> None:
    """As many flows with one schedule each, planned as the service plans them."""
    app.set_default()
    team = Team.objects.create(name="bench")
    user = User.objects.create(username="bench")
    cluster = Cluster.objects.create(name="bench", server="-", credentials="-", apps_domain="a.test", state="connected")
    queue = Queue.objects.create(
        name="bench", team=team, cluster=cluster, namespace="bench", cpu_millis=1, memory_bytes=1, storage_bytes=1,
        state="ready",
    )  # fmt: skip
    before = START - timedelta(seconds=1)
    for first in range(0, flows, 10_000):
        numbers = range(first, min(flows, first + 10_000))
        rows = [Flow(name=f"f{number}", queue=queue, owner=user, state="active") for number in numbers]
        Flow.objects.bulk_create(rows)
        versions = [FlowVersion(flow=row, number=1, document=DOCUMENT) for row in rows]
        FlowVersion.objects.bulk_create(versions)
        for row, version in zip(rows, versions, strict=True):
            row.version = version
        Flow.objects.as_system().bulk_update(rows, ["version"], batch_size=2000)
        lines = []
        for number, row in zip(numbers, rows, strict=True):
            expression, zone = schedule(number)
            due = cron.after(expression, zone, before)
            lines.append(Schedule(flow=row, cron=expression, timezone=zone, next_fire_at=due))
        Schedule.objects.bulk_create(lines)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")


def all_due(moment: datetime) -> None:
    """Every schedule is due at this instant, as after a change of all of them."""
    Schedule.objects.as_system().update(next_fire_at=moment)
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE flows_schedule")


def one_round(moment: datetime) -> dict[str, Any]:
    """One look of the scheduler at this instant."""
    statements = 0

    def count(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        nonlocal statements
        statements += 1
        return execute(sql, params, many, context)

    with app.connection_for_read() as broker:
        before = _waiting(broker)
    began = time.perf_counter()
    with connection.execute_wrapper(count):
        scheduler.Scheduler(clock=lambda: moment).once()
    wall_ms = (time.perf_counter() - began) * 1000
    with app.connection_for_read() as broker:
        sent = _waiting(broker) - before
    made = Run.objects.as_system().filter(scheduled_at=moment).count()
    waiting = Attempt.objects.as_system().filter(run__scheduled_at=moment, due_at__isnull=False).count()
    return {"wall_ms": wall_ms, "runs": min(made, waiting), "sql": statements, "messages": sent}


def _waiting(broker: Any) -> int:
    return int(broker.default_channel.client.llen(settings.CELERY_TASK_DEFAULT_QUEUE))


if __name__ == "__main__":
    ours = f"this project, Django {django.__version__}, broker {settings.CELERY_BROKER_URL[:5]}"
    serve(setup, one_round, ours, all_due)
