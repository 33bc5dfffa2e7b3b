"""Credentials that nobody can read or that a cluster refuses: every object says so, and nothing is tried for ever."""

from __future__ import annotations

import pytest
from django.db import connection

from apps.clusters import access, watcher
from apps.clusters.models import Cluster
from apps.clusters.states import ClusterState
from apps.core import reconciling
from apps.instances.states import InstanceState
from apps.storage import services as storage
from apps.tenants.states import QueueState
from kubekit.errors import Unauthorized
from tests.instances.conftest import World
from tests.tenants import make

CONNECT = access.connect
BAD_CA = '{"server": "https://203.0.113.1", "token": "t", "ca_data": "not a certificate"}'


def spoil(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """Make the credentials of the row useless in one of four ways."""
    monkeypatch.setattr(access, "connect", CONNECT)
    rows = Cluster.objects.as_system().filter(pk=cluster.pk)
    if how == "other key":
        with connection.cursor() as cursor:
            cursor.execute("UPDATE clusters_cluster SET credentials = 'gAAAAA' WHERE id = %s", [cluster.pk])
    elif how == "refused":

        def refuse(row: Cluster) -> None:
            raise Unauthorized("the server has asked for the client to provide credentials", status=401)

        monkeypatch.setattr(access, "connect", refuse)
    else:
        rows.update(credentials={"not json": "canary", "bad certificate": BAD_CA}[how])


@pytest.mark.parametrize("how", ["other key", "not json", "bad certificate", "refused"])
def test_instance_queue_and_volume_say_why_and_look_again(world: World, monkeypatch, how: str) -> None:
    instance = world.running()
    volume = storage.create(actor=world.actor, queue=world.queue, name="data", size_bytes=1 << 30)
    spoil(world.queue.cluster, monkeypatch, how)
    world.reconcile(instance)
    assert (instance.state, instance.reason_code) == (InstanceState.UNREACHABLE, "cluster_unauthorized")
    assert instance.reason.sentence.startswith("The cluster no longer accepts")
    assert "canary" not in str(instance.reason_evidence)
    for kind, obj in (("queue", world.queue), ("volume", volume)):
        before = obj.state
        assert reconciling.reconcile_one(kind, obj.pk)
        obj.refresh_from_db()
        assert (obj.state, obj.reason_code, obj.failures) == (before, "cluster_unauthorized", 0)
        assert obj.due_at is not None


def test_a_queue_is_ready_without_a_word_once_the_credentials_are_good_again(world: World, monkeypatch) -> None:
    spoil(world.queue.cluster, monkeypatch, "not json")
    reconciling.reconcile_one("queue", world.queue.pk)
    world.cluster.objects.clear()
    monkeypatch.setattr(access, "connect", lambda row: world.cluster)
    reconciling.reconcile_one("queue", world.queue.pk)
    world.queue.refresh_from_db()
    assert (world.queue.state, world.queue.reason_code) == (QueueState.READY, "")


@pytest.mark.parametrize("how", ["other key", "not json"])
def test_the_cluster_says_it_too_and_the_others_are_watched_on(world: World, monkeypatch, how: str) -> None:
    monkeypatch.setattr(watcher, "close_old_connections", lambda: None)
    other = make.cluster()
    spoil(world.queue.cluster, monkeypatch, how)
    assert set(watcher._clusters()) == {other.pk}
    row = Cluster.objects.as_system().get(pk=world.queue.cluster_id)
    assert (row.state, row.reason_code) == (ClusterState.UNREACHABLE, "cluster_credentials")
