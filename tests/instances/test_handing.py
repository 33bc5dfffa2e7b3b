"""Rename, clone, transfer and share: what changes, what stays, who may, and what is told."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from apps.core.errors import Conflict, Forbidden, Invalid, NotFound
from apps.core.models import AuditEntry, OutboxMessage
from apps.instances import entering, handing, services, sharing
from apps.instances.models import Instance, InstanceViewer
from apps.instances.options import Options
from apps.instances.states import InstanceState
from apps.storage.models import Volume
from apps.tenants import ledger
from apps.tenants.models import Membership, Role
from tests.instances.conftest import World
from tests.instances.test_api import LIST, Rest
from tests.instances.test_changing import stopped, volume
from tests.tenants import make

S = InstanceState


def told(instance: Instance, verb: str) -> dict[str, object]:
    return dict(AuditEntry.objects.as_system().get(object_id=instance.pk, verb=f"instance.{verb}").detail)


# --- rename ------------------------------------------------------------------------------------------------------


def test_another_name_leaves_objects_and_pod_as_they_are(world: World) -> None:
    instance = world.running(name="first")
    names = {name for _kind, _space, name in world.cluster.objects}
    handing.rename(actor=world.actor, instance=instance, name="second")
    instance.refresh_from_db()
    assert (instance.name, instance.state, instance.revision) == ("second", S.RUNNING, 2)
    stopped(world, instance)
    services.start(actor=world.actor, instance=instance)
    world.reconcile(instance)
    world.cluster.make_pod()
    assert {name for _kind, _space, name in world.cluster.objects} == names
    annotations = world.cluster.one("StatefulSet")["metadata"]["annotations"]
    assert "second" in annotations.values()
    handing.rename(actor=world.actor, instance=instance, name="third")
    instance.refresh_from_db()
    assert instance.named_after == "first"
    assert [dict(e.detail) for e in AuditEntry.objects.as_system().filter(verb="instance.rename").order_by("pk")] == [
        {"before": "first", "after": "second"}, {"before": "second", "after": "third"},
    ]  # fmt: skip


def test_a_name_that_is_taken_or_none_is_refused_and_the_old_one_is_free(world: World) -> None:
    instance, other = world.create(name="mine"), world.create(name="yours")
    for name, code in (("yours", "name_taken"), ("../x", "name_invalid"), ("", "name_invalid")):
        with pytest.raises(Invalid) as refused:
            handing.rename(actor=world.actor, instance=instance, name=name)
        assert refused.value.code == code
    handing.rename(actor=world.actor, instance=instance, name="ours")
    handing.rename(actor=world.actor, instance=other, name="mine")
    assert len({instance.object_name, other.object_name}) == 2


# --- clone -------------------------------------------------------------------------------------------------------


def test_a_clone_has_all_that_was_set_and_the_home_of_who_makes_it(world: World) -> None:
    mounted = volume(world)
    more = Options(env={"A": "1"}, script="true\n", time_zone="Asia/Tokyo")
    instance = world.create(more=more, volumes=[{"volume": mounted.name, "path": "/data", "read_only": True}])
    twin = handing.clone(actor=world.actor, instance=instance, name="twin")
    assert (twin.name, twin.options, twin.size, twin.image) == ("twin", instance.options, instance.size, instance.image)
    assert [(one.volume_id, one.path, one.read_only) for one in twin.mounted] == [(mounted.pk, "/data", True)]
    assert twin.home_id == instance.home_id and twin.state == S.STARTING
    theirs = handing.clone(actor=make.actor(world.colleague), instance=instance)
    assert theirs.owner == world.colleague and theirs.home_id != instance.home_id
    assert theirs.ssh_host_public != instance.ssh_host_public


def test_a_clone_in_another_queue_has_the_home_there_and_cannot_take_volumes_along(world: World) -> None:
    other = make.queue(in_team=world.queue.team)
    instance = world.create()
    twin = handing.clone(actor=world.actor, instance=instance, queue=other.name)
    assert twin.queue == other and twin.home_id != instance.home_id
    with_volume = world.create(volumes=[{"volume": volume(world).name, "path": "/data"}])
    with pytest.raises(Invalid) as refused:
        handing.clone(actor=world.actor, instance=with_volume, queue=other.name)
    assert refused.value.code == "volumes_invalid"


# --- transfer ----------------------------------------------------------------------------------------------------


def give(world: World, instance: Instance, **other: object) -> Instance:
    wanted = {"to": world.colleague.username, "confirm": instance.name, **other}
    return handing.transfer(actor=world.actor, instance=instance, **wanted)  # type: ignore[arg-type]


def test_a_colleague_becomes_the_owner_and_the_old_one_may_not_enter_any_more(world: World) -> None:
    world.colleague.email = "colleague@example.test"
    world.colleague.save()
    instance = stopped(world, world.running())
    sharing.share(
        actor=world.actor, instance=instance, person=world.stranger.username, until=timezone.now() + timedelta(days=1)
    )
    home, host_key = instance.home, instance.ssh_host_public
    give(world, instance)
    instance.refresh_from_db()
    assert instance.owner == world.colleague and instance.home != home and instance.home.owner == world.colleague
    assert instance.ssh_host_public != host_key and not instance.key
    home.refresh_from_db()
    assert home.owner == world.owner
    assert not entering.may_enter(world.actor, instance)
    with pytest.raises(Forbidden):
        services.start(actor=world.actor, instance=instance)
    services.start(actor=make.actor(world.colleague), instance=instance)
    assert not sharing.viewers(instance)
    assert told(instance, "transfer")["after"] == world.colleague.username
    mail = OutboxMessage.objects.as_system().get()
    assert mail.payload["to"] == ["colleague@example.test"] and str(instance.pk) in mail.payload["text"]


def test_the_home_goes_along_when_nothing_else_needs_it_and_the_heir_has_none(world: World) -> None:
    instance = stopped(world, world.running())
    give(world, instance, home="goes")
    instance.refresh_from_db()
    assert instance.home.owner == world.colleague
    assert AuditEntry.objects.as_system().filter(verb="volume.transfer", object_id=instance.home_id).exists()
    mine = world.create()
    assert mine.home_id != instance.home_id


def test_a_home_that_others_use_or_that_would_be_a_second_one_stays(world: World) -> None:
    instance = stopped(world, world.running())
    other = world.create(name="other")
    with pytest.raises(Invalid) as refused:
        give(world, instance, home="goes")
    assert (refused.value.code, "other" in refused.value.detail) == ("home_in_use", True)
    Instance.objects.as_system().filter(pk=other.pk).update(state="deleted")
    world.create(actor=make.actor(world.colleague))
    with pytest.raises(Invalid) as refused:
        give(world, instance, home="goes")
    assert refused.value.code == "home_exists"
    instance.refresh_from_db()
    assert instance.owner == world.owner
    assert Volume.objects.as_system().get(pk=instance.home_id).owner == world.owner


def test_nothing_is_given_by_mistake_to_strangers_or_while_it_runs(world: World) -> None:
    instance = world.running()
    for other, code in (({"confirm": "x"}, "not_confirmed"), ({}, "not_stopped")):
        with pytest.raises((Invalid, Conflict)) as refused:
            give(world, instance, **other)
        assert refused.value.code == code
    stopped(world, instance)
    for who, code in ((world.stranger, "no_colleague"), (world.owner, "owner_already")):
        with pytest.raises(Invalid) as refused:
            give(world, instance, to=who.username)
        assert refused.value.code == code
    Membership.objects.as_system().filter(user=world.colleague).update(role=Role.VIEWER)
    with pytest.raises(Invalid):
        give(world, instance)
    with pytest.raises(Forbidden):
        handing.transfer(
            actor=make.actor(world.colleague), instance=instance, to=world.owner.username, confirm=instance.name
        )
    assert ledger.held(kind="instance", object_id=instance.pk) is None


# --- share -------------------------------------------------------------------------------------------------------


def let_look(world: World, instance: Instance, days: float = 1) -> InstanceViewer:
    until = timezone.now() + timedelta(days=days)
    return sharing.share(actor=world.actor, instance=instance, person=world.stranger.username, until=until)


def test_who_is_shown_an_instance_sees_it_and_its_log_and_never_enters_or_acts(world: World) -> None:
    instance, rest = world.running(), Rest(world.stranger)
    path = f"{LIST}/{instance.pk}"
    assert rest.get(path).status_code == 404
    let_look(world, instance)
    assert {rest.get(f"{path}{part}").status_code for part in ("", "/log", "/events")} == {200}
    assert instance.key.reveal() not in rest.get(path).content.decode()
    answers = [
        rest.get(f"{path}/key"),
        rest.get(f"{path}/ssh"),
        rest.get(f"{path}/start-script"),
        *(rest.post(f"{path}/{verb}") for verb in ("ticket", "start", "stop", "restart", "rotate-key")),
        rest.patch(path, {"size": "large", "when": "restart"}),
        rest.delete(path),
    ]
    assert {answer.status_code for answer in answers} == {403}
    with pytest.raises(Forbidden):
        sharing.share(
            actor=make.actor(world.stranger), instance=instance, person=world.stranger.username,
            until=timezone.now() + timedelta(days=2),
        )  # fmt: skip


def test_a_look_ends_by_itself_and_by_a_word(world: World) -> None:
    instance, rest = world.running(), Rest(world.stranger)
    let_look(world, instance)
    InstanceViewer.objects.as_system().update(until=timezone.now() - timedelta(seconds=1))
    assert rest.get(f"{LIST}/{instance.pk}").status_code == 404 and not sharing.viewers(instance)
    let_look(world, instance)
    let_look(world, instance, days=2)
    assert [one.person for one in sharing.viewers(instance)] == [world.stranger]
    sharing.unshare(actor=world.actor, instance=instance, person=world.stranger.username)
    assert rest.get(f"{LIST}/{instance.pk}").status_code == 404
    with pytest.raises(NotFound):
        sharing.unshare(actor=world.actor, instance=instance, person=world.stranger.username)


def test_a_look_needs_an_end_and_a_person(world: World) -> None:
    instance = world.create()
    for days in (-1, 91):
        with pytest.raises(Invalid) as refused:
            let_look(world, instance, days=days)
        assert list(refused.value.errors) == ["until"]
    with pytest.raises(Invalid) as refused:
        until = timezone.now() + timedelta(days=1)
        sharing.share(actor=world.actor, instance=instance, person="nobody", until=until)
    assert list(refused.value.errors) == ["person"]
    with pytest.raises(Forbidden):
        sharing.share(actor=make.actor(world.colleague), instance=instance, person=world.stranger.username, until=until)
