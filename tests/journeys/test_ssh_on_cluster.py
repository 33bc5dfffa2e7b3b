"""SSH into an instance on a real cluster: through the API server's port-forward, with the real OpenSSH client.

The nodes have mlportal/jupyter:1, or the image that ``MLPORTAL_TEST_DEV_IMAGE`` names.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubekit.client import Cluster
from kubekit.credentials import parse_kubeconfig
from tests.journeys.desk import PATIENCE_S, Desk
from tests.journeys.portal import Portal, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
NAME = "shell"


@pytest.fixture(scope="module")
def portal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Portal]:
    """A portal whose first cluster is that of ``KUBECONFIG``; what it made there goes with it."""
    kubeconfig = Path(os.environ["KUBECONFIG"])
    made = Portal(home=tmp_path_factory.mktemp("ssh") / "home", env={"PORTAL_CLUSTER": str(kubeconfig)})
    made.start()
    try:
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
def desk(portal: Portal, tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """With a running instance, a registered key and the configuration for it."""
    given = os.environ.get("MLPORTAL_TEST_DEV_IMAGE")
    if given:
        (image,) = [row for row in portal.api("GET", "images").json["items"] if row["name"] == "jupyter"]
        assert portal.api("PATCH", f"images/{image['id']}", {"reference": given}).status == 200
    found = Desk(portal, tmp_path_factory.mktemp("desk"))
    found.portalctl("key", "add", str(found.folder / "mine.pub"))
    wanted = {"name": NAME, "image": "jupyter", "size": "small", "queue": "default"}
    made = portal.api("POST", "instances", wanted)
    assert made.status == 201, made.body

    def state() -> str:
        return str(portal.api("GET", f"instances/{made.json['id']}").json["state"])

    wait_until("instance that runs", lambda: state() == "running", seconds=300, every=1.0)
    found.configure()
    found.wait_for(NAME)
    return found


def test_a_command_and_its_status_come_back_from_the_pod(desk: Desk) -> None:
    done = desk.ssh(NAME, "id -un; command -v jupyter; exit 7")
    assert done.stdout.split() == ["user", "/opt/venv/bin/jupyter"], done.stderr
    assert done.returncode == 7


def test_a_terminal_is_one(desk: Desk) -> None:
    done = desk.ssh("-tt", NAME, "test -t 0 && tty")
    assert "/dev/pts/" in done.stdout, done.stderr


def test_files_go_by_scp_and_rsync(desk: Desk, tmp_path: Path) -> None:
    content = os.urandom(5_000_000)
    (tmp_path / "up").write_bytes(content)
    where = desk.options()
    subprocess.run(["scp", "-q", *where, str(tmp_path / "up"), f"{NAME}:copy"], check=True, timeout=PATIENCE_S)
    shell = " ".join(["ssh", *where])
    sync = ["rsync", "-a", "-e", shell, f"{NAME}:copy", str(tmp_path / "synced")]
    subprocess.run(sync, check=True, timeout=PATIENCE_S)
    assert (tmp_path / "synced").read_bytes() == content


def test_another_key_gets_nowhere(desk: Desk) -> None:
    assert "Permission denied (publickey)" in desk.ssh(NAME, "true", key="stranger").stderr


def test_a_key_registered_now_opens_the_running_pod_long_before_its_node_would_have_looked(desk: Desk) -> None:
    desk.make_key("later")
    config = (desk.folder / "as-mine").read_text().replace(str(desk.folder / "mine"), str(desk.folder / "later"))
    (desk.folder / "as-later").write_text(config)
    desk.portalctl("key", "add", str(desk.folder / "later.pub"), "--name", "later")
    wait_until(
        "new key to open",
        lambda: desk.ssh(NAME, "echo in", key="later").stdout == "in\n",
        seconds=PATIENCE_S,
        every=0.5,
    )


def test_f49_after_a_restart_the_pod_has_the_same_host_key(desk: Desk) -> None:
    with subprocess.Popen(["ssh", *desk.options(), NAME, "echo in; sleep 600"], stdout=-1) as process:
        assert process.stdout and process.stdout.readline() == b"in\n"
        desk.portalctl("instance", "restart", NAME)
        assert process.wait(PATIENCE_S) == 255
    desk.wait_for(NAME)
