"""Queues, volumes and the watcher on a real API server (``KUBECONFIG``): what the portal believes is what it does.

KUBECONFIG=… python -m pytest -m cluster tests/clusters/test_against_cluster.py
"""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from apps.clusters import access, installation, services
from apps.clusters.models import Cluster, Node
from apps.clusters.watcher import Watcher
from apps.core import reconciling
from apps.storage import services as storage
from apps.tenants import checker, quotas
from apps.tenants.models import Queue
from apps.tenants.quotas import Quota
from apps.tenants.states import QueueState
from kubekit import client
from kubekit.credentials import parse_kubeconfig
from kubekit.errors import Invalid, NotFound, QuotaExceeded
from tests.tenants import make

pytestmark = [pytest.mark.cluster, pytest.mark.django_db(transaction=True)]
GIB = make.GIB


@pytest.fixture
def kubeconfig() -> str:
    return Path(os.environ["KUBECONFIG"]).read_text(encoding="utf-8")


@pytest.fixture
def cluster(kubeconfig: str, monkeypatch) -> Cluster:
    install = f"t{uuid.uuid4().hex[:10]}"
    installation.install_id.cache_clear()
    monkeypatch.setattr(installation, "secrets", type("S", (), {"token_hex": staticmethod(lambda n: install[1:])}))
    return services.register(
        actor=make.actor(make.admin()), name="real", kubeconfig=kubeconfig, trusted=True, apps_domain="apps.localhost"
    )


@pytest.fixture
def server(kubeconfig: str) -> client.Cluster:
    return client.Cluster(parse_kubeconfig(kubeconfig))


@pytest.fixture
def queue(cluster: Cluster, server: client.Cluster) -> Iterator[Queue]:
    quota = Quota(cpu_millis=2000, memory_bytes=4 * GIB, storage_bytes=5 * GIB, gpus={"nvidia.com/gpu": 1})
    admin = make.actor(make.admin())
    made = quotas.create(actor=admin, name="测试 queue", team=make.team(), cluster=cluster, quota=quota)
    reconcile("queue", made)
    yield made
    with suppress(NotFound):
        server.delete("Namespace", None, made.namespace)


def reconcile(kind: str, obj: Any) -> None:
    assert reconciling.reconcile_one(kind, obj.pk)
    obj.refresh_from_db()


def until(check: Callable[[], Any], seconds: float = 30) -> Any:
    end = time.monotonic() + seconds
    while not (found := check()):
        assert time.monotonic() < end, "did not come about"
        time.sleep(0.2)
    return found


def pod(namespace: str, cpu: str, gpus: int = 0) -> dict[str, Any]:
    resources: dict[str, str] = {"cpu": cpu, "memory": "64Mi", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    container = {"name": "main", "image": "x", "resources": {"requests": resources, "limits": resources}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"p-{uuid.uuid4().hex[:8]}", "namespace": namespace},
        "spec": {"containers": [container], "schedulerName": "nobody"},
    }


def test_a_queue_stands_and_bounds_what_runs_in_it(queue: Queue, server: client.Cluster) -> None:
    assert (queue.state, queue.reason) == (QueueState.READY, None)
    until(lambda: (server.get("ResourceQuota", queue.namespace, "queue").get("status") or {}).get("hard"))
    server.create(pod(queue.namespace, "1500m", gpus=1))
    for refused in (pod(queue.namespace, "600m"), pod(queue.namespace, "1m", gpus=1)):
        with pytest.raises(QuotaExceeded):
            server.create(refused, dry_run=True)
    privileged = pod(queue.namespace, "1m")
    privileged["spec"]["containers"][0]["securityContext"] = {"privileged": True}
    with pytest.raises(Exception, match="PodSecurity"):
        server.create(privileged, dry_run=True)


def test_applying_again_changes_nothing_and_a_changed_quota_arrives(queue: Queue, server: client.Cluster) -> None:
    before = server.get("ResourceQuota", queue.namespace, "queue")["metadata"]["resourceVersion"]
    spec_before = server.get("ResourceQuota", queue.namespace, "queue")["spec"]
    reconcile("queue", queue)
    after = server.get("ResourceQuota", queue.namespace, "queue")
    assert after["spec"] == spec_before
    assert int(after["metadata"]["resourceVersion"]) - int(before) < 3  # the controller may write its status meanwhile
    quotas.update(actor=make.actor(make.admin()), queue=queue, cpu_millis=500, gpus={})
    reconcile("queue", queue)
    hard = server.get("ResourceQuota", queue.namespace, "queue")["spec"]["hard"]
    assert hard["requests.cpu"] == "500m"
    assert "requests.nvidia.com/gpu" not in hard


def test_the_books_agree_and_a_pod_of_somebody_else_is_found(queue: Queue, server: client.Cluster) -> None:
    until(lambda: checker.check(queue).is_good)
    server.create(pod(queue.namespace, "250m"))
    report = until(lambda: found if not (found := checker.check(queue)).is_good else None)
    assert any("more runs than the portal let in" in row.fault for row in report.rows)


def test_a_queue_is_deleted_with_its_namespace(queue: Queue, server: client.Cluster) -> None:
    quotas.delete(actor=make.actor(make.admin()), queue=queue)

    def gone() -> bool:
        reconcile("queue", queue)
        return queue.state == QueueState.DELETED

    until(gone, 60)
    with pytest.raises(NotFound):
        server.get("Namespace", None, queue.namespace)


def test_a_volume_is_applied_never_shrunk_and_goes_when_deleted(queue: Queue, server: client.Cluster) -> None:
    owner = make.user(role_in=queue.team)
    volume = storage.create(actor=make.actor(owner), queue=queue, name="data", size_bytes=GIB)
    reconcile("volume", volume)
    claim = server.get("PersistentVolumeClaim", queue.namespace, volume.claim)
    assert claim["metadata"]["uid"] == volume.claim_uid
    assert claim["spec"]["resources"]["requests"] == {"storage": "1Gi"}
    with pytest.raises(Invalid):
        claim["spec"]["resources"]["requests"]["storage"] = "1Mi"
        for name in ("managedFields", "resourceVersion"):  # the cluster writes to it meanwhile
            claim["metadata"].pop(name)
        server.apply({**claim, "status": {}})
    storage.delete(actor=make.actor(owner), volume=volume)

    def gone() -> bool:
        reconcile("volume", volume)
        return volume.state == "deleted"

    until(gone)
    with pytest.raises(NotFound):
        server.get("PersistentVolumeClaim", queue.namespace, volume.claim)


async def test_the_watcher_stores_nodes_and_says_connected(cluster: Cluster) -> None:
    credentials = access.credentials_of(cluster)
    count = sync_to_async(lambda: Node.objects.as_system().filter(cluster=cluster).count(), thread_sensitive=False)
    fresh = sync_to_async(lambda: Cluster.objects.as_system().get(pk=cluster.pk), thread_sensitive=False)
    wanted = sync_to_async(lambda: len(list(access.connect(cluster).list("Node"))), thread_sensitive=False)
    async with await sync_to_async(Watcher, thread_sensitive=False)(cluster.pk, credentials) as watcher:
        task = asyncio.create_task(watcher.run())
        nodes = await wanted()
        for _ in range(100):
            if nodes and await count() == nodes:
                break
            await asyncio.sleep(0.1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert await count() == nodes > 0
    row = await fresh()
    assert row.state == "connected"
    assert row.version.startswith("v1.")
