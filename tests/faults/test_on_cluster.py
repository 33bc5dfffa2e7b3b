"""The same faults before a real API server (``KUBECONFIG``): what it charges, what it keeps, how it ends a watch."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from apps.clusters import access, installation
from apps.core import reconciling
from apps.flows import services
from kubekit import client, names
from kubekit.credentials import parse_kubeconfig
from kubekit.errors import AlreadyExists, NotFound
from tests.faults.proxy import FaultProxy
from tests.faults.watching import Watching
from tests.faults.world import Clock, World, fresh, until
from tests.tenants import make

pytestmark = pytest.mark.cluster

#: Where the image is not there it waits for it; both will do.
SLEEPS = ["python", "-c", "import time; time.sleep(600)"]
POST_POD = {"method": "POST", "path": r"/pods$"}
WATCH_PODS = {"method": "GET", "path": r"^/api/v1/pods$", "watch": True}


@pytest.fixture
def world(transactional_db: None, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A queue on the cluster of ``KUBECONFIG``, behind a proxy."""
    upstream = parse_kubeconfig(Path(os.environ["KUBECONFIG"]).read_text(encoding="utf-8"))
    hints: list[tuple[str, Any]] = []
    monkeypatch.setattr(reconciling, "send_hint", lambda kind, pk, **_: hints.append((kind, pk)))
    installation.install_id.cache_clear()
    proxy = FaultProxy(upstream, tmp_path)
    proxy.start()
    row = make.cluster(server=proxy.credentials.server, credentials=access.pack(proxy.credentials))
    row.refresh_from_db()
    team = make.team()
    queue = make.queue(name=f"faults-{time.time_ns()}", in_team=team, on=row)
    person = make.user(role_in=team)
    found = World(
        localkube=None,  # type: ignore[arg-type]
        node=None,  # type: ignore[arg-type]
        proxy=proxy,
        direct=client.Cluster(upstream),
        cluster=row,
        queue=queue,
        team=team,
        person=person,
        actor=make.actor(person),
        clock=clock,
        hints=hints,
    )
    found.catalogue()
    assert reconciling.reconcile_one("queue", queue.pk)
    until("quota that counts", lambda: "pods" in found.used())
    proxy.seen.clear()
    yield found
    proxy.calm()
    found.clear()
    access.forget(row.pk)
    found.direct.close()
    proxy.stop()
    installation.install_id.cache_clear()


def ends_by_cancel(world: World, attempt: Any) -> None:
    """Cancelled, gone, and nothing is charged any more."""
    services.cancel(actor=world.actor, run=attempt.run)
    until("cancelled attempt", lambda: (world.look(attempt).state == "cancelled") or time.sleep(0.5))
    assert (world.pods(), world.held()) == ([], 0)
    until("quota that counts nothing", lambda: world.used()["pods"] == "0")


def test_f04_f12_a_create_whose_answer_was_dropped_is_adopted_and_charged_once(world: World) -> None:
    lost = world.proxy.plan("drop", **POST_POD)
    attempt = world.run(command=SLEEPS)
    for _ in range(4):
        attempt = world.look(attempt)
    assert lost.met == 1
    assert attempt.pod_uid == world.pod()["metadata"]["uid"]
    assert len(world.proxy.asked("POST", r"/pods$")) == 1
    assert until("quota that counted", lambda: world.used()["pods"] != "0" and world.used()["pods"]) == "1"
    ends_by_cancel(world, attempt)


def test_f12_this_server_charges_a_create_that_it_refuses_because_the_name_is_taken(world: World) -> None:
    attempt = world.look(world.run(command=SLEEPS))
    pod = world.pod()
    again = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": pod["spec"]["containers"]}}
    again["metadata"] = {key: pod["metadata"][key] for key in ("name", "namespace")}
    for container in again["spec"]["containers"]:
        container.pop("volumeMounts", None)
    with pytest.raises(AlreadyExists):
        world.direct.create(again)
    # What the portal must never do; its books are those of the pods that are there.
    assert until("count", lambda: world.used()["pods"] != "0" and world.used()["pods"]) in ("1", "2")
    assert len(world.pods()) == 1
    assert world.look(attempt).pod_uid == pod["metadata"]["uid"]


def test_f07_a_pod_deleted_by_somebody_stays_until_we_have_read_it(world: World) -> None:
    attempt = world.look(world.run(command=SLEEPS))
    name = world.pod()["metadata"]["name"]
    world.direct.delete("Pod", world.queue.namespace, name, grace_s=0)
    assert names.RESULT_FINALIZER in world.pod()["metadata"]["finalizers"]

    def ended() -> bool:
        world.clock.forward(seconds=2)
        return world.look(attempt).is_terminal

    until("attempt that ended", ended)
    with pytest.raises(NotFound):
        world.direct.get("Pod", world.queue.namespace, name)
    assert world.held() == 0


@pytest.mark.parametrize("kind", ["expire", "cut", "silence"])
def test_f01_f02_a_watch_that_ends_badly_is_begun_again_with_a_list(
    world: World, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    bad = world.proxy.plan(kind, times=2, **WATCH_PODS)
    attempt = world.look(world.run(command=SLEEPS))
    with Watching(world, monkeypatch):
        until("two watches that failed", lambda: bad.met == 2)
        world.hints.clear()
        services.cancel(actor=world.actor, run=fresh(attempt).run)
        world.look(attempt)
        world.hints.clear()
        until(
            "hint for the attempt",
            lambda: ("attempt", attempt.pk) in list(world.hints) or world.look(attempt).is_terminal,
        )
    until("cancelled attempt", lambda: (world.look(attempt).state == "cancelled") or time.sleep(0.5))
