"""Watches that fall silent, break, expire or tell old news: staleness has an end, and old news changes nothing."""

from __future__ import annotations

import inspect
from typing import Any
from uuid import uuid4

import pytest

from apps.clusters import reaper
from apps.clusters.models import Cluster
from apps.core import claims
from apps.flows import logs, services
from apps.flows import watch as flow_watch
from apps.instances import services as instances
from kubekit import listwatch, names
from kubekit.listwatch import ListWatch
from tests.faults.watching import Watching
from tests.faults.world import World, attempts_of, fresh, until

WATCH_PODS = {"method": "GET", "path": r"^/api/v1/pods$", "watch": True}
LIST_PODS = {"method": "GET", "path": r"^/api/v1/pods$", "watch": False}


def lists(world: World) -> int:
    """How often all pods were listed."""
    return len([seen for seen in world.proxy.asked("GET", r"^/api/v1/pods$") if not seen.watch])


def watches(world: World) -> int:
    """How many watches of pods began."""
    return len([seen for seen in world.proxy.asked("GET", r"^/api/v1/pods$") if seen.watch])


def hears_of_the_end(world: World, attempt: Any) -> None:
    """The program ends, and the attempt's row is hinted by what watches."""
    world.hints.clear()
    world.end(exit_code=0, log=("42",))
    until("hint for the attempt", lambda: ("attempt", attempt.pk) in list(world.hints))
    assert world.rounds(attempt, "succeeded")


# -- F1 ----------


def test_f01_no_watch_is_believed_for_longer_than_a_minute_of_silence() -> None:
    given = inspect.signature(ListWatch.__init__).parameters
    assert given["read_timeout_s"].default <= 60
    assert given["watch_s"].default <= 300
    assert given["watch_s"].default < given["read_timeout_s"].default, "or a quiet cluster would look dead"
    assert listwatch.RELIST_S <= 600


def test_f01_a_half_open_watch_is_noticed_and_the_next_list_tells_what_was_missed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = world.proxy.plan("silence", **WATCH_PODS)
    attempt = world.look(world.run())
    with Watching(world, monkeypatch):
        silent.wait()
        hears_of_the_end(world, attempt)
        assert lists(world) >= 2


def test_f01_a_list_that_is_swallowed_does_not_hold_the_watcher(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    hole = world.proxy.plan("hole", times=2, **LIST_PODS)
    attempt = world.look(world.run())
    with Watching(world, monkeypatch):
        until("lists that were swallowed", lambda: hole.met == 2)
        hears_of_the_end(world, attempt)


def test_f01_how_old_the_picture_is_stands_in_the_clusters_row(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    Cluster.objects.as_system().filter(pk=world.cluster.pk).update(last_contact_at=None)
    with Watching(world, monkeypatch):
        until("time of the last contact", lambda: fresh(world.cluster).last_contact_at)
        monkeypatch.setattr("apps.clusters.watcher.UNREACHABLE_AFTER_S", 2.0)
        world.proxy.go_dark()
        until("cluster that is called unreachable", lambda: fresh(world.cluster).state == "unreachable")
        world.proxy.calm()
        until("cluster that is back", lambda: fresh(world.cluster).state == "connected")


# -- F2 ----------


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "expire"},
        {"kind": "answer", "status": 410, "reason": "Expired"},
        {"kind": "cut", "lines": 0},
        {"kind": "answer", "status": 500},
        {"kind": "answer", "status": 429, "reason": "TooManyRequests", "retry_after": 1},
        {"kind": "reset"},
    ],
    ids=["410-inside-200", "410", "cut", "500", "429", "reset"],
)
def test_f02_a_watch_that_ends_badly_again_and_again_is_begun_again_with_a_list(
    world: World, monkeypatch: pytest.MonkeyPatch, fault: dict[str, Any]
) -> None:
    met = world.proxy.plan(times=4, **{**WATCH_PODS, **fault})
    attempt = world.look(world.run())
    with Watching(world, monkeypatch):
        until("four watches that failed", lambda: met.met == 4)
        hears_of_the_end(world, attempt)
        # aiohttp itself repeats a read once whose kept connection was reset.
        assert lists(world) >= 3


def test_f02_an_api_server_that_is_away_ends_no_watcher_and_no_attempt(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = world.look(world.run())
    world.runs()
    attempt = world.look(attempt)
    with Watching(world, monkeypatch):
        until("watch", lambda: watches(world) >= 1)
        away = world.proxy.plan("reset", times=10_000)
        world.end(exit_code=0, log=("42",))
        until("many requests that failed", lambda: away.met >= 20)
        for _ in range(3):
            attempt = world.look(attempt)
        assert (attempt.state, attempt.reason_code) == ("running", "cluster_unreachable")
        world.hints.clear()
        world.proxy.calm()
        until("hint for the attempt", lambda: ("attempt", attempt.pk) in list(world.hints))
    assert world.rounds(attempt, "succeeded").reason_code == ""


# -- F6 ----------


def replayed(world: World, kind: str) -> list[dict[str, Any]]:
    """What the watch told so far about our objects of a kind, as a stale cache would tell it again."""
    ours = [
        event
        for path, event in world.proxy.events
        if path == "/api/v1/pods" and (event["object"]["metadata"].get("labels") or {}).get(names.KIND) == kind
    ]
    assert ours
    return [{"type": "MODIFIED", "object": event["object"]} for event in ours if event["type"] != "DELETED"]


def test_f06_old_events_of_an_attempt_neither_wake_it_up_nor_run_it_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Watching(world, monkeypatch):
        until("watch", lambda: watches(world) >= 1)
        attempt = world.look(world.run())
        hears_of_the_end(world, attempt)
        until("event that it went", lambda: any(event["type"] == "DELETED" for _path, event in world.proxy.events))
        old = world.proxy.plan("replay", events=replayed(world, "attempt"), **WATCH_PODS)
        until("replay", old.reached.is_set)
        for kind, pk in list(world.hints):
            if pk == attempt.pk:
                world.look(attempt, kind=kind)
    ended = fresh(attempt)
    assert (ended.state, attempts_of(ended.run), world.pods()) == ("succeeded", 1, [])
    assert len(world.proxy.asked("POST", r"/pods$")) == 1


def test_f06_old_events_of_an_instance_do_not_call_it_running_after_its_stop(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Watching(world, monkeypatch):
        until("watch", lambda: watches(world) >= 1)
        instance = world.instance()
        world.look(instance, kind="instance")
        until("running instance", lambda: fresh(instance).state == "running")
        instances.stop(actor=world.actor, instance=fresh(instance))
        old = replayed(world, "instance")
        assert any(names.GENERATION in event["object"]["metadata"]["labels"] for event in old)
        stale = world.proxy.plan("replay", events=old, **WATCH_PODS)
        until("replay", stale.reached.is_set)
        assert fresh(instance).state == "stopping"
        instance = world.rounds(instance, "stopped", kind="instance")
        assert world.held() == 0
        # The next launch is another one: what is told of the first says nothing about it.
        world.node.hold = True
        instances.start(actor=world.actor, instance=instance)
        world.look(instance, kind="instance")
        until("pod of the second launch", world.pods)
        again = world.proxy.plan("replay", events=old, **WATCH_PODS)
        until("second replay", again.reached.is_set)
        marker = world.look(world.run("marker"))
        until("later event", lambda: ("attempt", marker.pk) in list(world.hints))
        assert fresh(instance).state in ("starting", "queued")


# -- F7 ----------


def taken_away(world: World) -> None:
    """Somebody deletes the one pod by force, and it is gone unless something holds it."""
    pod = world.pod()
    world.direct.delete("Pod", world.queue.namespace, pod["metadata"]["name"], grace_s=0)


def test_f07_a_pod_that_is_deleted_the_moment_it_ends_keeps_log_and_success(world: World) -> None:
    attempt = world.look(world.run())
    world.end(exit_code=0, log=("begun", "42"))
    taken_away(world)
    flow_watch.pods_changed(world.cluster.pk, [("MODIFIED", world.pod())])  # the first that is seen of its end
    attempt = world.rounds(attempt, "succeeded", "failed", "lost")
    assert (attempt.state, attempt.exit_code, logs.read(attempt, 0).data) == ("succeeded", 0, b"begun\n42\n")
    assert world.pods() == []


@pytest.mark.parametrize("fault", ["reset", "hole", "answer"])
def test_f07_the_pod_is_held_until_its_log_is_stored(world: World, fault: str) -> None:
    attempt = world.look(world.run())
    world.end(exit_code=0, log=("begun", "42"))
    taken_away(world)
    # A read whose connection was reset is repeated once.
    each = 2 if fault == "reset" else 1
    failing = world.proxy.plan(fault, times=2 * each, method="GET", path=r"/log$")
    for tries in (1, 2):
        attempt = world.look(attempt)
        assert (failing.met, attempt.ending) == (tries * each, None)
        assert names.RESULT_FINALIZER in world.pod()["metadata"]["finalizers"]
    attempt = world.rounds(attempt, "succeeded", "failed", "lost")
    assert (attempt.state, attempt.exit_code, logs.read(attempt, 0).data) == ("succeeded", 0, b"begun\n42\n")
    assert (world.pods(), attempts_of(attempt.run)) == ([], 1)


def test_f07_a_pod_that_was_taken_by_force_is_lost_and_not_the_programs_failure(world: World) -> None:
    attempt = world.look(world.run())
    world.runs()
    attempt = world.look(attempt)
    pod = world.pod()
    world.direct.patch_merge("Pod", world.queue.namespace, pod["metadata"]["name"], {"metadata": {"finalizers": None}})
    taken_away(world)
    attempt = world.look(attempt)
    assert (attempt.state, attempt.charge, attempt.exit_code) == ("lost", "infra", None)


# -- F8 ----------


def silent(pod: dict[str, Any]) -> None:
    """As the control plane marks the pods of a node that stopped reporting."""
    others = [one for one in pod["status"].get("conditions", []) if one["type"] != "Ready"]
    pod["status"]["conditions"] = [*others, {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]


def test_f08_a_silent_node_starts_no_second_pod_however_long_it_is_silent(world: World) -> None:
    attempt = world.look(world.run(retries={"count": 3, "interval_s": 0}))
    world.runs()
    attempt = world.look(attempt)
    world.node.deaf = True
    world.set_pod(silent)
    attempt = world.look(attempt)
    assert (attempt.state, attempt.reason_code) == ("running", "node_lost")
    for _ in range(3):
        world.clock.forward(hours=2)  # past its time-out: it is asked to end, and nobody answers
        attempt = world.look(attempt)
    assert (attempt.state, attempt.reason_code, world.held()) == ("cancelling", "node_lost", 1)
    assert attempts_of(attempt.run) == 1
    assert len(world.proxy.asked("POST", r"/pods$")) == 1


def test_f08_an_instance_on_a_silent_node_is_unreachable_and_keeps_its_one_pod(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = world.look(world.instance(), kind="instance")
    world.runs()
    instance = world.rounds(instance, "running", kind="instance")
    world.node.deaf = True
    world.set_pod(silent)
    instance = world.look(instance, kind="instance")
    assert (instance.state, world.held()) == ("unreachable", 1)
    world.clock.forward(hours=5)
    instance = world.look(instance, kind="instance")
    assert (instance.state, len(world.pods())) == ("unreachable", 1)
    assert not world.proxy.asked("DELETE")


# -- F9 ----------


def test_f09_a_restart_while_tasks_run_touches_none_of_them_nor_those_of_another_portal(
    world: World, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.PORTAL_ORPHAN_GRACE_S = 0
    mine = [world.look(world.run(f"flow-{number}")) for number in range(7)]
    pods = until("running pods", lambda: len(world.pods()) == 7 and world.pods())
    raw = pods[0]
    labels = {**raw["metadata"]["labels"], names.INSTALL: "another-portal", names.ID: str(uuid4())}
    least = {"cpu": "1m", "memory": "1Mi"}
    spec = {"containers": [{"name": "main", "image": "x", "resources": {"requests": least, "limits": least}}]}
    for name in ("foreign", "foreign-going"):
        foreign = {"name": name, "namespace": world.queue.namespace, "labels": labels}
        foreign["finalizers"] = [names.RESULT_FINALIZER]
        world.direct.create({"apiVersion": "v1", "kind": "Pod", "metadata": foreign, "spec": spec})
    world.direct.delete("Pod", world.queue.namespace, "foreign-going")  # it waits for its own portal
    before = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in world.pods()}
    world.proxy.seen.clear()
    world.clock.forward(seconds=claims.LEASE.total_seconds() + 1)
    for _ in range(2):
        with Watching(world, monkeypatch):
            until("watch", lambda: watches(world) >= 1)
        for attempt in mine:
            assert world.look(attempt).state == "running"
        assert reaper.reap(world.cluster) == []
    assert {seen.method for seen in world.proxy.seen} == {"GET"}
    assert {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in world.pods()} == before
    for attempt in mine:
        services.cancel(actor=world.actor, run=attempt.run)
        world.rounds(attempt, "cancelled")
    assert sorted(pod["metadata"]["name"] for pod in world.pods()) == ["foreign", "foreign-going"]
