"""What a launch and a task ask of an API server, counted where they ask: no read, and no write more than needed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from apps.clusters import watcher
from apps.core import reconciling
from apps.instances import services as instances
from apps.instances.models import Instance
from kubekit.listwatch import ListWatch
from tests.faults.proxy import Seen
from tests.faults.watching import Watching
from tests.faults.world import World, fresh, until

CLAIMS = "persistentvolumeclaims"
LAUNCH_WRITES = ["secrets", "services", "ingresses", "statefulsets"]


def asked(world: World) -> list[tuple[str, str]]:
    """Method and resource of everything but the watcher's own lists and watches."""
    return [(seen.method, resource(seen)) for seen in list(world.proxy.seen) if not of_the_watcher(seen)]


@pytest.fixture
def turn(monkeypatch: pytest.MonkeyPatch) -> threading.Lock:
    """Whoever holds it keeps the watcher from telling: a worker that is met in the middle would look once more."""
    lock, tell = threading.Lock(), watcher._guarded

    def in_turn(*args: Any) -> Any:
        with lock:
            return tell(*args)

    monkeypatch.setattr(watcher, "_guarded", in_turn)
    return lock


def of_the_watcher(seen: Seen) -> bool:
    """Lists and watches of the whole cluster, and the version that is asked for with the first of them."""
    return seen.method == "GET" and "/namespaces/" not in seen.path


def resource(seen: Seen) -> str:
    """``secrets`` of ``/api/v1/namespaces/x/secrets/name``."""
    return seen.path.split("/namespaces/", 1)[1].split("/")[1]


def pod_watches(world: World) -> int:
    """How many watches of pods were opened."""
    return sum(seen.watch for seen in world.proxy.asked("GET", r"/pods$"))


def watching(world: World, monkeypatch: pytest.MonkeyPatch) -> Watching:
    """The watcher with the time-outs that it has in life: none of its watches begins anew during a test."""
    found = Watching(world, monkeypatch)
    monkeypatch.setattr(watcher, "ListWatch", ListWatch)
    return found


def launch(world: World, instance: Instance, turn: threading.Lock) -> None:
    """A worker looks at it, and it comes up."""
    world.hints.clear()  # what the service told; it is followed here and now
    with turn:
        world.look(instance, kind="instance")
    work(world, in_state(instance, "running"), "running instance")


def work(world: World, done: Callable[[], bool], what: str) -> None:
    """A worker that follows the hints, as they come, until it is done."""

    def step() -> bool:
        while world.hints:
            kind, pk = world.hints.pop(0)
            if kind != "volume":
                reconciling.reconcile_one(kind, pk)
        return done()

    until(what, step)


def in_state(instance: Instance, state: str) -> Callable[[], bool]:
    return lambda: bool(fresh(instance).state == state)


def test_a_launch_is_four_writes_a_stop_two_a_start_three_and_no_launch_reads(
    world: World, monkeypatch: pytest.MonkeyPatch, turn: threading.Lock
) -> None:
    with watching(world, monkeypatch):
        until("watch", lambda: pod_watches(world) == 1)
        instance = world.instance()
        assert len(world.proxy.asked("PATCH", CLAIMS)) == 1, "one home"
        world.proxy.seen.clear()
        launch(world, instance, turn)
        assert asked(world) == [("PATCH", name) for name in LAUNCH_WRITES]

        world.proxy.seen.clear()
        instances.stop(actor=world.actor, instance=fresh(instance))
        world.hints.clear()
        with turn:
            world.look(instance, kind="instance")
        assert asked(world) == [("DELETE", "ingresses"), ("PATCH", "statefulsets")]
        work(world, in_state(instance, "stopped"), "stopped instance")
        assert [method for method, _resource in asked(world) if method != "GET"] == ["DELETE", "PATCH"]

        world.proxy.seen.clear()
        instances.start(actor=world.actor, instance=fresh(instance))
        launch(world, instance, turn)
        assert asked(world) == [("PATCH", name) for name in ("secrets", "ingresses", "statefulsets")]

        world.proxy.seen.clear()
        second = instances.create(
            actor=world.actor, queue=world.queue.name, image="jupyter", size="small", name="second"
        )
        launch(world, second, turn)
        assert asked(world) == [("PATCH", name) for name in LAUNCH_WRITES]
        assert world.proxy.asked("PATCH", CLAIMS) == [], "one home for one person"
        assert pod_watches(world) == 0, "the watch from the beginning is open"


def test_a_task_is_one_post_and_one_watch_sees_all_pods_of_the_cluster(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with watching(world, monkeypatch):
        until("watch", lambda: pod_watches(world) == 1)
        attempts = [world.run(f"flow-{number}") for number in range(3)]
        work(world, lambda: all(fresh(one).state == "running" for one in attempts), "attempts that run")
        assert asked(world) == [("POST", "pods")] * 3
        assert pod_watches(world) == 1
