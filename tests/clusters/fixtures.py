"""The fixture that puts a cluster in memory in place of every client."""

from __future__ import annotations

import pytest

from apps.clusters import access
from tests.clusters.fake import FakeCluster


@pytest.fixture
def fake_cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """What ``access.connect`` answers, whatever the cluster."""
    fake = FakeCluster()
    monkeypatch.setattr(access, "connect", lambda cluster, *, any_version=False: fake)
    return fake
