"""One embedded API server and one fault proxy for all tests of faults; a queue of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.utils import timezone

from apps.clusters import access, installation
from apps.core import reconciling
from kubekit import client
from kubekit.credentials import Credentials, parse_kubeconfig
from tests.faults.proxy import FaultProxy
from tests.faults.world import Clock, ScriptedNode, World
from tests.localkube.conftest import Cluster as Localkube
from tests.tenants import make


@pytest.fixture(scope="session")
def node() -> ScriptedNode:
    """The node of the embedded cluster."""
    return ScriptedNode()


@pytest.fixture(scope="session")
def localkube(tmp_path_factory: pytest.TempPathFactory, node: ScriptedNode) -> Iterator[Localkube]:
    """The API server, in a thread."""
    found = Localkube(tmp_path_factory.mktemp("faults-cluster"), node)
    yield found
    found.stop()


@pytest.fixture(scope="session")
def upstream(localkube: Localkube) -> Credentials:
    """How to reach it without faults."""
    return parse_kubeconfig((localkube.config.home / "kubeconfig").read_text())


@pytest.fixture(scope="session")
def proxy_server(upstream: Credentials, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultProxy]:
    """The proxy, in a thread."""
    found = FaultProxy(upstream, tmp_path_factory.mktemp("faults-proxy"))
    found.start()
    yield found
    found.stop()


@pytest.fixture
def proxy(proxy_server: FaultProxy) -> Iterator[FaultProxy]:
    """The same without a memory of other tests."""
    proxy_server.seen.clear()
    proxy_server.events.clear()
    yield proxy_server
    proxy_server.calm()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The portal's clock."""
    found = Clock()
    monkeypatch.setattr(timezone, "now", found)
    return found


@pytest.fixture
def world(
    transactional_db: None,
    localkube: Localkube,
    node: ScriptedNode,
    upstream: Credentials,
    proxy: FaultProxy,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[World]:
    """See ``World``. Hints are kept and not sent; a request that is not answered fails after two seconds."""
    hints: list[tuple[str, Any]] = []
    monkeypatch.setattr(reconciling, "send_hint", lambda kind, pk, **_: hints.append((kind, pk)))
    quick = {**client.Cluster.__init__.__kwdefaults__, "read_timeout_s": 2.0}
    monkeypatch.setattr(client.Cluster.__init__, "__kwdefaults__", quick)
    installation.install_id.cache_clear()
    row = make.cluster(server=proxy.credentials.server, credentials=access.pack(proxy.credentials))
    row.refresh_from_db()
    team = make.team()
    queue = make.queue(in_team=team, on=row)
    person = make.user(role_in=team)
    found = World(
        localkube=localkube,
        node=node,
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
    proxy.seen.clear()
    node.hold = node.deaf = False
    yield found
    proxy.calm()
    node.hold = node.deaf = False
    found.clear()
    access.forget(row.pk)
    found.direct.close()
    installation.install_id.cache_clear()
