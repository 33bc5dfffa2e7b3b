"""An instance entered by SSH: the real OpenSSH client, the real portalctl, through the portal's own entrance."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.desk import PATIENCE_S, Desk
from tests.journeys.entering import Entered
from tests.journeys.portal import Portal, fetch, free_port, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("portal")]
PERSON = "an-ssh-person"
PASSWORD = "a-password-for-ssh-1"


@pytest.fixture(scope="module")
def desk(portal: Portal, tmp_path_factory: pytest.TempPathFactory) -> Desk:
    found = Desk(portal, tmp_path_factory.mktemp("desk"))
    found.portalctl("key", "add", str(found.folder / "mine.pub"))
    return found


@pytest.fixture(scope="module")
def instance(portal: Portal, desk: Desk) -> Iterator[Entered]:
    found = Entered.launch(portal, "shell")
    desk.configure()
    desk.wait_for("shell")
    yield found
    found.delete()


def test_plain_ssh_by_name_and_portalctl_run_a_command_as_the_person_of_the_instance(
    desk: Desk, instance: Entered
) -> None:
    done = desk.ssh("shell", "id -un; pwd; command -v jupyter; exit 7")
    assert done.stdout.split() == ["user", "/root", "/opt/venv/bin/jupyter"], done.stderr
    assert done.returncode == 7
    identity = (f"-oIdentityFile={desk.folder / 'mine'}", "-oIdentitiesOnly=yes")
    shown = desk.portalctl("ssh-config", "shell")
    assert "ProxyJump mlportal-127.0.0.1" in shown
    # The jump takes its key from the configuration, so portalctl finds the person's own there.
    own = desk.folder / ".ssh" / "config"
    own.write_text(f"Include mlportal.conf\nHost *\n  IdentityFile {desk.folder / 'mine'}\n  IdentitiesOnly yes\n")
    assert desk.portalctl("ssh", "shell", *identity, "echo", "by-portalctl") == "by-portalctl\n"


def test_files_go_by_scp_rsync_and_git(desk: Desk, instance: Entered, tmp_path: Path) -> None:
    content = os.urandom(2_000_000)
    (tmp_path / "up").write_bytes(content)
    where = desk.options()
    subprocess.run(["scp", "-q", *where, str(tmp_path / "up"), "shell:copy"], check=True, timeout=PATIENCE_S)
    subprocess.run(["scp", "-q", *where, "shell:copy", str(tmp_path / "down")], check=True, timeout=PATIENCE_S)
    assert (tmp_path / "down").read_bytes() == content
    shell = " ".join(["ssh", *where])
    sync = ["rsync", "-a", "-e", shell, "shell:copy", str(tmp_path / "synced")]
    subprocess.run(sync, check=True, timeout=PATIENCE_S)
    assert (tmp_path / "synced").read_bytes() == content
    commit = "git init -q -b main r && cd r && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m first"
    assert desk.ssh("shell", commit).returncode == 0
    environ = {**os.environ, "GIT_SSH_COMMAND": shell}
    clone = ["git", "clone", "-q", "shell:r", str(tmp_path / "r")]
    subprocess.run(clone, check=True, timeout=PATIENCE_S, env=environ)
    assert (tmp_path / "r" / ".git").is_dir()


def test_ports_are_forwarded_to_what_runs_inside_by_l_and_d(desk: Desk, instance: Entered) -> None:
    local, socks = free_port(), free_port()
    forward = ["-N", "-oExitOnForwardFailure=yes", f"-L{local}:localhost:8888", f"-D{socks}", "shell"]
    with subprocess.Popen(["ssh", *desk.options(), *forward]) as process:
        try:

            def answers() -> bool:
                try:
                    return fetch(f"http://127.0.0.1:{local}/portal/ready").status == 200
                except OSError:
                    return False

            wait_until("forwarded port", answers, seconds=PATIENCE_S)
            with socket.create_connection(("127.0.0.1", socks), timeout=PATIENCE_S) as client:
                client.sendall(b"\5\1\0")
                assert client.recv(2) == b"\5\0"
                client.sendall(b"\5\1\0\3\x09localhost" + (8888).to_bytes(2, "big"))
                assert client.recv(10)[:2] == b"\5\0"
                client.sendall(b"GET /portal/ready HTTP/1.0\r\n\r\n")
                assert b"200" in client.recv(100)
        finally:
            process.kill()


def test_a_key_that_is_not_registered_and_another_person_get_nowhere(
    desk: Desk, instance: Entered, portal: Portal, tmp_path: Path
) -> None:
    assert "Permission denied (publickey)" in desk.ssh("shell", "true", key="stranger").stderr
    made = portal.api("POST", "users", {"username": PERSON, "password": PASSWORD})
    assert made.status == 201, made.body
    token = portal.token(PERSON, PASSWORD)
    key = {"key": (desk.folder / "stranger.pub").read_text()}
    assert portal.api("POST", "ssh-keys", key, token=token).status == 201
    gateway = "mlportal-127.0.0.1"
    for wanted in (f"i-{instance.id.replace('-', '')}", "default/shell", "shell", "127.0.0.1"):
        done = desk.ssh(f"-oUser={PERSON}", "-W", f"{wanted}:22", gateway, key="stranger")
        # The configuration names the administrator for the entrance; the key belongs to somebody else.
        assert done.returncode == 255
    plain = (desk.folder / "as-stranger").read_text().replace("User admin", f"User {PERSON}")
    (desk.folder / "as-other").write_text(plain)
    for wanted in (f"i-{instance.id.replace('-', '')}", "default/shell", "127.0.0.1"):
        done = desk.ssh("-W", f"{wanted}:22", gateway, key="other")
        assert f'There is no instance "{wanted}" that you may enter' in done.stderr


def test_a_key_that_is_registered_while_the_instance_runs_opens_it_and_one_that_is_deleted_ends_what_it_has_open(
    desk: Desk, instance: Entered, tmp_path: Path
) -> None:
    desk.make_key("later")
    config = (desk.folder / "as-mine").read_text().replace(str(desk.folder / "mine"), str(desk.folder / "later"))
    (desk.folder / "as-later").write_text(config)
    desk.portalctl("key", "add", str(desk.folder / "later.pub"), "--name", "later")
    wait_until(
        "new key to open", lambda: desk.ssh("shell", "echo in", key="later").stdout == "in\n", seconds=PATIENCE_S
    )
    with subprocess.Popen(["ssh", *desk.options("later"), "shell", "echo in; sleep 600"], stdout=-1) as process:
        assert process.stdout and process.stdout.readline() == b"in\n"
        desk.portalctl("key", "delete", "later", "--yes")
        assert process.wait(PATIENCE_S) == 255
    assert "Permission denied" in desk.ssh("shell", "true", key="later").stderr


def test_f49_a_restart_ends_the_session_and_the_host_key_is_the_same_after_it(
    desk: Desk, instance: Entered, portal: Portal
) -> None:
    before = portal.api("GET", f"instances/{instance.id}/ssh").json
    with subprocess.Popen(["ssh", *desk.options(), "shell", "echo in; sleep 600"], stdout=-1) as process:
        assert process.stdout and process.stdout.readline() == b"in\n"
        desk.portalctl("instance", "stop", "shell")
        assert process.wait(PATIENCE_S) == 255
    stopping = desk.ssh("shell", "true")
    assert "so there is nothing to open" in stopping.stderr
    wait_until("instance at rest", lambda: instance.item()["state"] == "stopped", seconds=PATIENCE_S)
    desk.portalctl("instance", "start", "shell", "--wait")
    desk.wait_for("shell")  # with StrictHostKeyChecking, so another host key would be refused
    after = portal.api("GET", f"instances/{instance.id}/ssh").json
    assert (after["fingerprint"], after["known_hosts"]) == (before["fingerprint"], before["known_hosts"])


def test_what_people_did_is_in_the_instances_history_with_time_and_bytes(
    desk: Desk, instance: Entered, portal: Portal
) -> None:
    desk.ssh("shell", "head -c 300000 /dev/zero | tr '\\0' x")

    def entry() -> Any:
        rows = portal.api("GET", "audit?verb=instance.ssh-end").json["items"]
        return next((row for row in rows if row["detail"].get("received", 0) > 300_000), None)

    row = wait_until("entry of the audit log", entry, seconds=PATIENCE_S)
    assert row["object_name"] == "shell" and row["detail"]["key"].startswith("SHA256:")
    assert row["detail"]["seconds"] >= 0


def test_the_key_of_the_entrance_and_of_the_launch_are_in_no_log(desk: Desk, instance: Entered, portal: Portal) -> None:
    secrets = [instance.key(), *(portal.home / "secrets" / "ssh-host-key").read_text().splitlines()[1:-1]]
    desk.ssh("shell", "true")
    texts = [path.read_text(errors="replace") for path in (portal.home / "log").rglob("*") if path.is_file()]
    texts.append(portal.log.read_text(errors="replace"))
    assert any("sshgateway" in text for text in texts)
    assert not [secret for secret in secrets for text in texts if secret in text]


def test_the_entrance_is_one_process_that_no_idle_portal_has(portal: Portal, instance: Entered, desk: Desk) -> None:
    desk.ssh("shell", "true")
    said = portal.log.read_text(errors="replace")
    ready, first = said.index("ready: http"), said.index("sshgateway")
    assert ready < first
    assert shutil.which("ssh")


def test_deleting_the_instance_ends_the_session_that_somebody_has_in_it(desk: Desk, portal: Portal) -> None:
    doomed = Entered.launch(portal, "doomed")
    desk.configure()
    desk.wait_for("doomed")
    with subprocess.Popen(["ssh", *desk.options(), "doomed", "echo in; sleep 600"], stdout=-1) as process:
        assert process.stdout and process.stdout.readline() == b"in\n"
        assert portal.api("DELETE", f"instances/{doomed.id}").status == 202
        assert process.wait(PATIENCE_S) == 255
    said = desk.ssh("doomed", "true").stderr
    assert "There is no instance" in said or "deleting" in said
