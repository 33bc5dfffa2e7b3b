"""B4, this project: ready attempts in PostgreSQL, brought on their way by the worker's own code in its eight threads.

Obeys the lines on standard input: ``ours CLUSTERS DEAD TASKS`` makes the attempts, spread over so many clusters, the
last of which is away when ``DEAD`` is 1; ``bare CLUSTERS 0 TASKS`` sends as many pods with nothing but the client.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import django

django.setup()

from django.db import connection, connections  # noqa: E402 - Django has to be set up first
from django.utils import timezone  # noqa: E402

from apps.catalog.models import Image, Purpose, Size  # noqa: E402
from apps.clusters import access  # noqa: E402
from apps.clusters.models import Cluster  # noqa: E402
from apps.core import actors, reconciling  # noqa: E402
from apps.flows import pods, selectors, services  # noqa: E402
from apps.flows.beginning import IN_FLIGHT  # noqa: E402
from apps.flows.models import Attempt, Flow, Run  # noqa: E402
from apps.flows.tasks import BATCH  # noqa: E402
from apps.tenants.models import Membership, Queue, Role, Team, User  # noqa: E402
from kubekit.build.task import task_pod  # noqa: E402
from kubekit.client import Cluster as Client  # noqa: E402
from kubekit.credentials import Credentials  # noqa: E402
from mlportal.celery import app  # noqa: E402

#: As ``mlportal.programs.worker`` starts.
THREADS = 8
ROOM = {"cpu_millis": 10**9, "memory_bytes": 1 << 50, "storage_bytes": 1 << 50, "pods": 10**6, "claims": 10}


class Work:
    """Three clusters with a queue and a flow each."""

    def __init__(self, ports: list[int]) -> None:
        app.set_default()
        Image.objects.create(name="python", reference="mlportal/python:1", purpose=Purpose.TASK)
        Size.objects.create(name="small", cpu_millis=500, memory_bytes=1 << 29)
        team, user = Team.objects.create(name="bench"), User.objects.create(username="bench")
        Membership.objects.create(team=team, user=user, role=Role.ADMIN)
        actor = actors.Actor(user_id=user.pk, name=user.username)
        self.flows: list[Flow] = []
        for number, port in enumerate(ports):
            credentials = Credentials(server=f"http://127.0.0.1:{port}", token="bench")
            cluster = Cluster.objects.create(
                name=f"c{number}", server=credentials.server, credentials=access.pack(credentials), version="v1.36.0",
                apps_domain="a.test", state="connected", trusted=True,
            )  # fmt: skip
            queue = Queue.objects.create(
                name=f"q{number}", team=team, cluster=cluster, namespace=f"bench-{number}", state="ready", **ROOM
            )
            self.flows.append(services.create_flow(actor=actor, document=document(queue.name)))

    def make(self, tasks: int, clusters: int, *, dead: bool) -> None:
        """Ready attempts, as the schedule makes them; a dead cluster is known to be away, as its watch says."""
        Attempt.objects.as_system().update(due_at=None, state="succeeded")
        Cluster.objects.as_system().update(state="connected")
        if dead:
            Cluster.objects.as_system().filter(pk=self.flows[clusters - 1].queue.cluster_id).update(state="unreachable")
        now = timezone.now()
        runs, attempts = [], []
        for number in range(tasks):
            flow = self.flows[number % clusters]
            run = Run(
                id=uuid.uuid4(), flow=flow, version=flow.version, queue=flow.queue, state="queued", state_since=now,
                trigger="manual", parameters={},
            )  # fmt: skip
            runs.append(run)
            attempts.append(
                Attempt(
                    run=run, queue=flow.queue, node="main", number=1, state="queued", state_since=now, not_before=now,
                    due_at=now,
                )
            )  # fmt: skip
        Run.objects.bulk_create(runs)
        Attempt.objects.bulk_create(attempts)
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")


def document(queue: str) -> dict[str, Any]:
    """A flow of one program."""
    node = {
        "name": "main", "executor": "container", "image": "python", "size": "small", "command": ["true"],
        "retries": {"count": 0, "interval_s": 0}, "timeout_s": 3600,
    }  # fmt: skip
    return {"name": f"bench-{queue}", "queue": queue, "schedules": [], "nodes": [node], "alerts": []}


class Counted:
    """SQL statements of all threads."""

    def __init__(self) -> None:
        self.statements = 0

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        self.statements += 1
        return execute(sql, params, many, context)


def in_threads(work: Callable[[], None], count: int) -> Counted:
    """The same in each of so many threads, until all are done."""
    counted = Counted()

    def run() -> None:
        with connection.execute_wrapper(counted):
            work()
        connections.close_all()

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return counted


def ours() -> None:
    """What ``flows.start_queued`` does, again and again."""
    while reconciling.reconcile_due("attempt", limit=BATCH):
        pass


def bare() -> Callable[[], None]:
    """The client and the pods alone: built before, sent in turn."""
    waiting = []
    for attempt in Attempt.objects.as_system().filter(due_at__isnull=False).values_list("pk", flat=True):
        row = selectors.attempt(attempt)
        assert row is not None
        waiting.append((row.queue.cluster.server, task_pod(pods.current(row)[2])))
    clients = {server: Client(Credentials(server=server, token="bench")) for server, _pod in waiting}

    def send() -> None:
        while True:
            try:
                server, pod = waiting.pop()
            except IndexError:
                return
            clients[server].create(pod)

    return send


def main() -> None:
    """Serve the benchmark."""
    work = Work(json.loads(os.environ["BENCH_PORTS"]))
    reconciling.send_hint = lambda kind, pk: None  # no broker takes part
    print(json.dumps({"ready": True, "threads": IN_FLIGHT}), flush=True)
    for line in sys.stdin:
        who, *numbers = line.split()
        clusters, dead, tasks = (int(number) for number in numbers)
        work.make(tasks, clusters, dead=bool(dead))
        job, threads = (bare(), IN_FLIGHT * clusters) if who == "bare" else (ours, THREADS)
        before, began = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        counted = in_threads(job, threads)
        wall_s = time.perf_counter() - began
        after = resource.getrusage(resource.RUSAGE_SELF)
        cpu_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
        print(json.dumps({"wall_s": wall_s, "cpu_s": cpu_s, "sql": counted.statements}), flush=True)


if __name__ == "__main__":
    main()
