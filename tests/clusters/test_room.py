"""Room on nodes: now, later, never, and by how much."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.clusters.models import Node
from apps.clusters.room import Verdict, judge, will_fit
from apps.tenants.ledger import Amount
from tests.tenants import make

GIB = 1 << 30


def node(name: str = "n", *, cpu: int = 4000, memory: int = 8 * GIB, used: int = 0, **more: object) -> Node:
    allocatable = {"cpu_millis": cpu, "memory_bytes": memory, "pods": 110, **more.pop("gpus", {})}  # type: ignore[dict-item]
    given: dict[str, object] = {"ready": True, "schedulable": True, "taints": [], **more}
    return Node(name=name, allocatable=allocatable, requested={"cpu_millis": used}, **given)


def test_now_when_one_of_the_nodes_has_room() -> None:
    assert judge([node(used=3900), node("b")], Amount(cpu_millis=500)).verdict == Verdict.NOW


def test_later_names_the_node_that_lacks_least_and_by_how_much() -> None:
    answer = judge([node("a", used=4000), node("b", used=3700)], Amount(cpu_millis=500, memory_bytes=GIB))
    assert (answer.verdict, answer.resource, answer.node) == (Verdict.LATER, "cpu_millis", "b")
    assert (answer.available, answer.missing) == (300, 200)


def test_never_when_no_empty_node_is_large_enough() -> None:
    answer = judge([node("a"), node("b", cpu=8000)], Amount(cpu_millis=9000))
    assert (answer.verdict, answer.node, answer.available, answer.missing) == (Verdict.NEVER, "b", 8000, 1000)


def test_room_of_two_nodes_is_not_added_up() -> None:
    assert judge([node(used=2500), node("b", used=2500)], Amount(cpu_millis=2000)).verdict == Verdict.LATER


def test_gpu_nodes_are_for_pods_that_ask_for_a_gpu() -> None:
    taint = {"key": "nvidia.com/gpu", "value": "", "effect": "NoSchedule"}
    gpu_node = node("g", gpus={"nvidia.com/gpu": 2}, taints=[taint])
    assert judge([gpu_node], Amount(cpu_millis=1)).verdict == Verdict.UNKNOWN
    assert judge([gpu_node], Amount(cpu_millis=1, gpus={"nvidia.com/gpu": 2})).verdict == Verdict.NOW
    answer = judge([gpu_node, node("c")], Amount(cpu_millis=1, gpus={"nvidia.com/gpu": 3}))
    assert (answer.verdict, answer.resource, answer.missing) == (Verdict.NEVER, "nvidia.com/gpu", 1)


def test_cordoned_unready_and_otherwise_tainted_nodes_do_not_count() -> None:
    taint = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}
    for bad in (node(ready=False), node(schedulable=False), node(taints=[taint])):
        assert judge([bad], Amount(cpu_millis=1)).verdict == Verdict.UNKNOWN
    assert judge([node(taints=[{**taint, "effect": "PreferNoSchedule"}])], Amount(cpu_millis=1)).verdict == Verdict.NOW


def test_a_node_full_of_pods_takes_no_more() -> None:
    full = node()
    full.requested = {"pods": 110}
    assert judge([full], Amount(cpu_millis=1)).resource == "pods"


@pytest.mark.parametrize(
    "nodes",
    [
        [{"used": 3900}, {}],
        [{"used": 4000}],
        [{"cpu": 200}],
        [{"taints": [{"key": "dedicated", "effect": "NoSchedule"}]}],
        [{"taints": [{"key": "dedicated", "effect": "PreferNoSchedule"}]}],
        [{"ready": False}, {"schedulable": False}],
        [{"gpus": {"nvidia.com/gpu": 2}}],
        [],
    ],
)
@pytest.mark.parametrize("gpus", [{}, {"nvidia.com/gpu": 2}, {"nvidia.com/gpu": 3}])
def test_the_stored_nodes_are_judged_as_those_in_memory(
    db: None, nodes: list[dict[str, Any]], gpus: dict[str, int]
) -> None:
    cluster, need = make.cluster(), Amount(cpu_millis=500, memory_bytes=GIB, gpus=gpus)
    rows = [node(f"n{number}", **dict(columns)) for number, columns in enumerate(nodes)]
    for row in rows:
        row.cluster, row.seen_at = cluster, timezone.now()
    Node.objects.bulk_create(rows)
    answer = judge(rows, need)
    assert will_fit(cluster, need) == answer
    with CaptureQueriesContext(connection) as asked:
        will_fit(cluster, need)
    untainted = answer.verdict == Verdict.NOW and not any(row.taints for row in rows)
    assert len(asked) == (1 if untainted else 2)
    assert '"name"' not in asked[0]["sql"], "where there is room no node is read"
