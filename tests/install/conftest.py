"""One installation for all tests of a file: it takes a minute, and room on the node."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from tests.install.installing import Installation


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
