"""Who loses the right to a queue loses the instances that run there, keys and all."""

from __future__ import annotations

import pytest
from django.test import Client

from apps.core.models import AuditEntry
from apps.instances import services
from apps.instances.models import Instance
from apps.instances.states import InstanceState
from apps.tenants import people, teams
from tests.instances.conftest import World
from tests.tenants import make

S = InstanceState


def dead_in_cluster(world: World, instance: Instance, key: str) -> bool:
    """The next round takes the route away and ends the pod; no row has the key any more."""
    world.reconcile(instance)
    instance.refresh_from_db()
    no_way_in = "Ingress" not in world.cluster.kinds() and instance.key.reveal() != key
    return no_way_in and world.cluster.one("StatefulSet")["spec"]["replicas"] == 0


def test_deactivating_somebody_stops_their_instances_and_nobody_elses(world: World, hints: list) -> None:
    instance, key = world.running(), ""
    key = instance.key.reveal()
    boss = make.admin()
    others = services.create(
        actor=make.actor(world.colleague), queue=world.queue.name, image=world.image.name, size=world.small.name
    )
    people.deactivate(actor=make.actor(boss), user=world.owner)
    instance.refresh_from_db()
    others.refresh_from_db()
    assert (instance.state, instance.desired, bool(instance.key)) == (S.STOPPING, "stopped", False)
    assert others.state == S.STARTING
    entry = AuditEntry.objects.as_system().get(object_id=instance.pk, verb="instance.stop")
    assert entry.actor_id == boss.pk
    services.delete(actor=make.actor(world.colleague), instance=others)
    assert dead_in_cluster(world, instance, key)


def test_a_restart_under_way_ends_stopped(world: World) -> None:
    instance = world.running()
    services.restart(actor=world.actor, instance=instance)
    people.deactivate(actor=make.actor(make.admin()), user=world.owner)
    instance.refresh_from_db()
    assert (instance.state, instance.wants_to_run) == (S.STOPPING, False)


@pytest.mark.parametrize("who", ["owner", "admin"])
def test_leaving_a_team_stops_what_runs_in_its_queues_alone(world: World, who: str) -> None:
    there = world.running()
    elsewhere_queue = make.queue(in_team=make.team(), on=world.queue.cluster)
    teams.set_role(actor=make.actor(make.admin()), team=elsewhere_queue.team, user=world.owner, role="member")
    elsewhere = world.create(queue=elsewhere_queue.name)
    actor = world.actor if who == "owner" else make.actor(make.admin())
    teams.remove_member(actor=actor, team=world.queue.team, user=world.owner)
    there.refresh_from_db()
    elsewhere.refresh_from_db()
    assert (there.state, elsewhere.state) == (S.STOPPING, S.STARTING)


def test_a_platform_administrator_who_leaves_a_team_keeps_the_right_and_loses_it_with_the_role(world: World) -> None:
    boss = make.admin()
    teams.set_role(actor=make.actor(boss), team=world.queue.team, user=boss, role="member")
    instance = world.running(actor=make.actor(boss))
    teams.remove_member(actor=make.actor(boss), team=world.queue.team, user=boss)
    instance.refresh_from_db()
    assert instance.state == S.RUNNING
    people.set_admin(actor=make.actor(make.admin()), user=boss, is_platform_admin=False)
    instance.refresh_from_db()
    assert instance.state == S.STOPPING


def test_the_question_before_names_what_is_stopped(world: World, client: Client) -> None:
    instance = world.running()
    client.force_login(make.admin())
    assert "loses the queues of all teams that they are not in" in client.get("/users").content.decode()
    told = f"This is stopped: instance {instance.name}."
    assert told in client.get("/users").content.decode()
    assert told in client.get(f"/teams/{world.queue.team.pk}").content.decode()
    people.deactivate(actor=make.actor(make.admin()), user=world.owner)
    assert told not in client.get("/users").content.decode()
