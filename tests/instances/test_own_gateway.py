"""Where the portal's own gateway leads to instances nothing is written for a route: a new instance is three writes, a
start two, a stop one; routes of a kind that was chosen before go away."""

from __future__ import annotations

import pytest

from apps.instances import reconcile, services
from apps.instances.models import Instance
from apps.instances.spec import objects_of
from apps.instances.states import InstanceState
from tests.instances.conftest import GATEWAY, World
from tests.instances.test_exposure import OWN, change, routes, writes

S = InstanceState


def stopped(world: World, instance: Instance) -> list[tuple[str, str]]:
    """Stop it; what was written for that."""
    services.stop(actor=world.actor, instance=instance)
    world.cluster.calls.clear()
    world.reconcile(instance)
    found = writes(world)
    world.cluster.remove_pod()
    assert world.reconcile(instance).state == S.STOPPED
    return found


def started(world: World, instance: Instance) -> list[tuple[str, str]]:
    """Start it; what was written for that."""
    services.start(actor=world.actor, instance=instance)
    world.cluster.calls.clear()
    world.reconcile(instance)
    return writes(world)


def test_a_launch_writes_no_route_and_a_start_is_two_writes_and_a_stop_one(world: World) -> None:
    change(world, **OWN)
    instance = world.create()
    world.cluster.calls.clear()
    world.reconcile(instance)
    assert writes(world) == [("apply", "Secret"), ("apply", "Service"), ("apply", "StatefulSet")]
    world.cluster.make_pod()
    world.cluster.run_pod()
    assert world.reconcile(instance).state == S.RUNNING
    assert stopped(world, instance) == [("patch", "StatefulSet")]
    assert started(world, instance) == [("apply", "Secret"), ("apply", "StatefulSet")]
    assert routes(world) == []
    shown = [one["kind"] for one in objects_of(instance)]
    assert shown == ["Secret", "StatefulSet", "Service"]


@pytest.mark.parametrize("before", [{"exposure": "ingress"}, GATEWAY])
def test_a_running_instance_loses_its_route_and_goes_on(world: World, before: dict[str, str]) -> None:
    change(world, **before)
    instance = world.running()
    assert len(routes(world)) == 1
    change(world, **OWN)
    world.reconcile(instance)
    assert (routes(world), instance.state) == ([], S.RUNNING)
    assert set(instance.object_uids) == {"Secret", "Service"}
    assert stopped(world, instance) == [("patch", "StatefulSet")]
    assert started(world, instance) == [("apply", "Secret"), ("apply", "StatefulSet")]


@pytest.mark.parametrize("after", [{"exposure": "ingress"}, GATEWAY])
def test_and_gets_one_when_it_is_to_have_one_again(world: World, after: dict[str, str]) -> None:
    change(world, **OWN)
    instance = world.running()
    change(world, **after)
    world.reconcile(instance)
    assert routes(world) == [{"ingress": "Ingress", "httproute": "HTTPRoute"}[after["exposure"]]]
    assert reconcile.plan(instance) == ()


def test_deleting_one_that_never_had_a_route_asks_for_none(world: World) -> None:
    change(world, **OWN)
    instance = world.running()
    services.delete(actor=world.actor, instance=instance)
    world.cluster.calls.clear()
    world.reconcile(instance)
    assert [kind for verb, kind in writes(world) if verb == "delete"] == ["StatefulSet", "Service", "Secret"]
