"""SSH as far as an instance's Secret goes: one host key for its life (F49), its owner's public keys as they are."""

from __future__ import annotations

import base64

import pytest

from apps.core.models import AuditEntry
from apps.instances import services
from apps.instances.models import Instance
from apps.instances.spec import objects_of
from apps.tenants import sshkeys
from tests.instances.conftest import World
from tests.tenants import make
from tests.tenants.test_ssh_keys import line

pytestmark = pytest.mark.django_db


def secret_of(world: World) -> dict[str, str]:
    data = world.cluster.one("Secret")["data"]
    return {name: base64.b64decode(value).decode() for name, value in data.items()}


def stopped(world: World, instance: Instance) -> None:
    services.stop(actor=world.actor, instance=instance)
    world.reconcile(instance)
    world.cluster.remove_pod()
    world.reconcile(instance)


def test_f49_the_host_key_is_the_same_at_every_launch_and_another_for_every_instance(world: World) -> None:
    instance = world.running()
    first = secret_of(world)
    stopped(world, instance)
    services.start(actor=world.actor, instance=instance)
    world.reconcile(instance)
    again = secret_of(world)
    assert again["ssh-host-key"] == first["ssh-host-key"]
    assert again["key"] != first["key"]
    assert instance.ssh_host_public.startswith("ssh-ed25519 ")
    other = world.create()
    assert other.ssh_host_public != instance.ssh_host_public


def test_an_instance_from_before_gets_a_host_key_at_its_next_start(world: World) -> None:
    instance = world.running()
    stopped(world, instance)
    Instance.objects.as_system().filter(pk=instance.pk).update(ssh_host_key="", ssh_host_public="")
    services.start(actor=world.actor, instance=instance)
    instance.refresh_from_db()
    assert "PRIVATE KEY" in instance.ssh_host_key.reveal() and instance.ssh_host_public


def test_the_owners_keys_are_in_the_secret_and_a_change_is_written_while_it_runs(world: World) -> None:
    mine = sshkeys.add(actor=world.actor, key=line())
    sshkeys.add(actor=make.actor(world.colleague), key=line())
    instance = world.running()
    assert secret_of(world)["authorized_keys"] == f"{mine.public}\n"
    pod = world.cluster.one("Pod")
    uid = pod["metadata"]["uid"]
    second = sshkeys.add(actor=world.actor, key=line())
    world.cluster.calls.clear()
    world.reconcile(instance)
    assert secret_of(world)["authorized_keys"] == f"{mine.public}\n{second.public}\n"
    pod = world.cluster.one("Pod")
    assert pod["metadata"]["annotations"]["mlportal.io/refreshed"] == str(instance.generation)
    assert (pod["metadata"]["uid"], instance.launch, instance.state) == (uid, 1, "running")
    sshkeys.delete(actor=world.actor, key=mine)
    world.reconcile(instance)
    assert secret_of(world)["authorized_keys"] == f"{second.public}\n"


def test_only_what_the_person_has_running_is_written_anew(world: World) -> None:
    resting = world.running()
    stopped(world, resting)
    theirs = world.create(actor=make.actor(world.colleague))
    before = {row.pk: row.generation for row in (resting, theirs)}
    sshkeys.add(actor=world.actor, key=line())
    for row in (resting, theirs):
        row.refresh_from_db()
        assert row.generation == before[row.pk]


def test_the_private_host_key_is_in_no_page_and_no_audit_entry(world: World) -> None:
    instance = world.running()
    secret = instance.ssh_host_key.reveal().splitlines()[2]
    shown = repr([obj for obj in objects_of(instance) if obj["kind"] == "Secret"])
    assert "authorized_keys" in shown and secret not in shown
    assert secret not in repr(list(AuditEntry.objects.as_system().values()))
