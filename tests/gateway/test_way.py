"""Which way leads to an instance's port: the pod's own address, or around by the API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from apps.instances.gateway.way import Ways


class Pool:
    """Streams whose port-forwards end at once."""

    def __init__(self) -> None:
        self.opened = 0

    async def of(self, cluster: Any) -> Pool:
        return self

    @asynccontextmanager
    async def port_forward(self, namespace: str, pod: str, port: int) -> AsyncIterator[Any]:
        self.opened += 1
        yield SimpleNamespace(read=self._nothing, write=None)

    async def _nothing(self) -> bytes:
        return b""


class Ending(asyncio.Protocol):
    """The upstream, as far as it matters here."""

    def __init__(self, cluster: Any) -> None:
        launch = SimpleNamespace(
            cluster_id=cluster.pk, instance_id=uuid4(), namespace="n", pod="dev-0", number=1, pod_uid="u"
        )
        self.door = SimpleNamespace(place=SimpleNamespace(launch=launch), port=8888)
        self.ended = asyncio.Event()

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set()


@pytest.mark.parametrize(("error", "tries"), [(ConnectionRefusedError("refused"), 2), (TimeoutError(), 1)])
def test_a_pod_that_refuses_is_reached_around_without_sending_the_others_that_way(
    error: Exception, tries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def twice() -> tuple[int, int]:
        cluster, ways, pool, tried = SimpleNamespace(pk=uuid4()), Ways(), Pool(), []

        async def _direct(*given: Any) -> None:
            tried.append(given)
            raise error

        monkeypatch.setattr(ways, "_direct", _direct)
        monkeypatch.setattr(ways, "_pools", pool)
        ways.clusters[cluster.pk] = (cluster, True)  # type: ignore[assignment]
        for _ in range(2):
            upstream = Ending(cluster)
            await ways.to(upstream)  # type: ignore[arg-type]
            async with asyncio.timeout(60):
                await upstream.ended.wait()
        return len(tried), pool.opened

    assert asyncio.run(twice()) == (tries, 2)
