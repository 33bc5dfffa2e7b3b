"""The conformance checks on a real cluster, given by KUBECONFIG: ``KUBECONFIG=... pytest -m cluster tests/kubekit``."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kubekit.build import task
from kubekit.client import Cluster
from kubekit.credentials import parse_kubeconfig
from kubekit.errors import Forbidden
from kubekit.specs import QueueSpec
from tests.kubekit.conformance import Conformance, attempt
from tests.kubekit.conformance_pods import PodConformance


@pytest.mark.cluster
class TestRealCluster(Conformance):
    @pytest.fixture(scope="class")
    @classmethod
    def kubeconfig(cls) -> str:
        return Path(os.environ["KUBECONFIG"]).read_text()

    def test_a_privileged_pod_is_refused_by_pod_security(self, cluster: Cluster, team: QueueSpec) -> None:
        pod = task.task_pod(attempt(team))
        pod["spec"]["hostNetwork"] = True
        with pytest.raises(Forbidden) as caught:
            cluster.create(pod)
        assert caught.value.code == "pod_security"


@pytest.mark.cluster
class TestRealNode(PodConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def cluster(cls) -> Cluster:
        return Cluster(parse_kubeconfig(Path(os.environ["KUBECONFIG"]).read_text()))
