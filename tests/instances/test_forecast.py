"""Will it run? Now, queued or never, with the change that fits."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from apps.catalog.models import Size
from apps.clusters.models import Node
from apps.core.errors import Invalid
from apps.instances import forecast
from apps.instances.models import Instance
from tests.instances.conftest import MIB, World


def node(world: World, *, cpu: int, memory: int, used_cpu: int = 0, **more: Any) -> Node:
    return Node.objects.create(
        cluster=world.queue.cluster,
        name=f"node-{cpu}",
        ready=True,
        allocatable={"cpu_millis": cpu, "memory_bytes": memory, "pods": 110},
        requested={"cpu_millis": used_cpu},
        seen_at=timezone.now(),
        **more,
    )


def ask(world: World, size: Size) -> forecast.Forecast:
    return forecast.will_it_run(actor=world.actor, queue=world.queue, size=size)


def test_now_when_quota_and_a_node_have_room(world: World) -> None:
    node(world, cpu=8000, memory=16384 * MIB)
    assert ask(world, world.large).answer == "now"


def test_queued_when_the_nodes_are_taken_and_a_smaller_size_would_start(world: World) -> None:
    node(world, cpu=4000, memory=16384 * MIB, used_cpu=3000)
    answer = ask(world, world.large)
    assert (answer.answer, answer.code, answer.size_that_fits) == ("queued", "no_room_now", "small")
    assert "3 CPU" in answer.sentence
    assert "small" in answer.change


def test_never_when_no_node_is_large_enough(world: World) -> None:
    node(world, cpu=2000, memory=16384 * MIB)
    answer = ask(world, world.large)
    assert (answer.answer, answer.code, answer.size_that_fits) == ("never", "fits_no_node", "small")


def test_a_size_that_fits_no_node_is_refused_before_anything_is_made(world: World) -> None:
    node(world, cpu=2000, memory=16384 * MIB)
    with pytest.raises(Invalid) as refused:
        world.create(size="large")
    assert refused.value.code == "fits_no_node"
    assert "small" in refused.value.next
    assert not Instance.objects.as_system().exists()


def test_never_over_quota_names_the_largest_size_that_fits(world: World) -> None:
    node(world, cpu=8000, memory=16384 * MIB)
    Size.objects.create(name="middle", cpu_millis=1000, memory_bytes=1024 * MIB)
    world.create(size="large")
    answer = ask(world, world.large)
    assert (answer.answer, answer.size_that_fits) == ("never", "middle")


def test_a_size_with_other_gpus_is_no_smaller_size(world: World) -> None:
    node(world, cpu=2000, memory=16384 * MIB)
    Size.objects.create(name="gpu", cpu_millis=100, memory_bytes=MIB, gpus=1)
    assert ask(world, world.large).size_that_fits == "small"
