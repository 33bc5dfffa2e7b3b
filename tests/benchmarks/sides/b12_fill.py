"""B12, filled: the rows of an installation that has been used for years, made beside a running portal.

What has objects in the cluster (queues, homes) is left to the portal's own reconcilers; instances are stopped, and no
flow fires while anybody measures.
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mlportal.settings")
django.setup()

from django.db import connection  # noqa: E402 - Django has to be set up first
from django.utils import timezone  # noqa: E402

from apps.catalog.models import Image, Purpose, Size  # noqa: E402
from apps.clusters.models import Cluster  # noqa: E402
from apps.core import wake  # noqa: E402
from apps.flows import schedule as cron  # noqa: E402
from apps.flows.models import Flow, FlowVersion, Schedule  # noqa: E402
from apps.instances.models import Instance  # noqa: E402
from apps.storage.models import Volume, VolumeKind  # noqa: E402
from apps.tenants.models import Membership, Queue, Team, User  # noqa: E402
from kubekit import names  # noqa: E402
from tests.benchmarks.sides.b12_size import FLOWS, INSTANCES, TENANTS  # noqa: E402

GIB = 1 << 30
BATCH = 2_000


def queues() -> None:
    """People, teams, and a queue for each, which the portal makes namespaces of."""
    cluster = Cluster.objects.as_system().get()
    people = User.objects.bulk_create(User(username=f"person-{number:04}") for number in range(TENANTS))
    teams = Team.objects.bulk_create(Team(name=f"team-{number:04}") for number in range(TENANTS))
    Membership.objects.bulk_create(Membership(team=team, user=user) for team, user in zip(teams, people, strict=True))
    rows = []
    for team in teams:
        queue = Queue(
            name=team.name, team=team, cluster=cluster, cpu_millis=8000, memory_bytes=32 * GIB,
            storage_bytes=500 * GIB, state="creating", due_at=timezone.now(),
        )  # fmt: skip
        queue.namespace = names.namespace_name(queue.name, queue.pk)
        rows.append(queue)
    Queue.objects.bulk_create(rows)
    wake.notify(wake.DUE)


def rest() -> None:
    """A home for each queue, stopped instances, and flows that fire on the first of a month that is not near."""
    image = Image.objects.as_system().filter(purpose=Purpose.DEV).first()
    size = Size.objects.as_system().order_by("position").first()
    made = list(Queue.objects.as_system().filter(name__startswith="team-").order_by("name").select_related("team"))
    owners = {row.team_id: row.user for row in Membership.objects.as_system().select_related("user")}
    homes = []
    for queue in made:
        owner = owners[queue.team_id]
        home = Volume(
            name=f"home-{owner.username}", queue=queue, owner=owner, kind=VolumeKind.HOME, size_bytes=10 * GIB,
            state="creating", due_at=timezone.now(),
        )  # fmt: skip
        home.claim = names.claim_name(home.name, home.pk)
        homes.append(home)
    Volume.objects.bulk_create(homes)
    now = timezone.now()
    Instance.objects.bulk_create(
        (
            Instance(
                name=f"instance-{number}", owner=home.owner, queue=home.queue, image=image, size=size, home=home,
                desired="stopped", state="stopped", state_since=now, generation=2, observed_generation=2, launch=1,
            )
            for number in range(INSTANCES // TENANTS)
            for home in homes
        ),
        batch_size=BATCH,
    )  # fmt: skip
    _flows(homes, image, size)
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
    wake.notify(wake.DUE)


def _flows(homes: list[Volume], image: Any, size: Any) -> None:
    month = (datetime.now(UTC) + timedelta(days=180)).month
    expression = f"30 4 1 {month} *"
    due = cron.after(expression, "UTC", datetime.now(UTC))
    node = {"name": "main", "executor": "container", "image": image.name, "size": size.name, "command": ["true"]}
    for first in range(FLOWS // TENANTS):
        rows = [Flow(name=f"flow-{first}", queue=home.queue, owner=home.owner, state="active") for home in homes]
        Flow.objects.bulk_create(rows, batch_size=BATCH)
        versions = [
            FlowVersion(
                flow=row,
                number=1,
                document={"name": row.name, "queue": row.queue.name, "schedules": [], "nodes": [node], "alerts": []},
            )
            for row in rows
        ]
        FlowVersion.objects.bulk_create(versions, batch_size=BATCH)
        for row, version in zip(rows, versions, strict=True):
            row.version = version
        Flow.objects.as_system().bulk_update(rows, ["version"], batch_size=BATCH)
        lines = (Schedule(flow=row, cron=expression, timezone="UTC", next_fire_at=due) for row in rows)
        Schedule.objects.bulk_create(lines, batch_size=BATCH)


if __name__ == "__main__":
    {"queues": queues, "rest": rest}[sys.argv[1]]()
