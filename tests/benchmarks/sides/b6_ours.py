"""B6, this project: the watch of one cluster as the control process runs it, with statements counted."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import django

BEGAN = time.monotonic()
django.setup()

import psycopg  # noqa: E402 - Django has to be set up first

from apps.catalog.models import Image, Purpose, Size  # noqa: E402
from apps.clusters import access, watcher  # noqa: E402
from apps.clusters.models import Cluster, Installation  # noqa: E402
from apps.core import control  # noqa: E402
from apps.instances.models import Instance  # noqa: E402
from apps.storage.models import Volume, VolumeKind  # noqa: E402
from apps.tenants.models import Queue, Team, User  # noqa: E402
from kubekit.credentials import Credentials  # noqa: E402
from mlportal.celery import app  # noqa: E402
from tests.benchmarks.sides import b6_pods as pods  # noqa: E402
from tests.benchmarks.sides.meter import Meter, say, serve, whole  # noqa: E402

counted: Counter[str] = Counter()


def fill(server: str) -> str:
    """The rows behind the pods, all running; a session of an administrator, for the browser."""
    Installation.objects.create(pk=1, install=pods.INSTALL)
    credentials = access.pack(Credentials(server=server, token="bench"))
    cluster = Cluster.objects.create(
        name="bench", server=server, credentials=credentials, apps_domain="a.test", state="connected", trusted=True,
        version="v1.36.3",
    )  # fmt: skip
    team = Team.objects.create(name="bench")
    user = User.objects.create_user(username="bench", is_platform_admin=True)
    image = Image.objects.create(name="jupyter", reference="mlportal/jupyter:1", purpose=Purpose.DEV)
    size = Size.objects.create(name="small", cpu_millis=500, memory_bytes=1 << 30)
    queues = [
        Queue(
            name=f"bench-{number:03}", team=team, cluster=cluster, namespace=pods.namespace(number), cpu_millis=10**6,
            memory_bytes=1 << 50, storage_bytes=1 << 50, state="ready",
        )
        for number in range(pods.QUEUES)
    ]  # fmt: skip
    Queue.objects.bulk_create(queues)
    homes = [
        Volume(queue=queue, owner=user, name="home", kind=VolumeKind.HOME, size_bytes=1, claim="home", state="bound")
        for queue in queues
    ]
    Volume.objects.bulk_create(homes)
    now = datetime.now(UTC)
    Instance.objects.bulk_create(
        Instance(
            pk=pods.instance_id(number), name=f"i-{number:04}", owner=user, queue=queues[number % pods.QUEUES],
            image=image, size=size, home=homes[number % pods.QUEUES], state="running", state_since=now,
            observed_generation=1, launch=1, at_rest=False, pod_uid=pods.pod_uid(number),
            node=f"node-{number % 2000:04}", ready_at=now, start_requested_at=now,
            stages=dict.fromkeys(("scheduled", "volume", "image", "started", "ready"), now.isoformat()),
        )
        for number in range(pods.PODS)
    )  # fmt: skip
    # The list of volumes that the played server gives is empty; none is looked for.
    Volume.objects.as_system().update(state="creating", due_at=None)
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as link:
        link.execute("VACUUM ANALYZE")
    return _session(user)


def _session(user: Any) -> str:
    from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
    from django.contrib.sessions.backends.db import SessionStore

    store = SessionStore()
    store[SESSION_KEY] = str(user.pk)
    store[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
    store[HASH_SESSION_KEY] = user.get_session_auth_hash()
    store.save()
    return str(store.session_key)


def count() -> None:
    """Every statement that goes to the server from now on, and every transaction's end."""
    execute, commit = psycopg.Cursor.execute, psycopg.Connection.commit

    def counting(self: Any, query: Any, *args: Any, **options: Any) -> Any:
        counted["sql"] += 1
        found = execute(self, query, *args, **options)
        text = query if isinstance(query, str) else query.as_string(self)
        if text.startswith(("UPDATE", "WITH")):
            counted["rows"] += max(found.rowcount, 0)
        return found

    def ending(self: Any) -> None:
        counted["transactions"] += 1
        commit(self)

    psycopg.Cursor.execute = counting  # type: ignore[method-assign]
    psycopg.Connection.commit = ending  # type: ignore[method-assign]


async def run() -> None:
    """Watch until there are no more commands."""
    app.set_default()
    count()
    meter = Meter()
    cluster = await control.in_thread(lambda: Cluster.objects.as_system().get())
    credentials = await control.in_thread(access.credentials_of, cluster)
    async with await control.in_thread(watcher.Watcher, cluster.pk, credentials) as one:
        task = asyncio.create_task(one.run())
        await asyncio.sleep(0)
        await one._watches["pods"].synced.wait()
        say(serving_ms=1000 * (time.monotonic() - BEGAN), **whole(), **counted)

        async def act(words: list[str]) -> dict[str, Any]:
            if words[0] == "begin":
                counted.clear()
                meter.begin()
                return {}
            return {**meter.read(), **{name: counted[name] for name in ("sql", "transactions", "rows")}}

        await serve(act)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["fill"]:
        say(session=fill(sys.argv[2]))
    else:
        asyncio.run(run())
