"""A worker killed in the middle of a cluster's check: the check comes to its end, and what it had put up is gone."""

from __future__ import annotations

import pytest

from kubekit.client import Cluster
from tests.crash.harness import FIRST_START_S, Stage
from tests.journeys.portal import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("crash")]
PROBES = {"mlportal.io/kind": "probe"}


def test_a_check_whose_worker_is_killed_is_carried_out_again_and_leaves_no_namespace(stage: Stage) -> None:
    (cluster,) = stage.ask("GET", "clusters").json["items"]
    path = f"clusters/{cluster['id']}/check"
    with stage.killed_at("check-namespace", "worker"):
        assert stage.ask("POST", path).json["state"] in ("queued", "running")
    check = wait_until(
        "check that has ended",
        lambda: found if (found := stage.ask("GET", path).json)["state"] == "succeeded" else None,
        seconds=FIRST_START_S,
    )
    codes = [line["code"] for line in check["lines"]]
    assert codes.count("version_good") == 1, "the second worker began anew"
    assert {"clock_good", "storage_good"} <= set(codes)
    server = Cluster(stage.observer.credentials)
    wait_until(
        "cluster without a probe's namespace",
        lambda: not list(server.list("Namespace", labels=PROBES)),
        seconds=FIRST_START_S,
    )
    server.close()
