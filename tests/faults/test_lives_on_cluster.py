"""Random lives with real processes on a real API server, all in one portal: ``MLPORTAL_REAL_LIVES=7,12`` plays some.

Requests about each life meet faults drawn from its number, watches expire and break, and web, worker and control are
killed meanwhile. Then the weather calms, and what must hold is read from the cluster itself.
"""

from __future__ import annotations

import base64
import os
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from kubekit.client import Cluster
from kubekit.credentials import parse_kubeconfig
from kubekit.errors import NotFound
from tests.crash.harness import PATIENCE_S
from tests.crash.observer import Observer
from tests.faults.proxy import FaultProxy
from tests.faults.real import Life, World
from tests.faults.storm import Weather
from tests.journeys.portal import Portal, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

SEEDS = [int(text) for text in os.environ.get("MLPORTAL_REAL_LIVES", "").split(",") if text] or list(range(20))
LEASE_S, GRACE_S = 10, 20
GIB = 1 << 30


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[FaultProxy]:
    """Before the cluster of ``KUBECONFIG``."""
    found = FaultProxy(parse_kubeconfig(Path(os.environ["KUBECONFIG"]).read_text(encoding="utf-8")), tmp_path)
    found.start()
    yield found
    found.stop()


@pytest.fixture
def world(tmp_path: Path, proxy: FaultProxy) -> Iterator[World]:
    """A portal whose only cluster is that one, and a queue in it; both go, and so does all that was made."""
    config = tmp_path / "kubeconfig"
    config.write_text(_kubeconfig(proxy), encoding="utf-8")
    portal = Portal(
        home=tmp_path / "home",
        env={
            "PORTAL_CLUSTER": str(config),
            "PORTAL_LEASE_S": str(LEASE_S),
            "PORTAL_ORPHAN_GRACE_S": str(GRACE_S),
        },
    )
    real = Path(os.environ["KUBECONFIG"])
    direct = Cluster(parse_kubeconfig(real.read_text(encoding="utf-8")))
    found = World(portal=portal, direct=direct, observer=Observer(real))
    found.observer.start()
    try:
        portal.start()
        (first,) = found.ask("GET", "queues").json["items"]
        spaces = [first["namespace"]]
        quota = {
            "name": "lives", "team": first["team"]["id"], "cluster": first["cluster"]["id"], "cpu_millis": 1000,
            "memory_bytes": 2 * GIB, "storage_bytes": 40 * GIB, "cpu_oversell": "20", "memory_oversell": "20",
        }  # fmt: skip
        made = found.ask("POST", "queues", quota, key="lives").json
        found.queue = found.in_state(f"queues/{made['id']}", "ready")
        spaces.append(found.namespace)
        yield found
    finally:
        proxy.calm()
        found.observer.stop()
        stopped = portal.stop() if portal.process is not None else 0
        for space in spaces:
            _remove(direct, space)
        direct.close()
    assert stopped == 0, portal.log.read_text()[-4000:]


def test_whatever_happens_to_real_processes_nothing_is_lost_doubled_or_left_behind(
    world: World, proxy: FaultProxy
) -> None:
    lives = [Life(seed, world) for seed in SEEDS]
    weather = Weather([life.storm for life in lives])
    proxy.chance = weather.fault
    dice = random.Random("deaths")
    with ThreadPoolExecutor(len(lives)) as pool:
        asked = [pool.submit(life.live) for life in lives]
        for program in ("worker", "control", "web", "worker"):
            time.sleep(dice.uniform(2.0, 5.0))
            world.kill(program)
        for life, answer in zip(lives, asked, strict=True):
            assert answer.exception() is None, f"life {life.seed}: {answer.exception()}"
    for life in lives:
        life.storm.end()
    calm = time.monotonic()

    def unsettled() -> list[str]:
        return [f"life {life.seed}: {what}" for life in lives for what in life.unsettled()]

    try:
        wait_until("portal that has recovered", lambda: not unsettled(), seconds=4 * PATIENCE_S, every=1.0)
    except AssertionError as error:
        raise AssertionError(f"{error}: {unsettled()}") from error
    print(f"\n{len(lives)} lives recovered in {time.monotonic() - calm:.0f} s after the last fault")
    print(f"{sum(len(life.storm.met) for life in lives)} requests met a fault, {len(weather.watches)} watches broke")

    try:
        wait_until("ledger = quota.used = sum over pods", lambda: len(set(world.books())) == 1, seconds=PATIENCE_S)
    except AssertionError as error:
        raise AssertionError(f"{error}: {world.books()}") from error
    for life in lives:
        try:
            life.check()
        except AssertionError as error:
            raise AssertionError(f"life {life.seed}: {error}\n{life.told}\n" + "\n".join(life.storm.met)) from error
    alive = {str(pk) for (pk,) in world.sql("SELECT id FROM instances_instance WHERE state <> 'deleted'")}
    orphans = [raw for raw in world.objects() if raw["metadata"]["labels"]["mlportal.io/id"] not in alive]
    assert not orphans, [raw["metadata"]["name"] for raw in orphans]


def _kubeconfig(proxy: FaultProxy) -> str:
    found = proxy.credentials
    authority = base64.b64encode((found.ca_data or "").encode()).decode()
    return yaml.safe_dump({
        "apiVersion": "v1", "kind": "Config", "current-context": "lives",
        "clusters": [{
            "name": "lives",
            "cluster": {"server": found.server, "certificate-authority-data": authority},
        }],
        "users": [{"name": "lives", "user": {"token": found.token}}],
        "contexts": [{"name": "lives", "context": {"cluster": "lives", "user": "lives"}}],
    })  # fmt: skip


def _remove(direct: Cluster, namespace: str) -> None:
    """With whatever a test that failed has left in it."""
    for pod in direct.list("Pod", namespace):
        try:
            direct.patch_merge("Pod", namespace, pod["metadata"]["name"], {"metadata": {"finalizers": None}})
        except NotFound:
            continue
    try:
        direct.delete("Namespace", None, namespace)
    except NotFound:
        return
