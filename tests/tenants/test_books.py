"""The three books compared without being asked: what lasts is seen by administrators (failure F13)."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from apps.clusters import access
from apps.core.models import OutboxMessage, Trouble
from apps.tenants import books
from apps.tenants.models import Queue
from tests.clusters.fake import FakeCluster
from tests.tenants import make

pytestmark = pytest.mark.django_db


@pytest.fixture
def queue() -> Queue:
    return make.queue()


@pytest.fixture
def cluster(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """With a quota that counts a pod that is no more."""
    found = FakeCluster()
    monkeypatch.setattr(access, "connect", lambda _row: found)
    count(found, queue, "1")
    return found


def count(cluster: FakeCluster, queue: Queue, cpu: str, **more: Any) -> None:
    """What the quota's controller says."""
    quota = {"kind": "ResourceQuota", "metadata": {"uid": "q"}, "status": {"used": {"requests.cpu": cpu, **more}}}
    cluster.objects["ResourceQuota", queue.namespace, "queue"] = quota


def five_minutes_later() -> None:
    """Let the trouble have begun so long ago."""
    Trouble.objects.as_system().update(since=timezone.now() - books.EVERY)


def test_f13_a_count_that_stays_too_high_is_told_to_administrators_once(cluster: FakeCluster, queue: Queue) -> None:
    make.admin(email="admin@example.org")
    books.check_all()
    assert not OutboxMessage.objects.as_system().exists(), "it may be behind for a moment"
    for _ in range(2):
        five_minutes_later()
        books.check_all()
    (mail,) = OutboxMessage.objects.as_system().all()
    assert queue.name in mail.payload["text"]
    (trouble,) = Trouble.objects.as_system().all()
    assert (trouble.subject, trouble.params["resources"]) == (str(queue.pk), ["cpu_millis"])
    assert queue.name in trouble.reason.sentence


def test_what_agrees_again_is_over(cluster: FakeCluster, queue: Queue) -> None:
    books.check_all()
    count(cluster, queue, "0")
    books.check_all()
    assert not Trouble.objects.as_system().exists()


def test_another_difference_begins_anew(cluster: FakeCluster, queue: Queue) -> None:
    make.admin(email="admin@example.org")
    books.check_all()
    five_minutes_later()
    count(cluster, queue, "0", **{"requests.memory": "1Gi"})
    books.check_all()
    assert not OutboxMessage.objects.as_system().exists()
    assert timezone.now() - Trouble.objects.as_system().get().since < books.EVERY


def test_a_cluster_that_does_not_answer_changes_nothing(cluster: FakeCluster, queue: Queue) -> None:
    books.check_all()
    cluster.away = True
    books.check_all()
    assert Trouble.objects.as_system().count() == 1


def test_the_books_of_a_queue_that_went_are_closed(cluster: FakeCluster, queue: Queue) -> None:
    books.check_all()
    Queue.objects.as_system().filter(pk=queue.pk).update(state="deleted")
    books.check_all()
    assert not Trouble.objects.as_system().exists()
