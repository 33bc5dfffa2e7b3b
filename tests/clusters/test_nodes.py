"""Nodes and requests as the scheduler counts them; rows are written only when something changed."""

from __future__ import annotations

import pytest

from apps.clusters import capacity
from apps.clusters.capacity import Capacity
from apps.clusters.models import Node
from apps.clusters.nodes import pod_request
from kubekit.observe import trimmed_pod
from tests.tenants import make


def container(cpu: str, **more: object) -> dict:
    return {"resources": {"requests": {"cpu": cpu}}, **more}


def pod(uid: str, node: str = "a", *, phase: str = "Running", cpu: str = "1", **spec: object) -> dict:
    body = {"nodeName": node, "containers": [container(cpu)], **spec}
    return {"metadata": {"uid": uid, "name": uid}, "spec": body, "status": {"phase": phase}}


def raw_node(name: str = "a", *, beat: str = "1") -> dict:
    conditions = [{"type": "Ready", "status": "True", "lastHeartbeatTime": beat}]
    allocatable = {"cpu": "4", "memory": "8Gi", "pods": "110", "nvidia.com/gpu": "2", "ephemeral-storage": "1Gi"}
    return {"metadata": {"name": name}, "spec": {}, "status": {"allocatable": allocatable, "conditions": conditions}}


def cpu_of(raw: dict) -> int:
    found = pod_request(raw)
    assert found is not None
    return found.amounts["cpu_millis"]


def test_init_containers_count_by_their_peak_and_sidecars_always() -> None:
    spec = {"initContainers": [container("3"), container("500m", restartPolicy="Always"), container("1")]}
    assert cpu_of(pod("p", cpu="1", **spec)) == 3000
    assert cpu_of(pod("p", cpu="4", **spec)) == 4500
    assert cpu_of(trimmed_pod(pod("p", cpu="4", **spec))) == 4500


def test_a_limit_stands_in_for_a_missing_request_and_overhead_is_added() -> None:
    raw = pod("p", containers=[{"resources": {"limits": {"cpu": "2"}}}], overhead={"cpu": "250m"})
    assert cpu_of(raw) == 2250


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_ended_pods_take_nothing(phase: str) -> None:
    assert pod_request(pod("p", phase=phase)) is None


def taken(known: Capacity) -> capacity.Changes:
    found = known.take()
    assert found is not None
    return found


def test_capacity_adds_up_by_node_and_forgets_what_is_gone() -> None:
    known = Capacity()
    known.sync_nodes([raw_node()])
    known.sync_pods([pod("1"), pod("2", cpu="500m"), pod("3", node="")])
    assert taken(known).rows["a"]["requested"] == {"cpu_millis": 1500, "pods": 2}
    known.pod_changed("MODIFIED", pod("1", phase="Succeeded"))
    known.pod_changed("DELETED", pod("2"))
    assert taken(known).rows["a"]["requested"] == {}


def test_heartbeats_and_status_changes_of_pods_change_nothing() -> None:
    known = Capacity()
    known.sync_nodes([raw_node()])
    assert known.take() is None, "half of the picture would show the node as empty"
    known.sync_pods([pod("1")])
    assert taken(known).complete
    known.node_changed("MODIFIED", raw_node(beat="2"))
    known.pod_changed("MODIFIED", {**pod("1"), "status": {"phase": "Running", "podIP": "10.0.0.1"}})
    assert known.take() is None
    known.pod_changed("ADDED", pod("2"))
    assert taken(known).rows.keys() == {"a"}


def test_of_many_nodes_only_those_that_something_happened_to_are_looked_at() -> None:
    known = Capacity()
    known.sync_nodes([raw_node(name) for name in "abcd"])
    known.sync_pods([pod("1"), pod("2", node="b")])
    assert taken(known).rows.keys() == set("abcd")
    known.pod_changed("DELETED", pod("2", node="b"))
    known.pod_changed("ADDED", pod("3", node="c"))
    known.node_changed("DELETED", raw_node("d"))
    changes = taken(known)
    assert (changes.complete, changes.rows.keys(), changes.gone) == (False, {"b", "c"}, {"d"})
    assert (changes.rows["b"]["requested"], changes.rows["c"]["requested"]["pods"]) == ({}, 1)


@pytest.mark.django_db
def test_rows_are_written_only_when_something_changed(django_assert_num_queries) -> None:
    cluster = make.cluster()
    known = Capacity()
    known.sync_nodes([raw_node("a"), raw_node("b"), raw_node("c")])
    known.sync_pods([pod("1")])
    everything = taken(known)
    assert capacity.store(cluster.pk, everything).written == 3
    with django_assert_num_queries(3):  # the rows, between a savepoint and its release
        assert capacity.store(cluster.pk, everything).written == 0
    known.pod_changed("ADDED", pod("2", node="b"))
    assert capacity.store(cluster.pk, taken(known)).written == 1
    known.node_changed("DELETED", raw_node("a"))
    assert list(capacity.store(cluster.pk, taken(known)).gone) == ["a"]
    known.sync_nodes([raw_node("b")])
    assert list(capacity.store(cluster.pk, taken(known)).gone) == ["c"], "it went while nobody watched"
    row = Node.objects.as_system().get()
    assert (row.name, row.free("cpu_millis"), row.free("nvidia.com/gpu")) == ("b", 3000, 2)
