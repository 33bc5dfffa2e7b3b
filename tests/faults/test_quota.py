"""Namespaces and quotas: what is going away, what is counted wrongly, and keys that would bind nothing."""

from __future__ import annotations

from typing import Any

import pytest

from apps.core import reconciling
from apps.core.actors import Actor
from apps.tenants import checker, quotas
from apps.tenants.models import Queue
from apps.tenants.quotas import Quota
from apps.tenants.states import QueueState
from kubekit.build import queue as build
from kubekit.errors import NamespaceTerminating, NotFound, QuotaExceeded, SpecError
from kubekit.specs import Identity, QueueSpec
from tests.faults.world import GIB, World, fresh, until
from tests.tenants import make

FINALIZER = "example.org/backup"


@pytest.fixture
def admin(world: World) -> Actor:
    """A platform administrator."""
    return make.actor(make.admin())


def new_queue(world: World, admin: Actor, name: str) -> Queue:
    """A queue that stands in the cluster."""
    quota = Quota(cpu_millis=1000, memory_bytes=GIB, storage_bytes=GIB)
    made = quotas.create(actor=admin, name=name, team=world.team, cluster=world.cluster, quota=quota)
    made = world.look(made, kind="queue")
    assert made.state == QueueState.READY
    return made


def pod(namespace: str, name: str, finalizers: list[str] | None = None, **resources: str) -> dict[str, Any]:
    """A pod that asks for something."""
    asked = {"cpu": "100m", "memory": "64Mi", **{key.replace("_", "/"): value for key, value in resources.items()}}
    container = {"name": "main", "image": "x", "resources": {"requests": asked, "limits": asked}}
    metadata = {"name": name, "namespace": namespace, "finalizers": finalizers or []}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}


# -- F10 ----------


def test_f10_a_queue_whose_namespace_is_held_says_by_what_and_its_name_can_be_used_again(
    world: World, admin: Actor
) -> None:
    old = new_queue(world, admin, "again")
    world.direct.create(pod(old.namespace, "held", [FINALIZER]))
    quotas.delete(actor=admin, queue=old)
    old = world.look(old, kind="queue")

    def said() -> bool:
        nonlocal old
        old = world.look(old, kind="queue")
        return any(FINALIZER in line for line in old.reason_evidence)

    until("what holds the namespace", said)
    assert (old.state, old.reason_code) == ("deleting", "queue_namespace_ending")
    with pytest.raises(NamespaceTerminating):
        world.direct.create(pod(old.namespace, "late"))
    world.direct.patch_merge("Pod", old.namespace, "held", {"metadata": {"finalizers": None}})
    old = world.rounds(old, "deleted", kind="queue", most=200)
    new = new_queue(world, admin, "again")
    assert new.namespace != old.namespace
    assert list(world.direct.list("Pod", new.namespace)) == []
    world.direct.delete("Namespace", None, new.namespace)


def test_f10_a_namespace_of_somebody_else_is_not_deleted_with_our_queue(world: World, admin: Actor) -> None:
    queue = new_queue(world, admin, "foreign")
    labels = {"mlportal.io/install": "another-portal"}
    world.direct.patch_merge("Namespace", None, queue.namespace, {"metadata": {"labels": labels}})
    quotas.delete(actor=admin, queue=queue)
    queue = world.look(queue, kind="queue")
    assert (queue.state, queue.reason_code) == ("deleting", "queue_namespace_foreign")
    assert not world.direct.get("Namespace", None, queue.namespace)["metadata"].get("deletionTimestamp")
    world.direct.delete("Namespace", None, queue.namespace)


def test_f10_a_delete_of_the_namespace_whose_answer_was_lost_is_finished(world: World, admin: Actor) -> None:
    queue = new_queue(world, admin, "lost")
    quotas.delete(actor=admin, queue=queue)
    world.proxy.plan("drop", method="DELETE", path=r"/namespaces/")
    queue = world.rounds(queue, "deleted", kind="queue", most=200)
    with pytest.raises(NotFound):
        world.direct.get("Namespace", None, queue.namespace)


# -- F13 ----------


def test_f13_a_count_that_did_not_fall_is_found_and_counted_anew(world: World, admin: Actor) -> None:
    until("books that agree", lambda: checker.check(world.queue).is_good)

    def miscount() -> None:
        quota = world.localkube.server.store.get("resourcequotas", world.queue.namespace, "queue")
        quota["status"]["used"] |= {"requests.cpu": "3", "pods": "6"}
        world.localkube.server.store.update("resourcequotas", quota, subresource="status")

    world.localkube.call(miscount)
    report = checker.check(world.queue)
    assert {row.resource: row.fault for row in report.rows if row.fault} == {
        "cpu_millis": "the cluster's count did not fall when something ended"
    }
    quotas.recalculate(actor=admin, queue=world.queue)
    assert reconciling.reconcile_one("queue", world.queue.pk)
    until("books that agree again", lambda: checker.check(fresh(world.queue)).is_good)


# -- F14 ----------


def spec(namespace: str, **bounds: Any) -> QueueSpec:
    """A queue's specification with wide bounds, some of them narrower."""
    given = {"cpu_millis": 64_000, "memory_bytes": 64 * GIB, "storage_bytes": 64 * GIB, "claims": 50, "pods": 50}
    identity = Identity(install="t", kind="queue", id="0" * 8, generation=1, name=namespace)
    return QueueSpec(identity=identity, **{**given, **bounds})


@pytest.mark.parametrize(
    ("bounds", "first", "second"),
    [
        ({"cpu_millis": 500}, {"cpu": "400m"}, {"cpu": "200m"}),
        ({"memory_bytes": GIB}, {"memory": "700Mi"}, {"memory": "400Mi"}),
        ({"gpus": {"nvidia.com/gpu": 1}}, {"nvidia.com_gpu": "1"}, {"nvidia.com_gpu": "1"}),
        ({"pods": 1}, {}, {}),
    ],
    ids=["cpu", "memory", "gpu", "pods"],
)
def test_f14_each_bound_of_a_queue_binds(
    world: World, bounds: dict[str, Any], first: dict[str, str], second: dict[str, str]
) -> None:
    wanted = spec(world.queue.namespace, **bounds)
    quota = build.resource_quota(wanted)
    quota["metadata"]["namespace"] = world.queue.namespace
    quota["metadata"]["name"] = "narrow"
    world.direct.create(quota)
    hard = set(quota["spec"]["hard"])
    until(
        "quota that counts every key",
        lambda: (
            hard
            <= set(
                (world.direct.get("ResourceQuota", world.queue.namespace, "narrow").get("status") or {}).get("used")
                or {}
            )
        ),
    )
    world.direct.create(pod(world.queue.namespace, "one", **first))
    with pytest.raises(QuotaExceeded) as refused:
        world.direct.create(pod(world.queue.namespace, "two", **second))
    assert refused.value.quota == "narrow"


@pytest.mark.parametrize("key", ["limits.nvidia.com/gpu", "nvidia.com/gpu", "requests.gpu", "cpu.requests"])
def test_f14_a_key_that_a_server_stores_and_never_enforces_is_refused(key: str) -> None:
    with pytest.raises(SpecError) as refused:
        build.hard_limits(spec("ns", extra_quota={key: 1}))
    assert refused.value.code == "unknown_quota_key"


def test_f14_a_pod_that_names_no_resources_gets_the_queues_defaults_and_finished_ones_count_no_more(
    world: World,
) -> None:
    bare = pod(world.queue.namespace, "bare")
    del bare["spec"]["containers"][0]["resources"]
    made = world.direct.create(bare)
    assert made["spec"]["containers"][0]["resources"]["requests"]["cpu"]
    until("pod that counts", lambda: world.used().get("pods") == "1")
    world.end()
    until("pod that counts no more", lambda: world.used().get("pods") == "0")
