"""R46 on a real cluster: kubelets bring a mounted Secret up to date a minute late, so a new key goes in by exec.

KUBECONFIG=… [MLPORTAL_TEST_DEV_IMAGE=…] python -m pytest -m cluster tests/instances/test_key_on_cluster.py
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubekit import keyfile, names
from kubekit.build import instance as build
from kubekit.build import queue
from kubekit.client import Cluster
from kubekit.credentials import Credentials, parse_kubeconfig
from kubekit.errors import KubeError
from kubekit.specs import InstanceSpec, QueueSpec
from kubekit.streams import Streams
from tests.conformance.queues import row, wait_for
from tests.kubekit.samples import GIB, instance_spec, queue_spec

pytestmark = pytest.mark.cluster

IMAGE = os.environ.get("MLPORTAL_TEST_DEV_IMAGE", "mlportal/jupyter:1")
#: It takes 0.3 s; a busy machine may need longer, and without the push it would be never.
DEAD_WITHIN_S = 10.0


@pytest.fixture(scope="module")
def credentials() -> Credentials:
    return parse_kubeconfig(Path(os.environ["KUBECONFIG"]).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def cluster(credentials: Credentials) -> Iterator[Cluster]:
    found = Cluster(credentials)
    yield found
    found.close()


@pytest.fixture(scope="module")
def team(cluster: Cluster) -> Iterator[QueueSpec]:
    spec = queue_spec(identity=row("queue", "keys"), pods=2, claims=2, storage_bytes=GIB)
    for obj in queue.objects(spec):
        cluster.apply(obj)
    wait_for(lambda: cluster.get("ResourceQuota", spec.namespace, "queue").get("status", {}).get("hard"))
    yield spec
    cluster.delete("Namespace", None, spec.namespace)


@pytest.fixture(scope="module")
def running(cluster: Cluster, team: QueueSpec) -> InstanceSpec:
    """An instance as the portal writes it, without volumes and not on a node that is only played."""
    spec = instance_spec(identity=row("instance", "keys"), namespace=team.namespace, image=IMAGE, mounts=())
    cluster.apply(build.secret(spec, {"key": "the-first-key"}))
    workload = build.stateful_set(spec, replicas=1)
    inside = workload["spec"]["template"]["spec"]
    inside.pop("tolerations", None)
    inside.pop("priorityClassName", None)
    inside.pop("nodeSelector", None)
    inside["volumes"].append({"name": "home", "emptyDir": {}})
    inside["containers"][0]["volumeMounts"].append({"name": "home", "mountPath": "/root"})
    cluster.apply(workload)
    wait_for(lambda: is_ready(cluster, spec), seconds=120)
    return spec


def is_ready(cluster: Cluster, spec: InstanceSpec) -> bool:
    pods = list(cluster.list("Pod", spec.namespace, labels=names.selector(spec.identity)))
    conditions = [one for pod in pods for one in pod.get("status", {}).get("conditions", ())]
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


async def status(streams: Streams, spec: InstanceSpec, key: str) -> int:
    """What the instance answers to this key."""
    asked = f"GET /api/status HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: token {key}\r\n\r\n"
    found = b""
    async with streams.port_forward(spec.namespace, f"{spec.object_name}-0", spec.port) as tunnel:
        await tunnel.write(asked.encode())
        while not (told := re.match(rb"HTTP/1\.1 (\d+)", found)):
            piece = await tunnel.read()
            assert piece, found
            found += piece
    return int(told[1])


def test_a_pushed_key_counts_at_once_and_no_argument_or_file_of_others_shows_it(
    credentials: Credentials, running: InstanceSpec
) -> None:
    async def rotate() -> tuple[list[int], float, str]:
        pod = f"{running.object_name}-0"
        async with Streams(credentials) as streams:
            before = [await status(streams, running, "the-first-key"), await status(streams, running, "another-key")]
            begun = time.monotonic()
            await keyfile.push(streams, running.namespace, pod, "main", "another-key")
            while await status(streams, running, "the-first-key") == 200:
                assert time.monotonic() - begun < 60, "the old key still opens"
            taken = time.monotonic() - begun
            after = [await status(streams, running, "the-first-key"), await status(streams, running, "another-key")]
            look = "stat -c %a /run/mlportal/key; cat /proc/[0-9]*/cmdline | tr '\\0' ' '; ls -A /run/mlportal"
            _, shown, _ = await streams.run(running.namespace, pod, "main", ("/bin/sh", "-c", look))
            return [*before, *after], taken, shown.decode()

    statuses, taken, shown = asyncio.run(rotate())
    print(f"the old key was dead after {taken:.2f} s")
    assert statuses == [200, 403, 403, 200]
    assert taken < DEAD_WITHIN_S
    assert shown.startswith("600\n")
    assert "jupyter-lab" in shown
    assert "another-key" not in shown
    assert ".key.new" not in shown


def test_what_comes_cut_short_replaces_nothing(credentials: Credentials, running: InstanceSpec) -> None:
    pod, command = f"{running.object_name}-0", ("/bin/sh", "-c", keyfile._SCRIPT, "mlportal-key", "many")

    async def cut_short() -> tuple[int, bytes, bytes]:
        async with Streams(credentials) as streams:
            _, before, _ = await streams.run(running.namespace, pod, "main", ("cat", "/run/mlportal/key"))
            code, _, _ = await streams.run(running.namespace, pod, "main", command, stdin=b"x")
            _, after, _ = await streams.run(running.namespace, pod, "main", ("cat", "/run/mlportal/key"))
            return code, before, after

    code, before, after = asyncio.run(cut_short())
    assert code != 0
    assert before == after == b"another-key"


def test_a_pod_that_is_not_there_is_said(credentials: Credentials, running: InstanceSpec) -> None:
    async def push() -> None:
        async with Streams(credentials) as streams:
            await keyfile.push(streams, running.namespace, "nobody-0", "main", "key")

    with pytest.raises(KubeError):
        asyncio.run(push())
