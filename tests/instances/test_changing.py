"""A change of an instance: the plan, what counts when, the quota with it, and two people at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID, uuid4

import pytest

from apps.core.errors import Conflict, Forbidden, Invalid, NotFound, OverQuota
from apps.core.models import AuditEntry
from apps.instances import changes, changing, pending, services
from apps.instances.changes import Mounted, Settings
from apps.instances.changing import Wishes
from apps.instances.models import Instance, InstanceMount
from apps.instances.options import Options
from apps.instances.states import InstanceState
from apps.storage.models import Volume
from apps.tenants import ledger
from apps.tenants.ledger import Amount
from tests.instances.conftest import MIB, World
from tests.instances.test_api import LIST, Rest
from tests.tenants import make

S = InstanceState
IMAGE, SIZE, DATA = uuid4(), uuid4(), uuid4()


def settings(**other: Any) -> Settings:
    amount = Amount(cpu_millis=500, memory_bytes=512 * MIB)
    base = {"image_id": IMAGE, "image": "jupyter", "size_id": SIZE, "size": "small", "amount": amount}
    return Settings(**{**base, **other})


def data(path: str = "/data", *, volume: UUID = DATA, read_only: bool = False) -> Mounted:
    return Mounted(volume_id=volume, volume="imagenet", path=path, read_only=read_only)


def told(old: Settings, new: Settings) -> list[tuple[str, str, str]]:
    return [(line.what, line.before, line.after) for line in changes.changes(old, new, running=True).lines]


# --- the plan, pure ----------------------------------------------------------------------------------------------


def test_the_same_settings_are_no_change_and_end_nothing() -> None:
    plan = changes.changes(settings(), settings(), running=True)
    assert plan.is_empty and not plan.needs_start and not plan.ends


@pytest.mark.parametrize(
    ("other", "line"),
    [
        ({"image_id": uuid4(), "image": "r"}, ("image", "jupyter", "r")),
        (
            {
                "size_id": uuid4(),
                "size": "gpu",
                "amount": Amount(cpu_millis=1000, memory_bytes=1 << 30, gpus={"g/g": 2}),
            },
            ("size", "small: 0.5 CPU, 512 MiB", "gpu: 1 CPU, 1 GiB, 2 g/g"),
        ),
        ({"mounts": frozenset({data()})}, ("volumes", "", "imagenet → /data")),
        ({"options": Options(env={"A": "1"})}, ("env", "", "“1”")),
        ({"options": Options(script="echo 1\necho 2\n")}, ("script", "", "2 lines, “echo 1”")),
        ({"options": Options(shm_bytes=64 * MIB)}, ("shm_bytes", "half of the memory", "64 MiB")),
        ({"options": Options(time_zone="Asia/Tokyo")}, ("time_zone", "UTC", "Asia/Tokyo")),
    ],
)
def test_each_thing_that_changes_is_one_line(other: Mapping[str, Any], line: tuple[str, str, str]) -> None:
    assert told(settings(), settings(**other)) == [line]
    plan = changes.changes(settings(), settings(**other), running=True)
    assert plan.needs_start and plan.ends and plan.kept
    assert not changes.changes(settings(), settings(**other), running=False).needs_start


def test_volumes_that_go_and_stay_and_change_are_told_apart() -> None:
    old = settings(mounts=frozenset({data("/a"), data("/b"), data("/c")}))
    new = settings(mounts=frozenset({data("/a"), data("/b", read_only=True)}))
    assert told(old, new) == [
        ("volumes", "imagenet → /b", "imagenet → /b (read only)"),
        ("volumes", "imagenet → /c", ""),
    ]
    kept = " ".join(changes.changes(old, new, running=False).kept)
    assert "imagenet → /a" in kept and "keep their files" in kept


def test_of_two_sizes_the_larger_of_each_resource_is_held() -> None:
    one, other = Amount(cpu_millis=1, memory_bytes=9, gpus={"a/a": 1}), Amount(cpu_millis=2, memory_bytes=3)
    assert changes.largest(one, other) == Amount(cpu_millis=2, memory_bytes=9, gpus={"a/a": 1})


# --- carried out -------------------------------------------------------------------------------------------------


def change(world: World, instance: Instance, when: changing.When = "", **wishes: Any) -> Instance:
    row = changing.change(actor=world.actor, instance=instance, wishes=Wishes(**wishes), when=when)
    instance.refresh_from_db()
    return row


def stopped(world: World, instance: Instance) -> Instance:
    services.stop(actor=world.actor, instance=instance)
    world.reconcile(instance)
    world.cluster.remove_pod()
    return world.reconcile(instance)


def volume(world: World, name: str = "imagenet") -> Volume:
    made: Volume = Volume.objects.create(
        name=name, queue=world.queue, owner=world.owner, size_bytes=1, claim=f"claim-{name}", kind="data", state="bound"
    )
    return made


def held(instance: Instance) -> Amount | None:
    return ledger.held(kind="instance", object_id=instance.pk)


def test_what_is_stopped_is_changed_at_once_and_starts_with_it_in_three_writes(world: World) -> None:
    instance = stopped(world, world.running())
    mounted = [{"volume": volume(world).name, "path": "/data", "read_only": True}]
    change(world, instance, size="large", volumes=mounted, options={"env": {"A": "1"}})
    assert (instance.size.name, instance.pending, instance.revision) == ("large", {}, 2)
    services.start(actor=world.actor, instance=instance)
    world.cluster.calls.clear()
    world.reconcile(instance)
    assert len(world.cluster.calls) == 3
    pod = world.cluster.one("StatefulSet")["spec"]["template"]["spec"]["containers"][0]
    assert pod["resources"]["limits"]["cpu"] == "3"
    assert {"name": "A", "value": "1"} in pod["env"]
    assert [row["readOnly"] for row in pod["volumeMounts"] if row["mountPath"] == "/data"] == [True]
    assert held(instance) == world.large.amount


def test_of_one_that_runs_nothing_counts_until_its_next_start(world: World) -> None:
    instance = world.running()
    change(world, instance, "next_start", size="large", options={"script": "echo hello"})
    assert (instance.state, instance.size.name) == (S.RUNNING, "small")
    assert held(instance) == world.small.amount
    assert [line.what for line in changing.waiting(instance).lines] == ["size", "script"]
    stopped(world, instance)
    assert (instance.size.name, instance.options, instance.pending) == ("large", {"script": "echo hello\n"}, {})
    assert held(instance) is None


def test_restart_now_holds_the_larger_size_until_the_old_pod_is_gone_and_then_the_new_one(world: World) -> None:
    instance = world.running(size="large")
    change(world, instance, "restart", size="small")
    assert (instance.state, instance.desired) == (S.STOPPING, "running")
    assert held(instance) == world.large.amount
    world.reconcile(instance)
    world.cluster.remove_pod()
    world.reconcile(instance)
    assert (instance.state, instance.size.name, instance.pending) == (S.STARTING, "small", {})
    assert held(instance) == world.small.amount
    world.reconcile(instance)
    assert world.cluster.one("StatefulSet")["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] == {
        "cpu": "500m", "memory": "512Mi",
    }  # fmt: skip


def test_what_does_not_fit_the_quota_changes_nothing(world: World) -> None:
    instance, _other = world.running(), world.create(size="large")
    with pytest.raises(OverQuota):
        change(world, instance, "restart", size="large")
    instance.refresh_from_db()
    assert (instance.state, instance.pending, instance.revision) == (S.RUNNING, {}, 1)
    assert held(instance) == world.small.amount
    change(world, instance, "next_start", size="large")
    with pytest.raises(OverQuota):
        services.restart(actor=world.actor, instance=instance)
    instance.refresh_from_db()
    assert (instance.state, held(instance)) == (S.RUNNING, world.small.amount)


def test_a_change_while_it_restarts_counts_for_the_launch_that_is_to_come(world: World) -> None:
    instance = world.running()
    services.restart(actor=world.actor, instance=instance)
    change(world, instance, "next_start", size="large")
    assert held(instance) == world.large.amount
    world.reconcile(instance)
    world.cluster.remove_pod()
    world.reconcile(instance)
    assert (instance.state, instance.size.name, held(instance)) == (S.STARTING, "large", world.large.amount)


def test_changed_back_before_the_next_start_leaves_nothing_waiting(world: World) -> None:
    instance = world.running()
    change(world, instance, "next_start", size="large")
    change(world, instance, size="small")
    assert (instance.pending, instance.state) == ({}, S.RUNNING)


def test_a_second_change_is_one_of_what_is_to_come(world: World) -> None:
    instance = world.running()
    change(world, instance, "next_start", size="large", options={"env": {"A": "1"}})
    change(world, instance, "next_start", options={"time_zone": "Asia/Tokyo"})
    ahead = pending.next_start(instance)
    assert (ahead.size, dict(ahead.options.env), ahead.options.time_zone) == ("large", {"A": "1"}, "Asia/Tokyo")


def test_shared_memory_larger_than_the_new_size_is_refused_where_it_stands(world: World) -> None:
    instance = stopped(world, world.running(size="large", more=Options(shm_bytes=1024 * MIB)))
    with pytest.raises(Invalid) as refused:
        change(world, instance, size="small")
    assert list(refused.value.errors) == ["shm_bytes"]


def test_a_volume_that_is_deleted_meanwhile_is_left_out(world: World) -> None:
    instance, mounted = world.running(), volume(world)
    change(world, instance, "next_start", volumes=[{"volume": mounted.name, "path": "/data"}])
    Volume.objects.as_system().filter(pk=mounted.pk).update(state="deleted")
    stopped(world, instance)
    assert not InstanceMount.objects.as_system().filter(instance=instance).exists() and instance.pending == {}


def test_who_saw_an_older_revision_is_told_and_changes_nothing(world: World) -> None:
    instance = stopped(world, world.running())
    changing.change(actor=world.actor, instance=instance, wishes=Wishes(size="large"), revision=1)
    with pytest.raises(Conflict) as refused:
        changing.change(actor=world.actor, instance=instance, wishes=Wishes(size="small"), revision=1)
    assert (refused.value.code, refused.value.data) == ("changed_meanwhile", {"revision": 2})
    instance.refresh_from_db()
    assert instance.size.name == "large"


def test_only_the_owner_and_the_team_s_administrators_see_a_plan_or_change_anything(world: World) -> None:
    instance = world.running()
    for who, refusal in ((world.colleague, Forbidden), (world.stranger, NotFound)):
        with pytest.raises(refusal):
            changing.change(actor=make.actor(who), instance=instance, wishes=Wishes(size="large"), when="next_start")
    with pytest.raises(Forbidden):
        changing.preview(actor=make.actor(world.colleague), instance=instance, wishes=Wishes(size="large"))


def test_the_history_names_variables_and_never_their_values(world: World) -> None:
    instance = stopped(world, world.running())
    change(world, instance, options={"env": {"TOKEN": "hush-hush"}, "script": "echo hush-hush"})
    entries = AuditEntry.objects.as_system().filter(object_id=instance.pk, verb="instance.change")
    detail = str(entries.get().detail)
    assert "TOKEN" in detail and "hush-hush" not in detail


# --- by REST -----------------------------------------------------------------------------------------------------


def test_a_dry_run_tells_all_and_writes_nothing(world: World) -> None:
    instance, rest = world.running(), Rest(world.owner)
    path, before = f"{LIST}/{instance.pk}", AuditEntry.objects.as_system().count()
    plan = rest.patch(f"{path}?dry_run=true", {"size": "large"}).json()
    assert plan["changes"] == [{"what": "size", "before": "small: 0.5 CPU, 512 MiB", "after": "large: 3 CPU, 4 GiB"}]
    assert plan["needs_start"] and plan["ends"] and plan["keeps"] and plan["revision"] == 1
    assert plan["forecast"]["answer"] in {"now", "queued"}
    assert AuditEntry.objects.as_system().count() == before
    instance.refresh_from_db()
    assert instance.pending == {}
    world.create(size="large")
    assert rest.patch(f"{path}?dry_run=true", {"size": "large"}).json()["forecast"]["answer"] == "never"
    assert rest.patch(f"{path}?dry_run=true", {"size": "small"}).json()["changes"] == []


def test_what_it_holds_itself_does_not_stand_in_its_own_way(world: World) -> None:
    instance, rest = world.running(size="large"), Rest(world.owner)
    plan = rest.patch(f"{LIST}/{instance.pk}?dry_run=true", {"time_zone": "Asia/Tokyo"}).json()
    assert plan["forecast"]["answer"] == "now"


def test_rest_changes_and_tells_what_waits_and_what_is_wrong(world: World) -> None:
    instance, rest = world.running(), Rest(world.owner)
    path = f"{LIST}/{instance.pk}"
    assert rest.patch(path, {"size": "large"}).json()["code"] == "not_stopped"
    item = rest.patch(path, {"size": "large", "when": "next_start", "revision": 1}).json()
    assert [line["what"] for line in item["waiting"]] == ["size"] and item["revision"] == 2
    assert rest.patch(path, {"size": "small", "revision": 1}).json()["code"] == "changed_meanwhile"
    assert rest.patch(path, {"env": {"HOME": "/"}, "when": "restart"}).json()["code"] == "options_invalid"
    assert rest.patch(path, {"size": "large", "when": "restart"}).json()["state"] == "stopping"
