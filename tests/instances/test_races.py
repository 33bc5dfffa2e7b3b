"""Several at once: threads on a real database."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection

from apps.core.errors import OverQuota, PortalError
from apps.core.models import AuditEntry
from apps.instances import reconcile, services
from apps.instances.models import Instance
from apps.instances.states import InstanceState
from apps.tenants import ledger
from tests.instances.conftest import World

pytestmark = pytest.mark.django_db(transaction=True)
S = InstanceState


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """Run the calls at the same moment; their answers, an expected error as the answer."""
    gate = threading.Barrier(len(calls))

    def run(call: Callable[[], Any]) -> Any:
        gate.wait()
        try:
            return call()
        except PortalError as error:
            return error
        finally:
            connection.close()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


def test_a_double_click_at_the_same_moment_makes_one(world: World) -> None:
    pk = uuid4()
    made = at_once(*[lambda: world.create(id=pk)] * 4)
    assert {one.pk for one in made} == {pk}
    assert AuditEntry.objects.as_system().filter(verb="instance.create").count() == 1
    held = ledger.held(kind="instance", object_id=pk)
    assert held is not None
    assert held.cpu_millis == 500


def test_instances_without_a_name_made_at_once_get_different_ones(world: World) -> None:
    made = at_once(*[world.create] * 4)
    assert sorted(one.name for one in made) == [f"jupyter-{number}" for number in (1, 2, 3, 4)]


def test_of_two_for_the_last_place_one_gets_it(world: World) -> None:
    answers = at_once(*[lambda: world.create(size="large")] * 3)
    assert sum(isinstance(one, Instance) for one in answers) == 1
    assert sum(isinstance(one, OverQuota) for one in answers) == 2


def test_two_tabs_stopping_and_starting_leave_one_clear_wish(world: World) -> None:
    instance = world.running()
    answers = at_once(
        lambda: services.stop(actor=world.actor, instance=instance),
        lambda: services.start(actor=world.actor, instance=instance),
        lambda: services.stop(actor=world.actor, instance=instance),
        lambda: services.restart(actor=world.actor, instance=instance),
    )
    assert not [one for one in answers if isinstance(one, PortalError)]
    instance.refresh_from_db()
    assert instance.state == S.STOPPING
    world.reconcile(instance)
    world.cluster.remove_pod()
    world.reconcile(instance)
    assert instance.state == (S.STARTING if instance.wants_to_run else S.STOPPED)
    held = ledger.held(kind="instance", object_id=instance.pk)
    assert (held is not None) == instance.wants_to_run


def test_a_stop_during_a_reconcile_is_not_lost(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker has read "starting"; meanwhile the owner stops; what the worker writes must not win."""
    instance = world.create()
    world.reconcile(instance)
    world.cluster.make_pod()
    world.cluster.run_pod()
    real = world.cluster.get

    def get(*args: Any) -> Any:
        monkeypatch.setattr(world.cluster, "get", real)
        services.stop(actor=world.actor, instance=instance)
        return real(*args)

    monkeypatch.setattr(world.cluster, "get", get)
    world.reconcile(instance)
    assert instance.state == S.STOPPING
    assert instance.due_at is not None
    world.reconcile(instance)
    assert world.cluster.one("StatefulSet")["spec"]["replicas"] == 0


def test_a_start_that_comes_late_writes_nothing_for_an_instance_that_was_stopped(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first write hangs for longer than the lease; another worker stops the instance to its end meanwhile."""
    instance = world.create()
    monkeypatch.setattr(reconcile, "FRESH", timedelta(0))
    real = world.cluster.apply

    def apply(*args: Any, **more: Any) -> Any:
        monkeypatch.setattr(world.cluster, "apply", real)
        made = real(*args, **more)
        Instance.objects.as_system().update(claimed_until=None)
        services.stop(actor=world.actor, instance=instance)
        world.reconcile(instance)
        return made

    monkeypatch.setattr(world.cluster, "apply", apply)
    world.reconcile(instance)
    assert instance.state == S.STOPPED
    assert ("apply", "StatefulSet") not in world.cluster.calls
    assert ("apply", "Ingress") not in world.cluster.calls
