"""One server for the whole session, in a thread with its own loop, with a fake node; a namespace for each test."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from localkube.config import Config
from localkube.server import Server
from tests.localkube.client import Client
from tests.localkube.fake_node import FakeNode


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The tests of kubectl are for machines that have one: neither PyPI nor Debian has a current one to install."""
    with_kubectl = [item for item in items if "kubectl" in getattr(item, "fixturenames", ())]
    if not with_kubectl or shutil.which("kubectl"):
        return
    warnings.warn(f"kubectl is not installed: {len(with_kubectl)} tests of it are left out", stacklevel=1)
    config.hook.pytest_deselected(items=with_kubectl)
    items[:] = [item for item in items if item not in with_kubectl]


class Cluster:
    """A server in a thread. `call` runs a function on its loop, where the store may be touched."""

    def __init__(self, home: Path, node: Any = None, **settings: Any) -> None:
        self.node = node or FakeNode()
        self.config = Config(home=home, listen="127.0.0.1:0", cpu=4, memory=8 * 2**30, **settings)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.server = self.call(Server, self.config, self.node)
        self.wait(self.server.start())
        self.client = Client(home, self.server.address)

    def wait(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(90)

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        async def run() -> Any:
            return function(*args, **kwargs)

        return self.wait(run())

    def stop(self) -> None:
        self.wait(self.server.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("localkube"))
    yield cluster
    cluster.stop()


@pytest.fixture(scope="session")
def api(cluster: Cluster) -> Client:
    return cluster.client


_numbers = itertools.count(1)


@pytest.fixture
def ns(api: Client) -> Iterator[str]:
    """The path of a fresh namespace."""
    name = f"test-{next(_numbers)}"
    assert api.post("/api/v1/namespaces", {"metadata": {"name": name}}).code == 201
    yield f"/api/v1/namespaces/{name}"
    for pod in api.get(f"/api/v1/namespaces/{name}/pods").body["items"]:
        api.patch(f"/api/v1/namespaces/{name}/pods/{pod['metadata']['name']}", {"metadata": {"finalizers": None}})
    api.delete(f"/api/v1/namespaces/{name}")
