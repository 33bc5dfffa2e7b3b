"""Ledger, quota and pods compared."""

from __future__ import annotations

import uuid

import pytest
from django.test import Client

from apps.core import reconciling
from apps.core.errors import Forbidden
from apps.tenants import checker, ledger, quotas
from apps.tenants.checker import compare
from apps.tenants.ledger import Amount
from tests.clusters.fake import FakeCluster
from tests.tenants import make

GIB = make.GIB


def pod(cpu: str = "1", limit: str = "2", phase: str = "Running") -> dict:
    resources = {"requests": {"cpu": cpu, "memory": "1Gi"}, "limits": {"cpu": limit, "memory": "1Gi"}}
    return {"spec": {"containers": [{"resources": resources}]}, "status": {"phase": phase}}


def faults(**books) -> dict[str, str]:
    given = {"held": {}, "quota": {}, "pods": [], "claims": [], **books}
    return {row.resource: row.fault for row in compare(**given) if row.fault}


def test_books_that_agree_have_no_fault() -> None:
    books = {"held": {"cpu_millis": 4000, "memory_bytes": 2 * GIB, "pods": 2, "volumes": 1, "storage_bytes": GIB}}
    books |= {"quota": {"cpu_millis": 2000, "memory_bytes": 2 * GIB, "storage_bytes": GIB}}
    claim = {"spec": {"resources": {"requests": {"storage": "1Gi"}}}}
    assert faults(**books, pods=[pod(), pod(), pod(phase="Succeeded")], claims=[claim]) == {}


def test_what_is_queued_holds_room_without_a_pod() -> None:
    assert faults(held={"cpu_millis": 4000}) == {}


def test_a_count_that_did_not_fall_and_one_that_is_behind_are_told_apart() -> None:
    held = {"cpu_millis": 9000, "memory_bytes": 9 * GIB}
    assert faults(held=held, quota={"cpu_millis": 3000, "memory_bytes": GIB}, pods=[pod()]) == {
        "cpu_millis": "the cluster's count did not fall when something ended"
    }
    assert faults(held=held, quota={"memory_bytes": GIB}, pods=[pod()]) == {
        "cpu_millis": "the cluster's count is behind"
    }


def test_a_pod_that_the_portal_does_not_know_of_is_found_by_its_limits() -> None:
    held = {"cpu_millis": 1999, "memory_bytes": GIB}
    quota = {"cpu_millis": 1000, "memory_bytes": GIB}
    assert faults(held=held, quota=quota, pods=[pod()]) == {"cpu_millis": "more runs than the portal let in"}


def test_gpus_are_compared_by_resource() -> None:
    resources = {"requests": {"nvidia.com/gpu": "2"}, "limits": {"nvidia.com/gpu": "2"}}
    gpu_pod = {"spec": {"containers": [{"resources": resources}]}, "status": {}}
    quota = checker.used_of({"requests.nvidia.com/gpu": "2", "limits.cpu": "9", "pods": "1", "requests.cpu": "?"})
    assert quota == {"nvidia.com/gpu": 2}
    assert faults(held={"nvidia.com/gpu": 2}, quota=quota, pods=[gpu_pod]) == {}
    assert list(faults(held={"nvidia.com/gpu": 1}, quota=quota, pods=[gpu_pod])) == ["nvidia.com/gpu"]


@pytest.mark.django_db
def test_the_page_compares_and_an_administrator_lets_the_cluster_count_anew(fake_cluster: FakeCluster) -> None:
    admin = make.admin()
    client = Client()
    client.force_login(admin)
    queue = make.queue()
    assert reconciling.reconcile_one("queue", queue.pk)
    ledger.reserve(queue_id=queue.pk, kind="thing", object_id=uuid.uuid4(), amount=Amount(cpu_millis=1000))
    assert "agree" in client.get(f"/queues/{queue.pk}/check/result").content.decode()
    fake_cluster.one("ResourceQuota")["status"] = {"used": {"requests.cpu": "3"}}
    page = client.get(f"/queues/{queue.pk}/check/result").content.decode()
    assert "did not fall when something ended" in page.replace("&#x27;", "'")
    client.post(f"/queues/{queue.pk}/recalculate")
    assert "ResourceQuota" not in fake_cluster.kinds()
    assert reconciling.reconcile_one("queue", queue.pk)
    assert checker.check(queue).is_good


@pytest.mark.django_db
def test_a_silent_cluster_is_told_and_members_cannot_recalculate(fake_cluster: FakeCluster) -> None:
    queue = make.queue()
    fake_cluster.away = True
    assert "does not answer" in checker.check(queue).error
    member = make.actor(make.user(role_in=queue.team))
    with pytest.raises(Forbidden) as refused:
        quotas.recalculate(actor=member, queue=queue)
    assert refused.value.code == "admin_only"


@pytest.mark.django_db
def test_counting_anew_deletes_the_quota_that_was_looked_at_and_no_other(
    fake_cluster: FakeCluster, monkeypatch
) -> None:
    queue = make.queue()
    reconciling.reconcile_one("queue", queue.pk)
    uids: list[str | None] = []
    monkeypatch.setattr(fake_cluster, "delete", lambda kind, namespace, name, *, uid=None: uids.append(uid))
    checker.recalculate(queue)
    assert uids == [fake_cluster.one("ResourceQuota")["metadata"]["uid"]]
