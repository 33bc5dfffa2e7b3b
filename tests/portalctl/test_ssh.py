"""Keys from the command line, against the real REST API."""

from __future__ import annotations

from pathlib import Path

import pytest

from apps.tenants.models import SshKey, User
from tests.portalctl.test_commands import Cli, cli, people

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
