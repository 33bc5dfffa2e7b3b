"""One installation for all tests of a file: it takes a minute, and room on the node. And the portal's own code on the
cluster, by the account that an installation gives it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from apps.clusters import installation as own
from apps.clusters import services as clusters
from apps.clusters.models import Cluster
from apps.core import reconciling
from tests.install.account import Account
from tests.install.installing import Installation, kubectl
from tests.tenants import make


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """Installed by the manifests of this repository, removed afterwards."""
    name = f"mlportal-install-{secrets.token_hex(3)}"
    made = Installation(namespace=name, folder=tmp_path_factory.mktemp("install") / "kubernetes")
    try:
        made.install()
        yield made
    finally:
        made.remove()


@pytest.fixture
def account() -> Iterator[Account]:
    made = Account(f"mlportal-role-{secrets.token_hex(3)}")
    try:
        yield made
    finally:
        made.remove()


@pytest.fixture
def cluster(account: Account, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Registered with the account, by an installation of its own."""
    install = f"p{secrets.token_hex(5)}"
    own.install_id.cache_clear()
    monkeypatch.setattr(own, "secrets", type("S", (), {"token_hex": staticmethod(lambda n: install[1:])}))
    monkeypatch.setattr(reconciling, "send_hint", lambda kind, pk, **_: None)
    try:
        yield clusters.register(
            actor=make.actor(make.admin()),
            name="real",
            kubeconfig=account.kubeconfig(),
            trusted=True,
            apps_domain="apps.localhost",
            apps_scheme="http",
        )
    finally:
        kubectl("delete", "namespace", "-l", f"mlportal.io/install={install}", "--ignore-not-found", "--wait=false")
        own.install_id.cache_clear()
