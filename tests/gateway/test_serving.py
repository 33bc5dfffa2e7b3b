"""The gateway's table follows the rows: at once by what the database tells, and in any case now and then."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from django.db import connection

from apps.clusters import services as clusters
from apps.clusters.models import Cluster
from apps.core.control import in_thread
from apps.instances import services
from apps.instances.gateway import pages, serving, table
from apps.instances.gateway.places import Door
from apps.instances.spec import host_of
from tests.gateway.front import until
from tests.instances.conftest import World
from tests.tenants import make

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def gateway(world: World) -> World:
    """A world whose cluster is reached through the gateway."""
    Cluster.objects.as_system().filter(pk=world.queue.cluster_id).update(exposure="gateway", embedded=False)
    return world


@asynccontextmanager
async def following() -> AsyncIterator[serving.Gateway]:
    """A gateway that keeps its table."""
    stop, found = asyncio.Event(), serving.Gateway()
    loops = [asyncio.create_task(work(stop)) for work in (found.listen, found.follow)]
    async with asyncio.timeout(90):
        await found.read_once.wait()
    try:
        yield found
    finally:
        stop.set()
        await found.drain(0)
        await asyncio.gather(*loops)


def leads(found: serving.Gateway, host: str) -> Any:
    return found.places.at(host.encode())


def test_only_launches_of_clusters_that_the_gateway_leads_to_are_known(world: World) -> None:
    instance, stopped = world.running(), world.running(name="stopped")
    services.stop(actor=world.actor, instance=stopped)
    assert table.read().launches == []
    Cluster.objects.as_system().update(exposure="gateway", embedded=False)
    assert [one.instance_id for one in table.read().launches] == [instance.pk]
    assert [one.instance_id for one in table.read([stopped.pk]).launches] == []
    known = table.read([instance.pk]).launches[0]
    assert (known.host, known.pod, known.number) == (host_of(instance), instance.pod_name, instance.launch)
    assert not table.read().clusters[known.cluster_id][1], "by a kubeconfig, so its pods are not dialled"


def test_any_number_of_launches_is_read_in_at_most_four_statements(
    gateway: World, django_assert_max_num_queries: Any
) -> None:
    for number in range(3):
        gateway.running(name=f"n{number}")
    with django_assert_max_num_queries(4):
        assert len(table.read().launches) == 3


async def test_a_stop_and_a_start_are_known_at_the_commit_without_a_look(gateway: World, monkeypatch: Any) -> None:
    monkeypatch.setattr(serving, "FULL_S", 3600.0)
    instance = await in_thread(gateway.running)
    host = await in_thread(host_of, instance)
    async with following() as found:
        assert isinstance(leads(found, host), Door)
        await in_thread(lambda: services.stop(actor=gateway.actor, instance=instance))
        await until(lambda: leads(found, host) is pages.NOTHING_RUNS)
        other = await in_thread(lambda: gateway.create(name="another"))
        await until(lambda: leads(found, host_of(other)) is pages.STARTS)


async def test_another_way_to_reach_a_cluster_counts_at_once(world: World, monkeypatch: Any) -> None:
    monkeypatch.setattr(serving, "FULL_S", 3600.0)
    await in_thread(lambda: Cluster.objects.as_system().update(embedded=False))
    instance = await in_thread(world.running)
    host = await in_thread(host_of, instance)

    def choose(exposure: str) -> None:
        cluster = Cluster.objects.as_system().get(pk=world.queue.cluster_id)
        clusters.update(actor=make.actor(make.admin()), cluster=cluster, exposure=exposure)

    async with following() as found:
        assert leads(found, host) is pages.NOTHING_RUNS
        await in_thread(choose, "gateway")
        await until(lambda: isinstance(leads(found, host), Door))
        await in_thread(choose, "ingress")
        await until(lambda: leads(found, host) is pages.NOTHING_RUNS)


async def test_what_was_not_heard_is_found_by_looking(gateway: World, monkeypatch: Any) -> None:
    monkeypatch.setattr(serving, "FULL_S", 0.05)
    instance = await in_thread(gateway.running)
    host = await in_thread(host_of, instance)
    async with following() as found:
        monkeypatch.setattr(found, "_hear", lambda payload: None)
        assert isinstance(leads(found, host), Door)
        await in_thread(lambda: services.stop(actor=gateway.actor, instance=instance))
        await until(lambda: leads(found, host) is pages.NOTHING_RUNS)


async def test_a_lost_connection_to_the_database_is_made_again_and_ends_nobodys(
    gateway: World, monkeypatch: Any
) -> None:
    monkeypatch.setattr(serving, "FULL_S", 3600.0)
    instance = await in_thread(gateway.running)
    host = await in_thread(host_of, instance)

    def cut_all() -> None:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND query LIKE 'LISTEN %'"
            )

    async with following() as found:
        await in_thread(cut_all)
        assert isinstance(leads(found, host), Door)
        await in_thread(lambda: services.stop(actor=gateway.actor, instance=instance))
        await until(lambda: leads(found, host) is pages.NOTHING_RUNS)
