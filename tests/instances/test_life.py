"""The life of an instance through services and reconciler, on a cluster in memory."""

from __future__ import annotations

import pytest

from apps.core.errors import Conflict, Invalid, OverQuota
from apps.core.models import AuditEntry
from apps.instances import changing, services
from apps.instances.changing import Wishes
from apps.instances.models import Instance
from apps.instances.states import InstanceState
from apps.tenants import ledger
from tests.instances.conftest import World

S = InstanceState


def verbs(instance: Instance) -> list[str]:
    rows = AuditEntry.objects.as_system().filter(object_id=instance.pk).order_by("pk")
    return list(rows.values_list("verb", flat=True))


def test_a_new_instance_is_four_applies_and_no_read(world: World, route: str) -> None:
    instance = world.create()
    world.reconcile(instance)
    assert world.cluster.calls == [
        ("apply", "Secret"),
        ("apply", "Service"),
        ("apply", route),
        ("apply", "StatefulSet"),
    ]
    assert instance.observed_generation == instance.generation
    assert instance.stateful_set_uid


def test_it_runs_when_its_pod_is_ready_and_tells_the_stages(world: World) -> None:
    instance = world.running()
    assert instance.state == S.RUNNING
    assert instance.ready_at is not None
    assert set(instance.stages) == {"scheduled", "volume", "image", "started", "ready"}
    assert instance.start_deadline_at is None


def test_a_stop_is_two_writes_the_route_first_and_frees_the_quota_when_the_pod_is_gone(
    world: World, route: str
) -> None:
    instance = world.running()
    services.stop(actor=world.actor, instance=instance)
    instance.refresh_from_db()
    assert instance.state == S.STOPPING
    assert not instance.key
    world.cluster.calls.clear()
    world.reconcile(instance)
    writes = [call for call in world.cluster.calls if call[0] in {"delete", "patch", "apply"}]
    assert writes == [("delete", route), ("patch", "StatefulSet")]
    assert world.cluster.one("StatefulSet")["spec"]["replicas"] == 0
    assert instance.state == S.STOPPING
    assert ledger.held(kind="instance", object_id=instance.pk) is not None
    world.cluster.remove_pod()
    world.reconcile(instance)
    assert instance.state == S.STOPPED
    assert instance.at_rest
    assert ledger.held(kind="instance", object_id=instance.pk) is None


def test_no_pod_is_not_the_end_while_the_controller_may_still_replace_one(world: World) -> None:
    """The pod crashed at the moment of the stop; the controller has not read "0 replicas" and makes another."""
    instance = world.running()
    services.stop(actor=world.actor, instance=instance)
    workload = world.cluster.one("StatefulSet")
    workload["metadata"]["generation"], workload["status"] = 2, {"observedGeneration": 1}
    world.cluster.remove_pod()
    assert world.reconcile(instance).state == S.STOPPING
    assert ledger.held(kind="instance", object_id=instance.pk) is not None
    assert instance.due_at is not None
    workload["status"] = {"observedGeneration": 2}
    assert world.reconcile(instance).state == S.STOPPED


def test_a_later_start_has_another_key_and_is_three_writes(world: World, route: str) -> None:
    instance = world.running()
    first = instance.key.reveal()
    services.stop(actor=world.actor, instance=instance)
    world.reconcile(instance)
    world.cluster.remove_pod()
    world.reconcile(instance)
    services.start(actor=world.actor, instance=instance)
    world.cluster.calls.clear()
    world.reconcile(instance)
    assert [kind for verb, kind in world.cluster.calls] == ["Secret", route, "StatefulSet"]
    assert instance.key.reveal() != first
    assert len(instance.key.reveal()) >= 43
    assert instance.launch == 2
    assert world.cluster.make_pod()["metadata"]["labels"]["mlportal.io/generation"] == "2"


def test_a_restart_waits_until_the_old_pod_is_gone_and_keeps_the_quota(world: World) -> None:
    instance = world.running()
    first = instance.key.reveal()
    services.restart(actor=world.actor, instance=instance)
    world.reconcile(instance)
    assert instance.state == S.STOPPING
    world.cluster.remove_pod()
    world.reconcile(instance)
    assert instance.state == S.STARTING
    assert instance.key.reveal() != first
    assert ledger.held(kind="instance", object_id=instance.pk) is not None
    world.reconcile(instance)
    world.cluster.make_pod()
    world.cluster.run_pod()
    assert world.reconcile(instance).state == S.RUNNING


def test_a_start_during_the_stop_starts_again_afterwards(world: World) -> None:
    instance = world.running()
    services.stop(actor=world.actor, instance=instance)
    services.start(actor=world.actor, instance=instance)
    services.start(actor=world.actor, instance=instance)
    world.reconcile(instance)
    assert instance.state == S.STOPPING
    world.cluster.remove_pod()
    assert world.reconcile(instance).state == S.STARTING


def test_a_stop_during_that_cancels_the_new_start(world: World) -> None:
    instance = world.running()
    services.restart(actor=world.actor, instance=instance)
    services.stop(actor=world.actor, instance=instance)
    world.reconcile(instance)
    world.cluster.remove_pod()
    assert world.reconcile(instance).state == S.STOPPED


def test_delete_removes_all_objects_and_keeps_the_home(world: World) -> None:
    instance = world.running()
    services.delete(actor=world.actor, instance=instance)
    world.reconcile(instance)
    assert instance.state == S.DELETING
    world.cluster.remove_pod()
    world.reconcile(instance)
    assert instance.state == S.DELETED
    assert world.cluster.kinds() == ["Namespace"]
    assert ledger.held(kind="instance", object_id=instance.pk) is None
    assert ledger.held(kind="volume", object_id=instance.home_id) is not None
    assert verbs(instance)[-2:] == ["instance.delete", "instance.deleted"]


def test_a_stateful_set_of_another_uid_but_our_label_is_deleted_with_its_own_uid(world: World) -> None:
    instance = world.running()
    world.cluster.one("StatefulSet")["metadata"]["uid"] = "made-again"
    world.cluster.remove_pod()
    services.delete(actor=world.actor, instance=instance)
    assert world.reconcile(instance).state == S.DELETED


def test_a_foreign_object_of_our_name_stays(world: World) -> None:
    instance = world.running()
    workload = world.cluster.one("StatefulSet")
    workload["metadata"]["uid"] = "foreign"
    workload["metadata"]["labels"] = {}
    world.cluster.remove_pod()
    services.delete(actor=world.actor, instance=instance)
    world.reconcile(instance)
    assert world.cluster.one("StatefulSet")["metadata"]["uid"] == "foreign"


def test_a_deleted_stateful_set_is_made_again(world: World) -> None:
    instance = world.running()
    world.cluster.remove_pod()
    workload = world.cluster.one("StatefulSet")
    del world.cluster.objects["StatefulSet", workload["metadata"]["namespace"], workload["metadata"]["name"]]
    world.reconcile(instance)
    assert instance.state == S.STARTING
    world.reconcile(instance)
    assert world.cluster.one("StatefulSet")["spec"]["replicas"] == 1


@pytest.mark.parametrize("was", ["starting", "running"])
def test_an_instance_whose_stateful_set_somebody_scales_to_none_gets_its_pod_back(world: World, was: str) -> None:
    instance = world.create()
    world.reconcile(instance)
    if was == "running":
        world.cluster.make_pod()
        world.cluster.run_pod()
        world.reconcile(instance)
        world.cluster.remove_pod()
    world.cluster.one("StatefulSet")["spec"]["replicas"] = 0
    world.reconcile(instance)
    world.reconcile(instance)
    assert world.cluster.one("StatefulSet")["spec"]["replicas"] == 1
    world.cluster.make_pod()
    world.cluster.run_pod()
    assert world.reconcile(instance).state == S.RUNNING


def test_a_stop_that_somebody_undoes_is_written_again(world: World) -> None:
    instance = world.running()
    services.stop(actor=world.actor, instance=instance)
    world.reconcile(instance)
    world.cluster.one("StatefulSet")["spec"]["replicas"] = 1
    world.cluster.remove_pod()
    assert world.reconcile(instance).state == S.STOPPING, "a pod is asked for, so one may come"
    world.reconcile(instance)
    assert world.cluster.one("StatefulSet")["spec"]["replicas"] == 0
    assert world.reconcile(instance).state == S.STOPPED


def test_a_stateful_set_that_comes_back_while_its_instance_goes_is_deleted_again(world: World) -> None:
    instance = world.running()
    kept = world.cluster.one("StatefulSet")
    services.delete(actor=world.actor, instance=instance)
    world.reconcile(instance)
    world.cluster.objects["StatefulSet", kept["metadata"]["namespace"], kept["metadata"]["name"]] = kept
    world.reconcile(instance)
    world.reconcile(instance)
    assert "StatefulSet" not in world.cluster.kinds()


def test_over_quota_is_refused_before_anything_is_made(world: World) -> None:
    world.create(size="large")
    before = Instance.objects.as_system().count()
    with pytest.raises(OverQuota) as refused:
        world.create(size="large", actor=world.actor)
    assert Instance.objects.as_system().count() == before
    assert refused.value.data["size_that_fits"] == "small"
    assert "small" in refused.value.next


def test_a_start_over_quota_changes_nothing(world: World) -> None:
    first = world.running()
    services.stop(actor=world.actor, instance=first)
    world.reconcile(first)
    world.cluster.remove_pod()
    world.reconcile(first)
    for _ in range(8):
        world.create()
    with pytest.raises(OverQuota):
        services.start(actor=world.actor, instance=first)
    first.refresh_from_db()
    assert first.state == S.STOPPED
    assert not first.key


def test_a_double_click_makes_one_instance(world: World) -> None:
    first = world.create()
    again = world.create(id=first.pk)
    assert again.pk == first.pk
    assert verbs(first) == ["instance.create"]


def test_names_are_proposed_and_count_up(world: World) -> None:
    assert [world.create().name for _ in range(2)] == ["jupyter-1", "jupyter-2"]


def test_a_name_is_unique_in_its_queue_among_those_alive(world: World) -> None:
    first = world.create(name="训练")
    with pytest.raises(Invalid) as refused:
        world.create(name="训练")
    assert refused.value.code == "name_taken"
    services.delete(actor=world.actor, instance=first)
    world.reconcile(first)
    assert first.state == S.DELETED
    assert world.create(name="训练").pk != first.pk


@pytest.mark.parametrize("name", ["x" * 64, 'a"b', "a/b", "a\nb", "-a"])
def test_a_bad_name_is_told_and_nothing_is_made(world: World, name: str) -> None:
    with pytest.raises(Invalid) as refused:
        world.create(name=name)
    assert refused.value.code == "name_invalid"
    assert "name" in refused.value.errors
    assert not Instance.objects.as_system().exists()


@pytest.mark.parametrize("field", ["image", "size", "queue"])
def test_what_is_not_there_is_told_beside_its_field(world: World, field: str) -> None:
    with pytest.raises(Invalid) as refused:
        world.create(**{field: "nothing"})
    assert refused.value.code == f"{field}_unknown"
    assert field in refused.value.errors


def test_nothing_starts_while_it_is_being_deleted(world: World) -> None:
    instance = world.running()
    services.delete(actor=world.actor, instance=instance)
    with pytest.raises(Conflict):
        services.start(actor=world.actor, instance=instance)


def test_another_size_of_one_that_runs_needs_a_word_of_when(world: World) -> None:
    instance = world.running()
    with pytest.raises(Conflict):
        changing.change(actor=world.actor, instance=instance, wishes=Wishes(size="large"))
    services.stop(actor=world.actor, instance=instance)
    world.reconcile(instance)
    world.cluster.remove_pod()
    world.reconcile(instance)
    changing.change(actor=world.actor, instance=instance, wishes=Wishes(size="large"))
    services.start(actor=world.actor, instance=instance)
    held = ledger.held(kind="instance", object_id=instance.pk)
    assert held is not None
    assert held.cpu_millis == 3000


@pytest.mark.parametrize("kind", ["route", "Service", "Secret"])
@pytest.mark.parametrize("known", [True, False])
def test_an_object_of_the_same_name_that_another_made_is_not_deleted(
    world: World, route: str, kind: str, known: bool
) -> None:
    kind = route if kind == "route" else kind
    instance = world.running()
    if not known:
        Instance.objects.as_system().filter(pk=instance.pk).update(object_uids={})
    others = world.cluster.one(kind)
    others["metadata"] |= {"uid": "another", "labels": {}}
    services.delete(actor=world.actor, instance=instance)
    world.reconcile(instance)
    world.cluster.remove_pod()
    assert world.reconcile(instance).state == S.DELETED
    assert [name for name in world.cluster.kinds() if name in {route, "Service", "Secret"}] == [kind]


@pytest.mark.parametrize("uid", ["", "before a crash"])
def test_what_is_ours_goes_though_its_uid_was_not_stored(world: World, route: str, uid: str) -> None:
    instance = world.running()
    known = dict.fromkeys((route, "Service", "Secret"), uid) if uid else {}
    Instance.objects.as_system().filter(pk=instance.pk).update(object_uids=known)
    services.delete(actor=world.actor, instance=instance)
    world.reconcile(instance)
    world.cluster.remove_pod()
    assert world.reconcile(instance).state == S.DELETED
    assert not {route, "Service", "Secret", "StatefulSet"} & set(world.cluster.kinds())


def test_the_route_goes_in_one_request_by_its_uid_at_the_first_and_at_a_later_stop(world: World, route: str) -> None:
    instance = world.running()
    for _launch in range(2):
        services.stop(actor=world.actor, instance=instance)
        world.cluster.calls.clear()
        world.reconcile(instance)
        assert world.cluster.calls[0] == ("delete", route)
        assert ("get", route) not in world.cluster.calls
        assert route not in world.cluster.kinds()
        world.cluster.remove_pod()
        world.reconcile(instance)
        services.start(actor=world.actor, instance=instance)
        world.reconcile(instance)
        world.cluster.make_pod()
        world.cluster.run_pod()
        world.reconcile(instance)


def test_an_instance_goes_though_a_foreign_stateful_set_has_its_name_and_wants_a_pod(world: World) -> None:
    instance = world.running()
    world.cluster.one("StatefulSet")["metadata"] |= {"uid": "foreign", "labels": {}}
    services.delete(actor=world.actor, instance=instance)
    world.reconcile(instance)
    world.cluster.remove_pod()
    assert world.reconcile(instance).state == S.DELETED
    assert world.cluster.one("StatefulSet")["metadata"]["uid"] == "foreign"
