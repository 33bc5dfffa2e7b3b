"""The exact command for every tool, on the page of an instance, for its owner alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from mlportal import sshhost
from tests.instances.conftest import World


@pytest.fixture
def entrance(settings: Any, tmp_path: Path) -> None:
    """The portal has an entrance by SSH."""
    file = tmp_path / "ssh_host_ed25519"
    sshhost.ensure(file)
    settings.PORTAL_SSH_HOST, settings.PORTAL_SSH_PORT = "ssh.example.org", 2222
    settings.PORTAL_SSH_HOST_KEY_FILE = file


COMMANDS = (
    "code --remote ssh-remote+work-1 /root",
    "scp -r ./folder work-1:/root/",
    "rsync -av --partial ./folder/ work-1:/root/folder/",
    "git clone work-1:/root/project",
    "ssh -N -L 8080:127.0.0.1:8080 work-1",
    "ssh -N -D 1080 work-1",
    "ssh work-1",
    "sftp work-1:/root",
)


def test_each_tool_has_its_command_and_no_key_in_it(world: World, client: Client, entrance: None) -> None:
    instance = world.running(name="work-1")
    client.force_login(world.owner)
    page = client.get(instance.get_absolute_url()).content.decode()
    for command in COMMANDS:
        assert f'<pre tabindex="0">{command}</pre>' in page
    assert "/opt/venv/bin/python" in page
    assert instance.key.reveal() not in page
    client.force_login(world.colleague)
    page = client.get(instance.get_absolute_url()).content.decode()
    assert not [command for command in COMMANDS if command in page]


def test_without_an_entrance_by_ssh_there_are_no_tools_that_need_one(
    world: World, client: Client, settings: Any
) -> None:
    settings.PORTAL_SSH_PORT = 0
    instance = world.running(name="work-1")
    client.force_login(world.owner)
    page = client.get(instance.get_absolute_url()).content.decode()
    assert "With your own tools" not in page
    assert "curl" in page
