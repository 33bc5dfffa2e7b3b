"""The catalogue and teams' own images from a terminal."""

from __future__ import annotations

from typing import Any

import pytest

from apps.catalog.models import Image, ImageTeam
from apps.instances.models import Instance
from apps.tenants.models import Team, User
from tests.portalctl.test_commands import Cli, cli, people  # noqa: F401 - fixtures

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def admin(people: User) -> User:  # noqa: F811
    User.objects.as_system().filter(pk=people.pk).update(is_platform_admin=True)
    return people


def test_images_are_added_changed_and_retired(admin: User, cli: Cli, capsys: pytest.CaptureFixture[str]) -> None:  # noqa: F811
    facts = ["--version", "2.4", "--cuda", "12.1", "--bare", "--hidden", "--team", "vision"]
    assert cli("image", "add", "torch-1", "--reference", "r.example/torch:1", *facts) == 0
    assert cli("image", "add", "torch-2", "--reference", "r.example/torch:2") == 0
    assert cli("image", "change", "torch-2", "--version", "2.5") == 0
    assert cli("image", "retire", "torch-1", "--use", "torch-2") == 0
    assert "torch-1: retired, use torch-2" in capsys.readouterr().out
    made: Any = Image.objects.as_system().get(name="torch-1")
    assert (made.version, made.cuda, made.prepared, made.hidden, made.retired) == ("2.4", "12.1", False, True, True)
    assert ImageTeam.objects.as_system().get(image=made).team.name == "vision"
    assert Image.objects.as_system().get(name="torch-2").version == "2.5"
    assert cli("image", "list") == 0
    assert "torch-2" in capsys.readouterr().out
    assert cli("image", "change", "torch-2") == 2
    assert cli("image", "add", "torch-3") == 2


def test_a_team_is_allowed_its_own_images_and_uses_one(
    admin: User,
    cli: Cli,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    wanted = ("instance", "create", "--own-image", "debian:bookworm", "--size", "small", "--queue", "research")
    assert cli(*wanted) == 3
    assert "own_images_off" in capsys.readouterr().err
    assert cli("team", "own-images", "vision", "--from", "docker.io/library", "--from", "r.example") == 0
    assert "vision: own images from docker.io/library, r.example" in capsys.readouterr().out
    assert cli(*wanted) == 0
    assert Instance.objects.as_system().get().image.reference == "docker.io/library/debian:bookworm"
    assert cli("team", "own-images", "vision", "--forbid") == 0
    assert not Team.objects.as_system().get().own_images
