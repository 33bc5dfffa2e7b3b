"""What the watch says: forward steps at once, all else through a live look."""

from __future__ import annotations

import copy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from apps.clusters.states import ClusterState
from apps.core import actors
from apps.core.models import AuditEntry
from apps.core.transitions import transition
from apps.instances import services, watch
from apps.instances.models import Instance
from apps.instances.states import InstanceState
from tests.conftest import Hint
from tests.instances.conftest import World
from tests.instances.fakes import stamp

S = InstanceState


def hinted(hints: list[Hint], instance: Instance) -> bool:
    return ("instance", str(instance.pk)) in [hint.args for hint in hints]


def test_a_ready_pod_makes_it_running_without_asking_the_cluster(world: World, hints: list[Hint]) -> None:
    instance = world.create()
    world.reconcile(instance)
    world.cluster.make_pod()
    pod = world.cluster.run_pod()
    world.cluster.calls.clear()
    watch.pods_changed(world.queue.cluster_id, [("MODIFIED", pod)])
    instance.refresh_from_db()
    assert instance.state == S.RUNNING
    assert world.cluster.calls == []


def test_what_runs_is_not_looked_at_again_by_itself(world: World, hints: list[Hint]) -> None:
    instance = world.create()
    world.reconcile(instance)
    world.cluster.make_pod()
    pod = world.cluster.run_pod()
    hints.clear()
    watch.pods_changed(world.queue.cluster_id, [("MODIFIED", pod)])
    instance.refresh_from_db()
    assert (instance.state, instance.due_at, hints) == (S.RUNNING, None, [])
    # Nor does a look that finds it running ask for another one.
    assert world.reconcile(instance).due_at is None


def test_a_look_that_somebody_asked_for_meanwhile_is_not_forgotten(world: World, hints: list[Hint]) -> None:
    instance = world.create()
    world.reconcile(instance)
    world.cluster.make_pod()
    pod = world.cluster.run_pod()
    asked = timezone.now()
    Instance.objects.as_system().filter(pk=instance.pk).update(due_at=asked)
    watch.pods_changed(world.queue.cluster_id, [("MODIFIED", pod)])
    instance.refresh_from_db()
    assert (instance.state, instance.due_at) == (S.RUNNING, asked)


def test_what_ends_is_looked_at_when_its_pod_is_gone_or_its_node_is_silent_and_not_at_each_step_of_its_end(
    world: World, hints: list[Hint]
) -> None:
    instance = world.create()
    world.reconcile(instance)
    world.cluster.make_pod()
    pod = world.cluster.run_pod()
    watch.pods_changed(world.queue.cluster_id, [("MODIFIED", pod)])
    instance.refresh_from_db()
    services.stop(actor=world.actor, instance=instance)
    ending = copy.deepcopy(pod)
    ending["metadata"]["deletionTimestamp"] = stamp()
    hints.clear()
    watch.pods_changed(world.queue.cluster_id, [("MODIFIED", ending)])
    assert hinted(hints, instance), "it was not told to end yet"
    world.reconcile(instance)
    hints.clear()
    watch.pods_changed(world.queue.cluster_id, [("MODIFIED", ending)])
    assert not hinted(hints, instance)
    silent = copy.deepcopy(ending)
    silent["status"]["reason"] = "NodeLost"
    watch.pods_changed(world.queue.cluster_id, [("MODIFIED", silent)])
    assert hinted(hints, instance)
    hints.clear()
    watch.pods_changed(world.queue.cluster_id, [("DELETED", ending)])
    assert hinted(hints, instance)


def test_the_stages_have_what_only_events_told(world: World, hints: list[Hint]) -> None:
    instance = world.create()
    world.reconcile(instance)
    pod = world.cluster.make_pod()
    pulled = world.cluster.event("Pulled", 'Successfully pulled image "x" in 2s', about=pod, warning=False)
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=30)
    pulled["lastTimestamp"] = at.isoformat()
    watch.events_came(world.queue.cluster_id, [(pulled, pod["metadata"]["labels"])])
    watch.pods_changed(world.queue.cluster_id, [("MODIFIED", world.cluster.run_pod())])
    instance.refresh_from_db()
    assert instance.state == S.RUNNING
    assert datetime.fromisoformat(instance.stages["image"]) == at


def started(world: World, count: int) -> tuple[list[Instance], list[dict[str, Any]]]:
    """So many instances on their way up, and their pods as the cluster reports them once they are ready."""
    instances, pods = [], []
    for _ in range(count):
        instance = world.create()
        world.reconcile(instance)
        world.cluster.make_pod()
        pods.append(copy.deepcopy(world.cluster.run_pod()))
        world.cluster.remove_pod()
        instances.append(instance)
    return instances, pods


def test_many_that_come_up_cost_two_statements_and_no_look(
    world: World, hints: list[Hint], django_assert_num_queries: Any
) -> None:
    instances, pods = started(world, 3)
    hints.clear()
    world.cluster.calls.clear()
    with django_assert_num_queries(4):  # the savepoint of the test's transaction is two of them
        watch.pods_changed(world.queue.cluster_id, [("MODIFIED", pod) for pod in pods])
    assert {Instance.objects.as_system().get(pk=row.pk).state for row in instances} == {S.RUNNING}
    assert AuditEntry.objects.as_system().filter(verb="instance.running").count() == 3
    assert (hints, world.cluster.calls) == ([], [])


def test_after_a_list_all_that_came_up_unseen_cost_three_statements_and_no_look(
    world: World, hints: list[Hint], django_assert_num_queries: Any
) -> None:
    instances, pods = started(world, 3)
    hints.clear()
    with django_assert_num_queries(5):
        watch.pods_listed(world.queue.cluster_id, pods)
    assert {Instance.objects.as_system().get(pk=row.pk).state for row in instances} == {S.RUNNING}
    with django_assert_num_queries(1):
        watch.pods_listed(world.queue.cluster_id, pods)
    assert hints == []


def test_a_list_with_another_pod_or_one_that_was_started_again_is_taken_in(world: World, hints: list[Hint]) -> None:
    (instance,), (pod,) = started(world, 1)
    watch.pods_listed(world.queue.cluster_id, [pod])
    pod["metadata"]["uid"] = "another"
    watch.pods_listed(world.queue.cluster_id, [pod])
    instance.refresh_from_db()
    assert (instance.state, instance.pod_uid, instance.reason_code) == (S.RUNNING, "another", "")
    pod["status"]["containerStatuses"][0] |= {
        "restartCount": 1,
        "lastState": {"terminated": {"exitCode": 1, "reason": "Error", "finishedAt": "2026-11-30T10:00:00Z"}},
    }
    watch.pods_listed(world.queue.cluster_id, [pod])
    instance.refresh_from_db()
    assert (instance.state, instance.restarts, instance.reason_code) == (S.RUNNING, 1, "instance_came_back")


def test_one_trouble_among_many_holds_nobody_up(world: World, hints: list[Hint]) -> None:
    instances, pods = started(world, 3)
    del pods[1]["status"]["conditions"]
    pods[1]["metadata"]["deletionTimestamp"] = "2026-11-30T10:00:00Z"
    hints.clear()
    watch.pods_changed(world.queue.cluster_id, [("MODIFIED", pod) for pod in pods])
    states = [Instance.objects.as_system().get(pk=row.pk).state for row in instances]
    assert states == [S.RUNNING, S.STARTING, S.RUNNING]
    assert [hint.args[1] for hint in hints] == [str(instances[1].pk)]


def test_of_several_messages_the_newest_counts_and_a_pod_that_went_is_looked_at(
    world: World, hints: list[Hint]
) -> None:
    (instance,), (pod,) = started(world, 1)
    going = copy.deepcopy(pod)
    going["metadata"]["uid"] = "the one before"
    hints.clear()
    watch.pods_changed(world.queue.cluster_id, [("MODIFIED", pod), ("DELETED", going)])
    instance.refresh_from_db()
    assert instance.state == S.STARTING
    assert hinted(hints, instance)


def test_a_cluster_that_is_back_has_its_instances_back_with_the_list(world: World, hints: list[Hint]) -> None:
    (instance,), (pod,) = started(world, 1)
    watch.pods_changed(world.queue.cluster_id, [("MODIFIED", pod)])
    transition(world.queue.cluster, ClusterState.UNREACHABLE, actor=actors.system("test"))
    instance.refresh_from_db()
    assert (instance.state, instance.reason_code) == (S.UNREACHABLE, "cluster_unreachable")
    # A watch's message may be an old one: only the list is believed.
    watch.pods_changed(world.queue.cluster_id, [("MODIFIED", pod)])
    instance.refresh_from_db()
    assert instance.state == S.UNREACHABLE
    watch.pods_listed(world.queue.cluster_id, [pod])
    instance.refresh_from_db()
    assert (instance.state, instance.reason_code) == (S.RUNNING, "")


def test_one_that_stops_answering_is_looked_at_once(world: World, hints: list[Hint]) -> None:
    instance = world.running()
    hints.clear()
    pod = world.cluster.container(ready=False, state={"running": {"startedAt": stamp()}})
    watch.pods_changed(world.queue.cluster_id, [("MODIFIED", pod)])
    assert hinted(hints, instance)
    assert (world.reconcile(instance).reason_code, instance.due_at is None) == ("instance_not_answering", False)
    hints.clear()
    watch.pods_changed(world.queue.cluster_id, [("MODIFIED", pod)])
    assert hints == []


def test_a_deleted_pod_only_wakes(world: World, hints: list[Hint]) -> None:
    instance = world.running()
    hints.clear()
    watch.pods_changed(world.queue.cluster_id, [("DELETED", world.cluster.one("Pod"))])
    instance.refresh_from_db()
    assert instance.state == S.RUNNING
    assert hinted(hints, instance)


def test_an_old_message_of_an_earlier_launch_changes_nothing(world: World, hints: list[Hint]) -> None:
    instance = world.running()
    old = copy.deepcopy(world.cluster.one("Pod"))
    services.restart(actor=world.actor, instance=instance)
    world.reconcile(instance)
    world.cluster.remove_pod()
    world.reconcile(instance)
    assert instance.state == S.STARTING
    watch.pods_changed(world.queue.cluster_id, [("MODIFIED", old)])
    instance.refresh_from_db()
    assert instance.state == S.STARTING


def test_trouble_is_looked_at_live(world: World, hints: list[Hint]) -> None:
    instance = world.create()
    world.reconcile(instance)
    world.cluster.make_pod()
    hints.clear()
    pod = world.cluster.wait("ErrImagePull", "not found")
    watch.pods_changed(world.queue.cluster_id, [("MODIFIED", pod)])
    instance.refresh_from_db()
    assert instance.state == S.STARTING
    assert hinted(hints, instance)


def test_a_pod_of_another_cluster_with_our_label_is_ignored(world: World, hints: list[Hint]) -> None:
    instance = world.create()
    world.reconcile(instance)
    world.cluster.make_pod()
    hints.clear()
    watch.pods_changed(instance.pk, [("MODIFIED", world.cluster.run_pod())])
    instance.refresh_from_db()
    assert instance.state == S.STARTING
    assert hints == []


def test_events_are_kept_in_plain_words_and_warnings_wake(world: World, hints: list[Hint]) -> None:
    instance = world.create()
    world.reconcile(instance)
    pod = world.cluster.make_pod()
    hints.clear()
    labels = pod["metadata"]["labels"]
    calm = world.cluster.event("Pulling", 'Pulling image "x"', about=pod, warning=False)
    watch.events_came(world.queue.cluster_id, [(calm, labels)])
    assert not hinted(hints, instance)
    watch.events_came(world.queue.cluster_id, [(world.cluster.event("FailedMount", "no", about=pod), labels)])
    assert hinted(hints, instance)
    instance.refresh_from_db()
    assert {row["sentence"] for row in instance.last_events} == {
        "Pulling the image x.",
        "A volume could not be mounted: no",
    }


def test_a_probe_that_fails_every_second_neither_wakes_nor_writes_every_second(world: World, hints: list[Hint]) -> None:
    instance = world.create()
    world.reconcile(instance)
    pod = world.cluster.make_pod()
    hints.clear()
    event = world.cluster.event("Unhealthy", "Readiness probe failed", about=pod)
    for count in range(1, 5):
        watch.events_came(world.queue.cluster_id, [({**event, "count": count}, pod["metadata"]["labels"])])
    assert not hinted(hints, instance)
    instance.refresh_from_db()
    assert [row["count"] for row in instance.last_events] == [1]


def test_at_most_twenty_events_are_kept(world: World) -> None:
    instance = world.create()
    world.reconcile(instance)
    pod = world.cluster.make_pod()
    for number in range(25):
        event = world.cluster.event("Unhealthy", f"try {number}", about=pod, warning=False)
        watch.events_came(world.queue.cluster_id, [(event, pod["metadata"]["labels"])])
    instance.refresh_from_db()
    assert len(instance.last_events) == 20


def test_after_a_list_what_has_no_pod_is_looked_at(world: World, hints: list[Hint]) -> None:
    with_pod, without = world.running(), world.create()
    world.reconcile(without)
    pod = next(obj for (kind, _, _), obj in world.cluster.objects.items() if kind == "Pod")
    hints.clear()
    watch.pods_listed(world.queue.cluster_id, [pod])
    assert hinted(hints, without)
    assert not hinted(hints, with_pod)


def test_after_a_list_what_is_no_longer_ready_is_looked_at(world: World, hints: list[Hint]) -> None:
    instance = world.running()
    hints.clear()
    pod = world.cluster.wait("CrashLoopBackOff", restarts=1)
    watch.pods_listed(world.queue.cluster_id, [pod])
    assert hinted(hints, instance)


@pytest.mark.django_db(transaction=True)
def test_a_cluster_that_goes_away_is_said_by_its_instances(world: World, hints: list[Hint]) -> None:
    running = world.running()
    cluster = world.queue.cluster
    transition(cluster, ClusterState.UNREACHABLE, actor=actors.system("test"))
    running.refresh_from_db()
    assert (running.state, running.reason_code) == (S.UNREACHABLE, "cluster_unreachable")
    transition(cluster, ClusterState.CONNECTED, actor=actors.system("test"))
    running.refresh_from_db()
    assert running.due_at is not None, "or one that the list does not tell of would stay as it is"


def test_after_a_list_one_that_was_unreachable_and_is_not_ready_is_looked_at(world: World, hints: list[Hint]) -> None:
    instance = world.running()
    transition(world.queue.cluster, ClusterState.UNREACHABLE, actor=actors.system("test"))
    hints.clear()
    watch.pods_listed(world.queue.cluster_id, [world.cluster.wait("CrashLoopBackOff", restarts=1)])
    assert hinted(hints, instance)


@pytest.mark.parametrize("how", ["watch", "list"])
def test_a_pod_of_a_stopped_instance_goes_and_is_not_made_again(world: World, hints: list[Hint], how: str) -> None:
    instance = world.running()
    services.stop(actor=world.actor, instance=instance)
    world.reconcile(instance)
    world.cluster.remove_pod()
    assert world.reconcile(instance).state == S.STOPPED
    world.cluster.one("StatefulSet")["spec"]["replicas"] = 1
    pod = world.cluster.make_pod()
    hints.clear()
    if how == "watch":
        watch.pods_changed(world.queue.cluster_id, [("ADDED", pod)])
    else:
        strange = copy.deepcopy(pod)
        strange["metadata"]["labels"]["mlportal.io/id"] = "anything"
        watch.pods_listed(world.queue.cluster_id, [pod, strange])
    assert hinted(hints, instance)
    world.cluster.calls.clear()
    world.reconcile(instance)
    assert world.cluster.calls[-2:] == [("patch", "StatefulSet"), ("delete", "Pod")]
    assert world.cluster.one("StatefulSet")["spec"]["replicas"] == 0
    assert "Pod" not in world.cluster.kinds()
    assert (instance.state, instance.due_at is not None) == (S.STOPPED, True)
    entry = AuditEntry.objects.as_system().get(object_id=instance.pk, verb="instance.stray-pod")
    assert entry.detail["uid"] == pod["metadata"]["uid"]
    assert world.reconcile(instance).due_at is None


def test_a_stateful_set_of_the_same_name_that_is_not_ours_is_not_scaled(world: World) -> None:
    instance = world.running()
    services.stop(actor=world.actor, instance=instance)
    world.reconcile(instance)
    world.cluster.remove_pod()
    world.reconcile(instance)
    workload = world.cluster.one("StatefulSet")
    world.cluster.make_pod()
    workload["metadata"]["labels"]["mlportal.io/id"], workload["spec"]["replicas"] = "another", 3
    world.reconcile(instance)
    assert world.cluster.one("StatefulSet")["spec"]["replicas"] == 3
