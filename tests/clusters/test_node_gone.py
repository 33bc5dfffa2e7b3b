"""A node that vanishes from its cluster: what ran there says so at once, though its pod still reads "ready"."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

from django.utils import timezone

from apps.clusters import capacity, watcher, watching
from apps.clusters.models import Node
from apps.instances import watch
from apps.instances.wiring import watching as wired
from kubekit.credentials import Credentials
from tests.instances.conftest import World, world  # noqa: F401


def node(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}


def test_an_instance_on_a_node_that_vanished_is_unreachable_with_its_name_and_comes_back(world: World, hints) -> None:  # noqa: F811
    instance = world.running()
    assert instance.state == "running"
    columns = {"cluster": instance.queue.cluster, "ready": True, "seen_at": timezone.now()}
    row = Node.objects.create(name=instance.node, **columns)
    assert world.reconcile(instance).state == "running", "its node is there"
    Node.objects.create(name="another", **columns)
    row.delete()
    hints.clear()
    watch.node_gone(instance.queue.cluster_id, instance.node)
    assert [hint.args for hint in hints] == [("instance", str(instance.pk))]
    world.reconcile(instance)
    assert (instance.state, instance.reason_code) == ("unreachable", "node_lost")
    assert instance.reason.sentence == (
        f"The node {instance.node} has stopped answering, so nobody knows whether it still runs."
    )
    world.cluster.objects["Node", None, instance.node] = node(instance.node)
    assert world.reconcile(instance).state == "running", "the rows of nodes were behind"


def test_before_any_node_was_seen_nobody_is_accused(world: World) -> None:  # noqa: F811
    instance = world.running()
    assert world.reconcile(instance).state == "running"


async def test_the_watcher_tells_of_a_gone_node_after_its_row_went(monkeypatch) -> None:
    order: list[str] = []
    done = asyncio.Event()
    loop = asyncio.get_running_loop()

    def told(pk: Any, name: str) -> None:
        order.append(f"gone {name}")
        loop.call_soon_threadsafe(done.set)

    monkeypatch.setattr(watching, "registry", watching.Registry(nodes_gone=[told]))
    monkeypatch.setattr(watcher, "install_id", lambda: "p1")
    monkeypatch.setattr(watcher, "FLUSH_AFTER_S", 0.01)

    def store(pk: Any, changes: capacity.Changes) -> capacity.Stored:
        order.append(f"rows {sorted(changes.rows)}")
        return capacity.Stored(written=1, gone=["a"])

    monkeypatch.setattr(watcher.capacity, "store", store)
    monkeypatch.setattr(watcher.connections, "close_all", lambda: None)
    async with watcher.Watcher(uuid4(), Credentials(server="http://127.0.0.1:1", token="t")) as found:
        found.capacity.sync_nodes([node("a"), node("b")])
        found.capacity.sync_pods([])
        await found._changed("nodes", "DELETED", node("a"))
        task = asyncio.create_task(found._flush())
        await asyncio.wait_for(done.wait(), 90)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert order == ["rows ['b']", "gone a"]


def test_instances_hear_of_it() -> None:
    assert watch.node_gone in wired.registry.nodes_gone
