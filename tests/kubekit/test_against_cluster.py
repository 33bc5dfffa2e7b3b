"""The conformance checks on a real cluster, given by KUBECONFIG: ``KUBECONFIG=... pytest -m cluster tests/kubekit``."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.kubekit.conformance import Conformance


@pytest.mark.cluster
class TestRealCluster(Conformance):
    @pytest.fixture(scope="class")
    @classmethod
    def kubeconfig(cls) -> str:
        return Path(os.environ["KUBECONFIG"]).read_text()
