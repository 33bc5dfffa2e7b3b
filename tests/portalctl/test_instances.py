"""What portalctl does with an instance that exists, against the real REST API."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from apps.catalog.models import Image, Purpose, Size
from apps.clusters import room
from apps.clusters.room import RoomAnswer, Verdict
from apps.instances.models import Instance, InstanceViewer
from apps.tenants.models import Membership, Role, Team, User
from tests.portalctl.test_commands import Cli, cli, people

__all__ = ["cli", "people"]


@pytest.fixture
def instance(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Instance:
    """``work`` of Ada, with a variable and a script, at rest."""
    monkeypatch.setattr(room, "will_fit", lambda cluster, need: RoomAnswer(verdict=Verdict.NOW))
    Image.objects.create(name="jupyter", reference="mlportal/jupyter:1", purpose=Purpose.DEV)
    Size.objects.create(name="big", cpu_millis=1000, memory_bytes=2**31)
    script = tmp_path / "start.sh"
    script.write_text("echo hello\n")
    made = ("instance", "create", "--image", "jupyter", "--size", "small", "--name", "work")
    assert cli(*made, "--env", "A=1", "--script", str(script), "--shm", "64Mi", "--time-zone", "Asia/Tokyo") == 0
    row: Instance = Instance.objects.as_system().get()
    assert row.options == {
        "env": {"A": "1"}, "script": "echo hello\n", "shm_bytes": 64 << 20, "time_zone": "Asia/Tokyo",
    }  # fmt: skip
    Instance.objects.as_system().update(state="stopped", desired="stopped", at_rest=True)
    return row


def test_set_plans_and_changes_and_keeps_the_other_variables(
    cli: Cli, instance: Instance, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    words = ("instance", "set", "work", "--size", "big", "--env", "B=2", "--shm", "default")
    assert cli(*words, "--dry-run") == 0
    said = capsys.readouterr().out
    assert "size: small: 0.5 CPU, 1 GiB -> big: 1 CPU, 2 GiB" in said and "env: - -> “2”" in said and "now: " in said
    assert cli(*words, "--dry-run", "--json") == 0
    assert len(json.loads(capsys.readouterr().out)["changes"]) == 3
    instance.refresh_from_db()
    assert instance.size.name == "small"
    assert cli(*words, "--unset-env", "A") == 0
    instance = Instance.objects.as_system().get()
    assert (instance.size.name, instance.options["env"]) == ("big", {"B": "2"})
    assert "shm_bytes" not in instance.options and instance.options["script"] == "echo hello\n"
    assert cli("instance", "set", "work") == 2
    assert cli("instance", "set", "work", "--env", "MLPORTAL_X=1") == 3


def test_of_one_that_runs_it_says_when(cli: Cli, instance: Instance, capsys: pytest.CaptureFixture[str]) -> None:
    Instance.objects.as_system().update(state="running", desired="running", at_rest=False)
    assert cli("instance", "set", "work", "--size", "big") == 3
    assert "not_stopped" in capsys.readouterr().err
    assert cli("instance", "set", "work", "--size", "big", "--next-start") == 0
    assert "at its next start: size: small" in capsys.readouterr().out


def test_rename_clone_transfer_share_and_log(cli: Cli, instance: Instance, capsys: pytest.CaptureFixture[str]) -> None:
    User.objects.create_user("bob")
    eve = User.objects.create_user("eve")
    Membership.objects.create(team=Team.objects.as_system().get(), user=eve, role=Role.MEMBER)
    assert cli("instance", "rename", "work", "play") == 0
    assert cli("instance", "clone", "play", "twin", "--key", "k") == 0
    assert cli("instance", "share", "play", "bob", "--days", "1") == 0
    assert "bob may look until" in capsys.readouterr().out
    assert cli("instance", "share", "play", "bob", "--end") == 0
    assert not InstanceViewer.objects.as_system().exists()
    assert cli("instance", "log", "play") == 0
    assert "It does not run" in capsys.readouterr().err
    assert cli("instance", "transfer", "play", "eve") == 2
    assert cli("instance", "transfer", "play", "eve", "--yes") == 0
    rows = Instance.objects.as_system()
    assert {row.name: row.owner.username for row in rows} == {"play": "eve", "twin": "ada"}
