"""Images of one's own on a real cluster, through the portal: entered by SSH, told on the page, or refused.

The nodes have debian:bookworm, mlportal/tools:1 and mlportal/test-foreign:1 (tests/images/build).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kubekit.client import Cluster
from kubekit.credentials import parse_kubeconfig
from tests.journeys.desk import PATIENCE_S, Desk
from tests.journeys.portal import Portal, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


@pytest.fixture(scope="module")
def portal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Portal]:
    """A portal whose first cluster is that of ``KUBECONFIG``; what it made there goes with it."""
    kubeconfig = Path(os.environ["KUBECONFIG"])
    env = {"PORTAL_CLUSTER": str(kubeconfig)}
    if given := os.environ.get("MLPORTAL_TEST_TOOLS_IMAGE"):
        env["PORTAL_TOOLS_IMAGE"] = given
    made = Portal(home=tmp_path_factory.mktemp("images") / "home", env=env)
    made.start()
    try:
        (team,) = made.api("GET", "teams").json["items"]
        rule = {"own_images": True, "image_prefixes": ["docker.io/library", "docker.io/mlportal", "registry.invalid"]}
        assert made.api("POST", f"teams/{team['id']}/own-images", rule).status == 200
        yield made
    finally:
        spaces = [row["namespace"] for row in made.api("GET", "queues").json["items"]]
        code = made.stop()
        cluster = Cluster(parse_kubeconfig(kubeconfig.read_text(encoding="utf-8")))
        for space in spaces:
            cluster.delete("Namespace", None, space)
        cluster.close()
    assert code == 0, made.log.read_text()[-4000:]


@pytest.fixture(scope="module")
def debian(portal: Portal) -> dict[str, Any]:
    """Plain Debian that runs."""
    return until(portal, create(portal, "debian", "debian:bookworm"), "running")


def create(portal: Portal, name: str, reference: str) -> dict[str, Any]:
    wanted = {"name": name, "own_image": reference, "size": "small", "queue": "default"}
    made = portal.api("POST", "instances", wanted)
    assert made.status == 201, made.body
    return dict(made.json)


def until(portal: Portal, item: dict[str, Any], state: str) -> dict[str, Any]:
    def now() -> dict[str, Any]:
        return dict(portal.api("GET", f"instances/{item['id']}").json)

    wait_until(f"{item['name']} to be {state}", lambda: now()["state"] == state, seconds=300, every=0.5)
    return now()


def test_a_plain_debian_is_entered_by_ssh_and_says_what_it_has_not(
    portal: Portal, debian: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    def told() -> dict[str, Any]:
        return dict(portal.api("GET", f"instances/{debian['id']}").json["entrances"])

    wait_until("what the image has", lambda: told()["jupyterlab"] is False, seconds=PATIENCE_S, every=0.5)
    assert told()["why"] == "no-python"
    refused = portal.api("POST", f"instances/{debian['id']}/ticket")
    assert (refused.status, refused.json["code"]) == (409, "no_jupyterlab")
    desk = Desk(portal, tmp_path_factory.mktemp("desk"))
    desk.portalctl("key", "add", str(desk.folder / "mine.pub"))
    desk.configure()
    desk.wait_for("debian")
    done = desk.ssh("debian", "id -u; pwd; grep ^ID= /etc/os-release")
    assert done.stdout.split() == ["1000", "/root", "ID=debian"], done.stderr


def test_a_new_key_reaches_an_image_that_has_none_of_the_portals_programs(
    portal: Portal, debian: dict[str, Any]
) -> None:
    where = f"instances/{debian['id']}"
    before = portal.api("GET", f"{where}/key").json["key"]
    assert portal.api("POST", f"{where}/rotate-key").status == 202

    def arrived() -> bool:
        item = portal.api("GET", where).json
        assert item["state"] == "running"
        return not item["key_on_its_way"]

    wait_until("new key", arrived, seconds=PATIENCE_S, every=0.5)
    assert portal.api("GET", f"{where}/key").json["key"] != before


@pytest.mark.parametrize(
    ("name", "reference", "code", "sentence"),
    [
        (
            "away",
            "registry.invalid/team/app:1",
            "registry_unreachable",
            r"The registry of the image .* does not answer",
        ),
        ("foreign", "mlportal/test-foreign:1", "image_architecture", r"is for another kind of processor than the node"),
    ],
)
def test_an_image_that_cannot_run_is_told_in_a_sentence(
    portal: Portal, name: str, reference: str, code: str, sentence: str
) -> None:
    item = create(portal, name, reference)

    def reason() -> dict[str, Any]:
        return dict(portal.api("GET", f"instances/{item['id']}").json["reason"] or {})

    wait_until(f"the reason {code}", lambda: reason().get("code") == code, seconds=300, every=0.5)
    assert re.search(sentence, reason()["sentence"])
    assert reason()["next"]
    assert portal.api("DELETE", f"instances/{item['id']}").status == 202


def test_what_the_team_may_not_use_never_reaches_the_cluster(portal: Portal) -> None:
    wanted = {"own_image": "quay.io/team/app", "size": "small", "queue": "default"}
    refused = portal.api("POST", "instances", wanted)
    assert (refused.status, refused.json["code"]) == (422, "registry_not_allowed")
