"""Keys and ways from the command line, against the real REST API."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from apps.catalog.models import Image, Size
from apps.instances import ssh
from apps.instances.models import Instance
from apps.storage.models import Volume
from apps.tenants.models import Queue, SshKey, User
from mlportal import sshhost
from portalctl import ssh as portalctl_ssh
from tests.portalctl.test_commands import Cli, cli, people
from tests.tenants import make

__all__ = ["cli", "people"]
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIMFFkY0FTiyKD7QAv+4aUbmlAqO/a/nJDWOwTtzoBGyh"


def test_a_key_is_added_listed_and_deleted(
    cli: Cli, people: User, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "id_ed25519.pub"
    file.write_text(f"{KEY} me@laptop\n")
    assert cli("key", "add", str(file)) == 0
    assert "me-laptop: SHA256:" in capsys.readouterr().out
    assert cli("key", "add", str(file)) == 3
    assert "key_known" in capsys.readouterr().err
    assert cli("key", "list") == 0
    assert "me-laptop" in capsys.readouterr().out
    assert cli("key", "delete", "me-laptop") == 2
    assert cli("key", "delete", "me-laptop", "--yes") == 0
    assert not SshKey.objects.as_system().exists()


def test_a_file_that_is_none_or_holds_no_key_is_told(
    cli: Cli, people: User, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli("key", "add", str(tmp_path / "none.pub")) == 2
    (tmp_path / "text").write_text("hello")
    assert cli("key", "add", str(tmp_path / "text")) == 3
    assert "key_unreadable" in capsys.readouterr().err


@pytest.fixture
def instances(people: User, tmp_path: Path, settings: Any) -> None:
    """Two instances of Ada's that run, one of somebody else's, and an entrance by SSH."""
    settings.PORTAL_SSH_HOST, settings.PORTAL_SSH_PORT = "127.0.0.1", 2222
    settings.PORTAL_SSH_HOST_KEY_FILE = tmp_path / "host"
    sshhost.ensure(tmp_path / "host")
    queue = Queue.objects.as_system().get(name="research")
    other = make.user(role_in=queue.team)
    rows = {"image": Image.objects.as_system().get(name="python"), "size": Size.objects.as_system().get(name="small")}
    for name, owner in (("work-1", people), ("work-2", people), ("theirs", other)):
        home = Volume.objects.create(
            name=f"h-{name}", queue=queue, owner=owner, size_bytes=1, claim=f"c-{name}", kind="data", state="bound"
        )
        Instance.objects.create(
            name=name, owner=owner, queue=queue, home=home, state="running", **rows, **ssh.fresh_host_key()
        )


def test_the_configuration_is_written_where_ssh_reads_it_and_what_was_there_stays(
    cli: Cli, instances: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(portalctl_ssh, "FOLDER", tmp_path / "ssh")
    (tmp_path / "ssh").mkdir()
    (tmp_path / "ssh" / "config").write_text("Host *\n  Compression no\n")
    for _ in range(2):
        assert cli("ssh-config", "--write") == 0
    assert (tmp_path / "ssh" / "config").read_text() == "Include mlportal.conf\n\nHost *\n  Compression no\n"
    text = (tmp_path / "ssh" / "mlportal.conf").read_text()
    assert text.count("Host mlportal-127.0.0.1\n") == 1
    assert "Host work-1\n" in text and "Host work-2\n" in text and "theirs" not in text
    known = (tmp_path / "ssh" / "mlportal_known_hosts").read_text().splitlines()
    assert len(known) == 3 and known[0].startswith("[127.0.0.1]:2222 ssh-ed25519 ")
    shown = subprocess.run(
        ["ssh", "-G", "-F", str(tmp_path / "ssh" / "mlportal.conf"), "work-1"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "proxyjump mlportal-127.0.0.1" in shown and "stricthostkeychecking true" in shown
    capsys.readouterr()
    assert cli("ssh-config", "work-2") == 0
    printed = capsys.readouterr().out
    assert "Host work-2\n" in printed and "work-1" not in printed


def test_somebody_elses_instance_and_none_at_all_are_told(
    cli: Cli, instances: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli("ssh-config", "theirs") == 3
    assert "not_owner" in capsys.readouterr().err
    assert cli("ssh", "nothing") == 2
    Instance.objects.as_system().all().update(state="stopped")
    assert cli("ssh-config") == 2
    assert "no instance that runs" in capsys.readouterr().err


def test_ssh_is_run_with_the_way_and_its_status_comes_back(
    cli: Cli, instances: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "ssh"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/words\ncat "$2" > {tmp_path}/config\nexit 7\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    assert cli("ssh", "work-1", "ls", "-l") == 7
    words = (tmp_path / "words").read_text().split()
    assert words[0] == "-F" and words[2:] == ["work-1", "ls", "-l"]
    assert "ProxyJump mlportal-127.0.0.1" in (tmp_path / "config").read_text()
    assert not Path(words[1]).exists()
