"""Queues and instances by the portal's own services and reconcilers, in a process beside the portal's.

A request each over HTTP would take longer than all that is measured. The portal's worker helps, by the hints it gets.

    PORTAL_HOME=… PORTAL_CLUSTER=… python -m tests.scale.filling fill QUEUES INSTANCES
    PORTAL_HOME=… PORTAL_CLUSTER=… python -m tests.scale.filling reach KUBECONFIG   # by another way from now on
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import django

django.setup()

from django.db import connections  # noqa: E402 - Django has to be set up first

from apps.clusters import services as clusters  # noqa: E402
from apps.clusters.models import Cluster  # noqa: E402
from apps.core import actors, reconciling  # noqa: E402
from apps.instances import services  # noqa: E402
from apps.instances.models import Instance  # noqa: E402
from apps.tenants import quotas  # noqa: E402
from apps.tenants.models import Queue, Team, User  # noqa: E402
from mlportal.celery import app  # noqa: E402

GIB = 1 << 30
THREADS = 6
BATCH = 4
PATIENCE_S = 600.0


def reach(kubeconfig: Path) -> None:
    """The portal has other credentials for its cluster from now on."""
    text, cluster = kubeconfig.read_text(encoding="utf-8"), Cluster.objects.as_system().get()
    actor = actors.from_user(User.objects.get(username="admin"))
    clusters.replace_credentials(actor=actor, cluster=cluster, kubeconfig=text, trusted=True)


def fill(queues: int, instances: int) -> None:
    """Make them all and see them run; says what it took on standard output."""
    begun = time.monotonic()
    actor = actors.from_user(User.objects.get(username="admin"))
    team, cluster = Team.objects.as_system().get(name="default"), Cluster.objects.as_system().get()
    quota = quotas.Quota(cpu_millis=4000, memory_bytes=8 * GIB, storage_bytes=100 * GIB)

    def queue(number: int) -> None:
        quotas.create(actor=actor, name=f"scale-{number:03}", team=team, cluster=cluster, quota=quota)

    def instance(number: int) -> None:
        name = f"scale-{number % queues:03}"
        services.create(actor=actor, queue=name, image="jupyter", size="small", name=f"i-{number:04}")

    made = Queue.objects.as_system().filter(name__startswith="scale-")
    _fill(queue, range(queues), "queue", lambda: made.exclude(state="ready").count())
    print(f"{queues} queues ready after {time.monotonic() - begun:.0f} s", flush=True)
    _fill(instance, range(instances), "instance", lambda: Instance.objects.as_system().exclude(state="running").count())
    print(f"{instances} instances running after {time.monotonic() - begun:.0f} s", flush=True)


def _fill(make: Callable[[int], None], numbers: range, kind: str, missing: Callable[[], int]) -> None:
    """Ask for all of them while others of our threads bring them about; back when the portal knows that all are there.

    The second half of the threads takes what is due from the beginning on, the first half once all was asked for.
    """
    end = time.monotonic() + PATIENCE_S
    asked = False

    def ask(part: int) -> None:
        for number in numbers[part::half]:
            make(number)

    def bring() -> None:
        while not asked or missing():
            if not reconciling.reconcile_due(kind, limit=BATCH):
                assert time.monotonic() < end, f"{missing()} of kind {kind} are still not there"
                time.sleep(0.5)

    def closing(work: Callable[[], None]) -> None:
        try:
            work()
        finally:
            connections.close_all()

    half = THREADS // 2
    with ThreadPoolExecutor(THREADS) as threads:
        others = [threads.submit(closing, bring) for _ in range(THREADS - half)]
        askers = [threads.submit(closing, lambda part=part: ask(part)) for part in range(half)]  # type: ignore[misc]
        try:
            for one in askers:
                one.result()
        finally:
            asked = True
        print(f"asked for {len(numbers)} of kind {kind}", flush=True)
        closing(bring)
        for one in others:
            one.result()


if __name__ == "__main__":
    app.set_default()
    if sys.argv[1] == "reach":
        reach(Path(sys.argv[2]))
    else:
        fill(int(sys.argv[2]), int(sys.argv[3]))
