"""Who gets in where: names, other people's instances, states, what is written down."""

from __future__ import annotations

from typing import Any

import pytest

from apps.core.errors import Conflict, NotFound
from apps.core.models import AuditEntry
from apps.instances import services
from apps.instances.models import Instance
from apps.instances.sshgate import doors
from apps.instances.sshgate.doors import Person
from apps.tenants import sshkeys
from apps.tenants.models import User
from tests.instances.conftest import World, world
from tests.tenants import make
from tests.tenants.test_ssh_keys import line

__all__ = ["world"]
pytestmark = pytest.mark.django_db


def come(person: User) -> Person:
    """The person, in with a key that was registered just now."""
    key = sshkeys.add(actor=make.actor(person), key=line())
    found = doors.admit(person.username, key.fingerprint, "192.0.2.7")
    assert found is not None
    return found


def test_a_key_is_good_under_its_owners_name_alone(world: World) -> None:
    key = sshkeys.add(actor=world.actor, key=line())
    assert doors.admit(world.owner.username, key.fingerprint, None) is not None
    for name in (world.colleague.username, "root", "", f"../{world.owner.username}", world.owner.username + "\0"):
        assert doors.admit(name.replace("\0", "x"), key.fingerprint, None) is None


def test_one_enters_by_name_in_any_case_by_queue_and_name_and_by_id(world: World) -> None:
    instance = world.running(name="Work-1")
    person = come(world.owner)
    host = f"i-{instance.pk.hex}"
    for wanted in ("Work-1", "work-1", f"{world.queue.name}/work-1", host, f"{host}.apps.localhost"):
        door = doors.open_to(person, wanted)
        assert (door.instance_id, door.launch, door.namespace) == (instance.pk, 1, world.queue.namespace)
        assert door.pod == world.cluster.one("Pod")["metadata"]["name"]


@pytest.mark.parametrize("who", ["colleague", "stranger", "admin"])
def test_nobody_else_enters_and_the_answer_is_that_of_one_that_is_not_there(world: World, who: str) -> None:
    instance = world.running(name="work-1")
    person = come(make.admin() if who == "admin" else getattr(world, who))
    said = set()
    for wanted in ("work-1", f"{world.queue.name}/work-1", f"i-{instance.pk.hex}", "never-was"):
        with pytest.raises(NotFound) as refusal:
            doors.open_to(person, wanted)
        said.add(str(refusal.value.detail).replace(wanted, "…"))
    assert len(said) == 1


@pytest.mark.parametrize(
    "wanted", ["", "/", "i-", "i-zz", "../work-1", "localhost", "127.0.0.1", "x" * 5000, "a\0b"[:1]]
)
def test_what_is_no_name_is_not_found_and_nothing_worse(world: World, wanted: str) -> None:
    with pytest.raises(NotFound):
        doors.open_to(come(world.owner), wanted)


def test_what_does_not_run_is_told_so(world: World) -> None:
    instance = world.running(name="work-1")
    person = come(world.owner)
    services.stop(actor=world.actor, instance=instance)
    with pytest.raises(Conflict) as refusal:
        doors.open_to(person, "work-1")
    assert refusal.value.code == "not_running" and "stopping" in str(refusal.value.detail)


def test_two_of_one_name_have_to_be_told_apart(world: World) -> None:
    world.running(name="work-1")
    other = make.queue(in_team=world.queue.team)
    world.cluster.objects["Namespace", None, other.namespace] = {"kind": "Namespace", "metadata": {}}
    services.create(actor=world.actor, name="work-1", queue=other.name, image=world.image.name, size=world.small.name)
    person = come(world.owner)
    with pytest.raises(Conflict) as refusal:
        doors.open_to(person, "work-1")
    assert refusal.value.code == "ambiguous" and f"{other.name}/work-1" in str(refusal.value.detail)
    assert doors.open_to(person, f"{world.queue.name}/work-1").name == "work-1"


def test_a_launch_that_was_told_to_end_is_open_no_longer_and_silence_of_the_cluster_is_no_end(world: World) -> None:
    instance = world.running()
    launch = (instance.pk, instance.launch)
    assert doors.still_open({launch, (instance.pk, 7)}) == {launch}
    Instance.objects.as_system().filter(pk=instance.pk).update(state="unreachable")
    assert doors.still_open({launch}) == {launch}
    for state in ("stopping", "stopped", "deleting", "deleted", "failed"):
        Instance.objects.as_system().filter(pk=instance.pk).update(state=state)
        assert doors.still_open({launch}) == set()


def test_coming_and_going_is_written_down_with_address_time_and_bytes(world: World) -> None:
    instance = world.running()
    person = come(world.owner)
    door = doors.open_to(person, f"i-{instance.pk.hex}")
    doors.entered(person, door)
    doors.left(person, door, seconds=2.34, sent=5, received=7, why="closed by the person")
    doors.note_use(person)
    rows: Any = AuditEntry.objects.as_system().filter(verb__startswith="instance.ssh").order_by("pk")
    came, went = rows
    assert (came.verb, went.verb) == ("instance.ssh", "instance.ssh-end")
    assert came.actor_id == world.owner.pk and str(came.address) == "192.0.2.7"
    assert went.detail == {
        "key": person.fingerprint, "seconds": 2.3, "sent": 5, "received": 7, "why": "closed by the person",
    }  # fmt: skip
    assert went.queue_id == world.queue.pk
    assert sshkeys.find(username=world.owner.username, fingerprint=person.fingerprint).last_used_at  # type: ignore[union-attr]
