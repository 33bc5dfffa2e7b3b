"""Which way leads to an instance's sshd: the pod's own address, or around by the API server."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from apps.instances.sshgate.doors import Door
from apps.instances.sshgate.way import Ways
from kubekit.errors import NotFound


class Both(Ways):
    """Ways of which each ends as it is told to."""

    def __init__(self, *, direct: Exception | None, around: Exception | None) -> None:
        super().__init__()
        self.ends: dict[str, Exception | None] = {"direct": direct, "around": around}
        self.tried: list[str] = []

    async def _direct(self, door: Door) -> Any:
        return self._end("direct")

    async def _forwarded(self, door: Door) -> Any:
        return self._end("around")

    def _end(self, way: str) -> str:
        self.tried.append(way)
        error = self.ends[way]
        if error is not None:
            raise error
        return way


class Here:
    """A cluster, as far as it matters here."""

    pk = uuid4()


def door(*, inside: bool = True) -> Door:
    return Door(
        instance_id=uuid4(),
        launch=1,
        name="dev",
        cluster=Here(),
        namespace="n",
        pod="dev-0",
        inside=inside,  # type: ignore[arg-type]
    )


def test_outside_the_cluster_the_address_is_not_tried() -> None:
    ways = Both(direct=None, around=None)
    assert asyncio.run(ways.to(door(inside=False))) == "around"
    assert ways.tried == ["around"]


@pytest.mark.parametrize("error", [ConnectionRefusedError("refused"), TimeoutError(), OSError("no route")])
def test_a_network_that_refuses_or_swallows_is_gone_around_at_once_and_for_a_while(error: Exception) -> None:
    ways = Both(direct=error, around=None)
    assert asyncio.run(ways.to(door())) == "around"
    assert asyncio.run(ways.to(door())) == "around"
    assert ways.tried == ["direct", "around", "around"]


def test_a_pod_in_which_nothing_listens_does_not_send_the_others_around() -> None:
    ways = Both(direct=ConnectionRefusedError("refused"), around=NotFound("nothing listens"))
    with pytest.raises(NotFound, match="nothing listens"):
        asyncio.run(ways.to(door()))
    ways.ends["direct"] = None
    assert asyncio.run(ways.to(door())) == "direct"
