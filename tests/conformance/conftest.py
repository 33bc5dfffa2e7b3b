"""The same tests for both servers: localkube in every run, a real one in runs of ``-m cluster`` with KUBECONFIG."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.servers import KUBERNETES, LOCALKUBE, Api, PlayedNode, Server, Space, namespace, serving


@pytest.fixture(scope="session", params=[LOCALKUBE, pytest.param(KUBERNETES, marks=pytest.mark.cluster)])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(request.param, tmp_path_factory.mktemp("conformance")) as found:
        yield found


@pytest.fixture(scope="session")
def api(server: Server) -> Api:
    return server.api


@pytest.fixture
def ns(api: Api) -> Iterator[Space]:
    """A namespace of the test's own."""
    with namespace(api) as space:
        yield space


@pytest.fixture
def node(api: Api) -> Iterator[PlayedNode]:
    """A node of the test's own: 4 CPUs, 8 GiB; pods come only with its `placement`."""
    made = PlayedNode(api)
    yield made
    made.remove()
