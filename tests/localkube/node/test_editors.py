"""VS Code as a part of an image that is installed by a command and never by a start."""

from __future__ import annotations

from pathlib import Path

import pytest

from localkube.__main__ import _install_editors
from localkube.node import editors
from localkube.node.images import Images

INSTALL = """
mkdir -p "$1"
echo "$PYTHON" > "$1/python"
echo 1.2.3 > "$1/version"
echo run >> "$(dirname "$0")/../runs"
"""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    folder = tmp_path / "docker" / "dev"
    (folder / "code").mkdir(parents=True)
    (folder / "requirements.txt").write_text("")
    (folder / "code" / "install").write_text(INSTALL)
    found = tmp_path / "docker" / "images.toml"
    found.write_text('[images."dev:1"]\nfolder = "dev"\neditor = "code"\ncommand = ["x"]\n')
    return found


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    found = tmp_path / "cache"
    monkeypatch.setenv("LOCALKUBE_IMAGE_CACHE", str(found))
    monkeypatch.setattr(editors, "_TOOLS", (("sh", "dash"),))
    monkeypatch.setattr(editors, "_HEADER", Path("/"))
    return found


def runs(table: Path) -> int:
    told = table.parent / "dev" / "runs"
    return len(told.read_text().splitlines()) if told.exists() else 0


def test_the_command_installs_it_once_and_a_changed_recipe_again(
    table: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = editors.recipes(table)[0]
    assert editors.installed(cache, recipe) is None
    assert _install_editors(table.parent, table) == 0
    place = editors.installed(cache, recipe)
    assert place is not None
    assert capsys.readouterr().out.strip() == str(place)
    assert (place / "version").read_text() == "1.2.3\n"
    assert _install_editors(table.parent, table) == 0
    assert runs(table) == 1
    (recipe / "versions").write_text("other")
    assert editors.installed(cache, recipe) is None
    assert _install_editors(table.parent, table) == 0
    assert runs(table) == 2


def test_a_recipe_that_fails_leaves_nothing_and_says_so(
    table: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = editors.recipes(table)[0]
    (recipe / "install").write_text('mkdir -p "$1" && echo 1 > "$1/version" && exit 7\n')
    assert _install_editors(table.parent, table) == 1
    assert "exit code 7" in capsys.readouterr().err
    assert editors.installed(cache, recipe) is None
    assert [path.suffix for path in cache.iterdir()] == [".lock"]


def test_what_is_missing_on_the_machine_is_named_as_its_packages(
    table: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(editors, "_TOOLS", (("no-such-compiler", "g++"),))
    monkeypatch.setattr(editors, "_HEADER", Path("/nowhere.h"))
    assert _install_editors(table.parent, table) == 1
    assert "apt-get install g++ libkrb5-dev" in capsys.readouterr().err
    assert runs(table) == 0


def test_it_is_no_part_of_what_a_start_waits_for_and_is_kept_when_the_cache_is_tidied(table: Path, cache: Path) -> None:
    images = Images(table, cache)
    before = images.source("dev:1")
    recipe = editors.recipes(table)[0]
    editors.install(cache, recipe)
    (cache / "editor-0000").mkdir()
    images.prune("")
    assert Images(table, cache).source("dev:1") == before
    assert editors.installed(cache, recipe) is not None
    assert not (cache / "editor-0000").exists()
