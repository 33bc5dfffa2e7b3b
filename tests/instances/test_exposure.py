"""An instance's route follows its cluster's setting: of one kind or the other, also when that is changed under it."""

from __future__ import annotations

import pytest

from apps.clusters import services as clusters
from apps.clusters.models import Cluster
from apps.core import manifests
from apps.instances import reconcile, services
from apps.instances.models import Instance
from apps.instances.spec import host_of, objects_of
from apps.instances.states import InstanceState
from kubekit.errors import PermissionDenied, Unreachable
from tests.instances.conftest import GATEWAY, World
from tests.tenants import make

S = InstanceState
OWN = {"exposure": "gateway"}


def change(world: World, **settings: str) -> None:
    """As the administrator does it; rows that tests hold see it."""
    clusters.update(actor=make.actor(make.admin()), cluster=world.queue.cluster, **settings)


def routes(world: World) -> list[str]:
    return [kind for kind in world.cluster.kinds() if kind in ("HTTPRoute", "Ingress")]


def writes(world: World) -> list[tuple[str, str]]:
    return [call for call in world.cluster.calls if call[0] in ("apply", "delete", "patch")]


def test_the_route_says_whose_host_it_is_and_carries_no_annotation(world: World, route: str) -> None:
    instance = world.running()
    made = world.cluster.one(route)
    assert "annotations" not in made["metadata"]
    assert made["metadata"]["labels"]["mlportal.io/id"] == str(instance.pk)
    body = made["spec"]
    hosts = body["hostnames"] if route == "HTTPRoute" else [rule["host"] for rule in body["rules"]]
    assert hosts == [host_of(instance)]
    if route == "HTTPRoute":
        assert body["parentRefs"] == [{"namespace": "gateways", "name": "shared"}]


def test_the_manifests_of_the_page_show_the_route_that_is_applied(world: World, route: str) -> None:
    instance = world.running()
    shown = objects_of(Instance.objects.as_system().select_related("queue__cluster").get(pk=instance.pk))[-1]
    assert (shown["kind"], shown["spec"]) == (route, world.cluster.one(route)["spec"])
    assert f"kind: {route}" in manifests.text_of(lambda row: [shown], instance)


def test_a_running_instance_gets_its_new_route_and_then_loses_the_old_one(world: World) -> None:
    instance = world.running()
    other = world.running(name="other")
    change(world, **GATEWAY)
    for one in (instance, other):
        one.refresh_from_db()
        assert one.due_at is not None
        world.cluster.calls.clear()
        world.reconcile(one)
        order = writes(world)
        assert order.index(("delete", "Ingress")) == order.index(("apply", "HTTPRoute")) + 1
        assert one.state == S.RUNNING
        assert set(one.object_uids) == {"Secret", "Service", "HTTPRoute"}
    assert routes(world) == ["HTTPRoute", "HTTPRoute"]
    change(world, exposure="ingress")
    for one in (instance, other):
        world.reconcile(one)
    assert routes(world) == ["Ingress", "Ingress"]


def test_afterwards_a_stop_is_two_writes_and_a_start_three_as_before(world: World) -> None:
    instance = world.running()
    change(world, **GATEWAY)
    world.reconcile(instance)
    services.stop(actor=world.actor, instance=instance)
    world.cluster.calls.clear()
    world.reconcile(instance)
    assert writes(world) == [("delete", "HTTPRoute"), ("patch", "StatefulSet")]
    world.cluster.remove_pod()
    world.reconcile(instance)
    services.start(actor=world.actor, instance=instance)
    world.cluster.calls.clear()
    world.reconcile(instance)
    assert writes(world) == [("apply", "Secret"), ("apply", "HTTPRoute"), ("apply", "StatefulSet")]


def test_a_stopped_instance_keeps_still_and_its_next_start_takes_the_new_route_alone(world: World) -> None:
    instance = world.running()
    services.stop(actor=world.actor, instance=instance)
    world.reconcile(instance)
    world.cluster.remove_pod()
    world.reconcile(instance)
    before = instance.generation
    change(world, **GATEWAY)
    instance.refresh_from_db()
    assert instance.generation == before
    # What was used before may be forbidden by now: nothing of it is left, so nobody asks.
    world.cluster.refuse["Ingress"] = PermissionDenied("no", verb="delete", resource="ingresses", status=403)
    services.start(actor=world.actor, instance=instance)
    world.cluster.calls.clear()
    world.reconcile(instance)
    assert writes(world) == [("apply", "Secret"), ("apply", "HTTPRoute"), ("apply", "StatefulSet")]
    assert instance.state == S.STARTING


@pytest.mark.parametrize("chosen", [GATEWAY, OWN], ids=["httproute", "gateway"])
@pytest.mark.parametrize("ending", [services.stop, services.delete])
def test_a_stop_in_the_middle_of_the_change_takes_the_routes_first(
    world: World, ending, chosen: dict[str, str]
) -> None:
    instance = world.running()
    change(world, **chosen)
    ending(actor=world.actor, instance=instance)
    world.cluster.calls.clear()
    world.reconcile(instance)
    assert routes(world) == []
    assert writes(world)[0] == ("delete", "Ingress")


@pytest.mark.parametrize(("chosen", "left"), [(GATEWAY, ["HTTPRoute"]), (OWN, [])], ids=["httproute", "gateway"])
def test_a_route_that_no_row_knows_of_goes_too(world: World, chosen: dict[str, str], left: list[str]) -> None:
    """A worker wrote the Ingress and died before it could say so; then the cluster's setting changed."""
    instance = world.running()
    Instance.objects.as_system().filter(pk=instance.pk).update(object_uids={})
    change(world, **chosen)
    world.reconcile(instance)
    assert routes(world) == left


def test_a_route_of_that_name_that_another_made_stays(world: World) -> None:
    instance = world.running()
    world.cluster.one("Ingress")["metadata"] |= {"uid": "another", "labels": {}}
    change(world, **GATEWAY)
    world.reconcile(instance)
    assert routes(world) == ["HTTPRoute", "Ingress"]


def test_when_the_cluster_is_silent_in_between_the_change_is_made_later(world: World) -> None:
    instance = world.running()
    change(world, **GATEWAY)
    world.cluster.refuse["Ingress"] = Unreachable("no answer")
    world.reconcile(instance)
    assert (instance.state, routes(world)) == (S.UNREACHABLE, ["HTTPRoute", "Ingress"])
    assert instance.observed_generation < instance.generation
    del world.cluster.refuse["Ingress"]
    world.reconcile(instance)
    assert routes(world) == ["HTTPRoute"]
    assert world.reconcile(instance).state == S.RUNNING


def test_another_class_or_gateway_is_written_at_once_and_nothing_is_deleted(world: World) -> None:
    instance = world.running()
    change(world, ingress_class="nginx")
    world.cluster.calls.clear()
    world.reconcile(instance)
    assert world.cluster.one("Ingress")["spec"]["ingressClassName"] == "nginx"
    assert not [call for call in world.cluster.calls if call[0] == "delete" or call[1] == "HTTPRoute"]


def test_a_setting_that_no_route_says_disturbs_no_instance(world: World) -> None:
    instance = world.running()
    change(world, storage_class="fast")
    instance.refresh_from_db()
    assert reconcile.plan(instance) == ()


def test_other_clusters_instances_are_left_alone(world: World) -> None:
    instance = world.running()
    other: Cluster = make.cluster(name="other")
    clusters.update(actor=make.actor(make.admin()), cluster=other, **GATEWAY)
    instance.refresh_from_db()
    assert reconcile.plan(instance) == ()
    assert set(instance.object_uids) == {"Secret", "Service", "Ingress"}
