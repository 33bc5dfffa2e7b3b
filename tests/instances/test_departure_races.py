"""Somebody leaves in the very instant in which they start something: nothing of theirs is left running."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.db import transaction

from apps.core.errors import Forbidden
from apps.instances import services
from apps.instances.models import Instance
from apps.instances.states import InstanceState
from apps.tenants import people, teams
from tests.instances.conftest import World
from tests.meanwhile import Meanwhile
from tests.tenants import make

S = InstanceState
pytestmark = pytest.mark.django_db(transaction=True)


def leave(world: World, how: str) -> Callable[[], object]:
    boss = make.actor(make.admin())
    return {
        "deactivated": lambda: people.deactivate(actor=boss, user=world.owner),
        "taken out": lambda: teams.remove_member(actor=boss, team=world.queue.team, user=world.owner),
    }[how]


@pytest.mark.parametrize("how", ["deactivated", "taken out"])
def test_what_was_created_just_before_is_stopped(world: World, how: str) -> None:
    departure = Meanwhile(leave(world, how))
    with transaction.atomic():
        instance = world.create()
        departure.begin()
    departure.end()
    assert departure.error is None
    instance.refresh_from_db()
    assert (instance.state, instance.desired) == (S.STOPPING, "stopped")


@pytest.mark.parametrize("how", ["deactivated", "taken out"])
def test_what_would_be_created_just_after_is_refused(world: World, how: str) -> None:
    creation = Meanwhile(world.create)
    with transaction.atomic():
        leave(world, how)()
        creation.begin()
    creation.end()
    assert isinstance(creation.error, Forbidden)
    assert not Instance.objects.as_system().exists()


@pytest.mark.parametrize("how", ["deactivated", "taken out"])
def test_a_start_just_before_ends_stopped(world: World, how: str) -> None:
    instance = world.create()
    Instance.objects.as_system().filter(pk=instance.pk).update(state=S.STOPPED, desired="stopped")
    departure = Meanwhile(leave(world, how))
    with transaction.atomic():
        services.start(actor=world.actor, instance=instance)
        departure.begin()
    departure.end()
    assert departure.error is None
    instance.refresh_from_db()
    assert (instance.state, instance.wants_to_run) == (S.STOPPING, False)


def test_a_role_taken_away_just_before_takes_its_queues_along(world: World) -> None:
    boss, other = make.admin(), make.admin()
    as_boss = make.actor(boss)
    creation = Meanwhile(lambda: world.create(actor=as_boss))
    with transaction.atomic():
        people.set_admin(actor=make.actor(other), user=boss, is_platform_admin=False)
        creation.begin()
    creation.end()
    assert isinstance(creation.error, Forbidden)
    assert creation.error.code == "rights_changed"


def test_who_stops_their_own_while_they_are_deactivated_blocks_nobody(world: World) -> None:
    instance = world.running()
    departure = Meanwhile(leave(world, "deactivated"))
    with transaction.atomic():
        services.stop(actor=world.actor, instance=instance)
        departure.begin()
    departure.end()
    assert departure.error is None
    instance.refresh_from_db()
    assert (instance.state, instance.wants_to_run) == (S.STOPPING, False)
