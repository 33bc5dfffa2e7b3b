"""What the portal relies on in pods that really run: logs, commands, tunnels, endings.

The image ``mlportal/python:1`` must be there or be pulled.
"""

from __future__ import annotations

import asyncio
import functools
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kubekit.build import claim, queue, task
from kubekit.client import Cluster
from kubekit.credentials import parse_kubeconfig
from kubekit.diagnose import Context, classify_attempt_end, diagnose
from kubekit.errors import Invalid, NotFound
from kubekit.events import observe_events
from kubekit.observe import observe_attempt, observe_pod, parse_time
from kubekit.specs import Mount, QueueSpec, Resources, TaskPodSpec
from kubekit.streams import Streams
from tests.conformance.queues import attempt, free, missing, row, wait_for
from tests.conformance.servers import KUBERNETES, LOCALKUBE
from tests.kubekit.samples import GIB, claim_spec, queue_spec

pytestmark = pytest.mark.xdist_group("conformance-node")
ROOT = Path(__file__).parents[2]


@contextmanager
def localkube_with_node(home: Path) -> Iterator[str]:
    """The kubeconfig of a localkube process on a free port, whose node has the product's images."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}"}
    command = [sys.executable, "-m", "localkube", "serve", "--home", str(home), "--listen", "127.0.0.1:0"]
    command += ["--images", str(ROOT / "docker" / "images.toml")]
    log = home.parent / "localkube.log"
    with log.open("wb") as file:
        process = subprocess.Popen(command, env=environment, cwd=home.parent, stdout=file, stderr=file)
    try:
        wait_for(lambda: process.poll() is not None or (home / "ready").exists())
        assert process.poll() is None, log.read_text()[-3000:]
        yield (home / "kubeconfig").read_text()
    finally:
        process.terminate()
        process.wait(20)


@pytest.fixture(scope="module", params=[LOCALKUBE, pytest.param(KUBERNETES, marks=pytest.mark.cluster)])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with ExitStack() as open_:
        if request.param == KUBERNETES:
            text = Path(os.environ["KUBECONFIG"]).read_text()
        else:
            text = open_.enter_context(localkube_with_node(tmp_path_factory.mktemp("node") / "home"))
        found = Cluster(parse_kubeconfig(text))
        open_.callback(found.close)
        yield found


@pytest.fixture(scope="module")
def team(cluster: Cluster) -> Iterator[QueueSpec]:
    spec = queue_spec(identity=row("queue", "node"), storage_bytes=GIB)
    for obj in queue.objects(spec):
        cluster.apply(obj)
    yield spec
    for pod in list(cluster.list("Pod", spec.namespace)):
        free(cluster, pod)
    cluster.delete("Namespace", None, spec.namespace)


@pytest.fixture
async def streams(cluster: Cluster) -> AsyncIterator[Streams]:
    async with Streams(cluster.credentials) as found:
        yield found


@pytest.fixture(scope="module")
def serving_pod(cluster: Cluster, team: QueueSpec) -> str:
    """A pod that answers on port 9000."""
    program = "exec python3 -u -m http.server 9000 --bind 0.0.0.0 --directory /dev/shm"
    pod = cluster.create(task.task_pod(small(team, program)))
    name: str = pod["metadata"]["name"]
    wait_for(lambda: observe_pod(cluster.get("Pod", team.namespace, name)).phase == "Running", 120)
    wait_for(lambda: b"Serving HTTP" in cluster.log_tail(team.namespace, name, "main"), 30)
    return name


async def test_a_log_is_followed_to_its_end(cluster: Cluster, team: QueueSpec, streams: Streams) -> None:
    program = "for i in 1 2 3; do echo line $i; sleep 0.3; done; exit 3"
    name = (await asyncio.to_thread(cluster.create, task.task_pod(small(team, program))))["metadata"]["name"]
    await asyncio.to_thread(
        wait_for, lambda: observe_pod(cluster.get("Pod", team.namespace, name)).phase != "Pending", 120
    )
    log = b"".join([piece async for piece in streams.follow_log(team.namespace, name, "main")])
    rows = [line.split(b" ", 1) for line in log.splitlines()]
    assert [text for _, text in rows] == [b"line 1", b"line 2", b"line 3"]
    times = [parse_time(stamp.decode()) for stamp, _ in rows]
    assert all(times)
    assert times == sorted(times, key=str)
    ended = await asyncio.to_thread(
        wait_for, lambda: classify_attempt_end(observe_attempt(cluster.get("Pod", team.namespace, name))), 20
    )
    assert (ended.outcome, ended.code, ended.params["exit_code"]) == ("failed", "exit_code", 3)


async def test_commands_run_in_the_pod(serving_pod: str, team: QueueSpec, streams: Streams) -> None:
    run = functools.partial(streams.run, team.namespace, serving_pod, "main")
    assert await run(["sh", "-c", "echo out; echo err >&2; exit 7"]) == (7, b"out\n", b"err\n")
    assert await run(["head", "-c", "5"], stdin=b"hello world") == (0, b"hello", b"")
    assert (await run(["sh", "-c", "id -u; echo $MLPORTAL_ATTEMPT"]))[1] == b"1000\n1\n"


async def test_a_tunnel_reaches_a_port_of_the_pod(serving_pod: str, team: QueueSpec, streams: Streams) -> None:
    await streams.run(team.namespace, serving_pod, "main", ["sh", "-c", "head -c 3000000 /dev/urandom > /dev/shm/big"])
    async with streams.port_forward(team.namespace, serving_pod, 9000) as tunnel:
        await tunnel.write(b"GET /big HTTP/1.0\r\n\r\n")
        answer = b""
        while piece := await tunnel.read():
            answer += piece
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"200 OK" in head
    assert len(body) == 3_000_000


async def test_a_port_nobody_listens_on_is_said(serving_pod: str, team: QueueSpec, streams: Streams) -> None:
    async with streams.port_forward(team.namespace, serving_pod, 9001) as tunnel:
        with pytest.raises(NotFound):
            await tunnel.read()


def test_a_bound_claim_never_shrinks_and_stays_while_a_pod_uses_it(cluster: Cluster, team: QueueSpec) -> None:
    home = claim_spec(identity=row("volume", "home"), namespace=team.namespace, storage_bytes=64 << 20)
    cluster.apply(claim.claim(home))
    mounts = (Mount(claim=home.object_name, path="/root"),)
    made = cluster.create(task.task_pod(small(team, "exec sleep 600", mounts=mounts)))
    where = team.namespace, made["metadata"]["name"]
    wait_for(lambda: observe_pod(cluster.get("Pod", *where)).phase == "Running")
    assert cluster.get("PersistentVolumeClaim", team.namespace, home.object_name)["status"]["phase"] == "Bound"
    with pytest.raises(Invalid) as caught:
        cluster.apply(claim.claim(replace(home, storage_bytes=32 << 20)))
    assert caught.value.message.endswith(
        "spec.resources.requests.storage: Forbidden: field can not be less than status.capacity"
    )
    cluster.delete("PersistentVolumeClaim", team.namespace, home.object_name)
    kept = cluster.get("PersistentVolumeClaim", team.namespace, home.object_name)["metadata"]
    assert (bool(kept["deletionTimestamp"]), kept["finalizers"]) == (True, ["kubernetes.io/pvc-protection"])
    cluster.delete("Pod", *where)
    free(cluster, cluster.get("Pod", *where))
    wait_for(lambda: missing(cluster, team.namespace, home.object_name, kind="PersistentVolumeClaim"))


async def test_an_image_that_does_not_exist_is_diagnosed(cluster: Cluster, team: QueueSpec) -> None:
    spec = small(team, "true", image="nobody/nothing:1")
    name = cluster.create(task.task_pod(spec))["metadata"]["name"]

    def found() -> str:
        pod = observe_pod(cluster.get("Pod", team.namespace, name))
        events = observe_events(cluster.list("Event", team.namespace))
        finding = diagnose(Context(pod=pod, events=events))
        return finding.code if finding is not None else ""

    # A cluster without a way out cannot tell a missing image from a missing registry.
    assert wait_for(found) in ("image_not_found", "registry_unreachable")


def small(team: QueueSpec, program: str, **changes: Any) -> TaskPodSpec:
    size = Resources(cpu_millis=100, memory_bytes=256 << 20)
    return attempt(team, command=("sh", "-c", program), args=(), resources=size, deadline_s=300, **changes)
