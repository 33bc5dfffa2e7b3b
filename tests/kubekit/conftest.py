"""A scripted API server for each test that asks for one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kubekit.client import Cluster
from kubekit.credentials import Credentials
from tests.kubekit.fakes import FakeApi, serving


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with serving(FakeApi()) as fake:
        yield fake


@pytest.fixture
def credentials(api: FakeApi) -> Credentials:
    return Credentials(server=api.url, token="t0ken")


@pytest.fixture
def cluster(credentials: Credentials) -> Iterator[Cluster]:
    found = Cluster(credentials, connect_timeout_s=1, read_timeout_s=1)
    yield found
    found.close()
