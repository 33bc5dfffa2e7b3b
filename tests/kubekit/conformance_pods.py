"""What kubekit relies on in pods that really run: logs, commands, tunnels, endings. As `conformance`, needs a cluster.

The image ``mlportal/python:1`` must be there or be pulled.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kubekit.build import queue, task
from kubekit.client import Cluster
from kubekit.diagnose import Context, classify_attempt_end, diagnose
from kubekit.errors import NotFound
from kubekit.events import observe_events
from kubekit.observe import observe_attempt, observe_pod, parse_time
from kubekit.specs import QueueSpec, Resources, TaskPodSpec
from kubekit.streams import Streams
from tests.kubekit.conformance import attempt, row, wait_for
from tests.kubekit.samples import GIB, queue_spec


class PodConformance:
    """The checks; needs the fixture ``cluster``."""

    @pytest.fixture(scope="class")
    @classmethod
    def team(cls, cluster: Cluster) -> QueueSpec:
        spec = queue_spec(identity=row("queue", "node"), storage_bytes=GIB)
        for obj in queue.objects(spec):
            cluster.apply(obj)
        return spec

    @pytest.fixture
    async def streams(self, cluster: Cluster) -> AsyncIterator[Streams]:
        async with Streams(cluster.credentials) as found:
            yield found

    @pytest.fixture(scope="class")
    @classmethod
    def serving_pod(cls, cluster: Cluster, team: QueueSpec) -> str:
        """A pod that answers on port 9000."""
        program = "exec python3 -u -m http.server 9000 --bind 0.0.0.0 --directory /dev/shm"
        pod = cluster.create(task.task_pod(small(team, program)))
        name: str = pod["metadata"]["name"]
        wait_for(lambda: observe_pod(cluster.get("Pod", team.namespace, name)).phase == "Running", 120)
        wait_for(lambda: b"Serving HTTP" in cluster.log_tail(team.namespace, name, "main"), 30)
        return name

    async def test_a_log_is_followed_to_its_end(self, cluster: Cluster, team: QueueSpec, streams: Streams) -> None:
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

    async def test_commands_run_in_the_pod(self, serving_pod: str, team: QueueSpec, streams: Streams) -> None:
        run = functools.partial(streams.run, team.namespace, serving_pod, "main")
        assert await run(["sh", "-c", "echo out; echo err >&2; exit 7"]) == (7, b"out\n", b"err\n")
        assert await run(["head", "-c", "5"], stdin=b"hello world") == (0, b"hello", b"")
        assert (await run(["sh", "-c", "id -u; echo $MLPORTAL_ATTEMPT"]))[1] == b"1000\n1\n"

    async def test_a_tunnel_reaches_a_port_of_the_pod(
        self, serving_pod: str, team: QueueSpec, streams: Streams
    ) -> None:
        await streams.run(
            team.namespace, serving_pod, "main", ["sh", "-c", "head -c 3000000 /dev/urandom > /dev/shm/big"]
        )
        async with streams.port_forward(team.namespace, serving_pod, 9000) as tunnel:
            await tunnel.write(b"GET /big HTTP/1.0\r\n\r\n")
            answer = b""
            while piece := await tunnel.read():
                answer += piece
        head, _, body = answer.partition(b"\r\n\r\n")
        assert b"200 OK" in head
        assert len(body) == 3_000_000

    async def test_a_port_nobody_listens_on_is_said(self, serving_pod: str, team: QueueSpec, streams: Streams) -> None:
        async with streams.port_forward(team.namespace, serving_pod, 9001) as tunnel:
            with pytest.raises(NotFound):
                await tunnel.read()

    async def test_an_image_that_does_not_exist_is_diagnosed(self, cluster: Cluster, team: QueueSpec) -> None:
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
