"""The set-up before anything is installed."""

import os
import stat

import pytest

from mlportal import setup
from mlportal.setup import CannotSetUp


@pytest.fixture
def commands(monkeypatch):
    """What would be run."""
    found = []
    monkeypatch.setattr(setup, "run", lambda command, **_: found.append(list(command)))
    return found


@pytest.fixture
def missing(monkeypatch):
    """One program that is not there."""
    monkeypatch.setattr(setup, "DEBIAN_RUNTIME", (("nosuch", "/usr/bin/no-such-program", "does nothing at all"),))


def test_an_ordinary_user_is_told_in_one_line_what_to_install_and_why(commands, missing, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(CannotSetUp) as caught:
        setup.debian(dev=False)
    said = str(caught.value)
    assert "nosuch does nothing at all" in said
    assert "sudo apt-get install -y --no-install-recommends nosuch" in said
    assert "\n" not in said
    assert commands == []


def test_root_installs_what_is_missing_and_renews_old_lists(missing, monkeypatch):
    tried = []

    def run(command, **_):
        tried.append(command[1])
        if tried == ["install"]:
            raise CannotSetUp("404")

    monkeypatch.setattr(setup, "run", run)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(setup.shutil, "which", lambda name: f"/usr/bin/{name}" if name == "apt-get" else None)
    setup.debian(dev=False)
    assert tried == ["install", "update", "install"]


def test_nothing_is_installed_when_all_is_there(commands):
    setup.debian(dev=True)
    assert commands == []


@pytest.fixture
def checkout(tmp_path, monkeypatch, commands):
    """An empty checkout with pins and a virtual environment that looks made here."""
    monkeypatch.setattr(setup, "ROOT", tmp_path)
    monkeypatch.setattr(setup, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(setup, "BIN", tmp_path / ".venv" / "bin")
    monkeypatch.setattr(setup, "STAMPS", tmp_path / ".venv" / "stamps")
    (tmp_path / "requirements.txt").write_text("uv==1.2.3\n")
    (tmp_path / "requirements-dev.txt").write_text("pytest==1\n")
    setup.BIN.mkdir(parents=True)
    (setup.BIN / "python").touch()
    (setup.BIN / "pip").write_text(f"#!{setup.BIN}/python\n")
    return tmp_path


def test_packages_are_installed_once_for_the_same_pins(checkout, commands):
    setup.virtual_environment(dev=False)
    assert commands[0][-1] == "uv==1.2.3"
    assert str(checkout / "requirements.txt") in commands[-1]
    before = len(commands)
    setup.virtual_environment(dev=False)
    assert len(commands) == before
    (checkout / "requirements.txt").write_text("uv==1.2.4\n")
    setup.virtual_environment(dev=False)
    assert len(commands) > before


def test_running_never_takes_the_packages_of_tests_away(checkout, commands):
    setup.virtual_environment(dev=True)
    (checkout / "requirements.txt").write_text("uv==1.2.4\n")
    setup.virtual_environment(dev=False)
    assert str(checkout / "requirements-dev.txt") in commands[-1]


def test_a_copied_environment_is_made_anew(checkout, commands):
    (setup.BIN / "pip").write_text("#!/elsewhere/.venv/bin/python\n")
    setup.virtual_environment(dev=False)
    assert "venv" in commands[0]


def test_what_is_downloaded_is_believed_as_the_machine_believes_unless_it_says_otherwise(monkeypatch, tmp_path):
    import sys

    monkeypatch.setenv("UV_SYSTEM_CERTS", "0")
    monkeypatch.delenv("NODE_USE_SYSTEM_CA", raising=False)
    told = tmp_path / "told"
    tell = (
        "import os, sys; open(sys.argv[1], 'w').write(f'{os.environ.get(sys.argv[2])} {os.environ.get(sys.argv[3])}')"
    )
    command = (sys.executable, "-c", tell, str(told), "UV_SYSTEM_CERTS", "NODE_USE_SYSTEM_CA")
    setup.run(command, failed="")
    assert told.read_text() == "0 1"


def test_the_command_line_is_installed_and_works_from_anywhere(tmp_path, monkeypatch):
    import subprocess
    import sys

    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "python").symlink_to(sys.executable)
    monkeypatch.setattr(setup, "BIN", folder)
    setup.command_line()
    done = subprocess.run([folder / "portalctl", "--help"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout[:16]) == (0, "usage: portalctl"), done.stderr


def test_the_lock_file_of_browser_packages_names_no_host():
    lock = (setup.ROOT / "package-lock.json").read_text()
    assert '"resolved"' not in lock


def test_programs_that_set_up_calls_may_be_executed():
    assert stat.S_IXUSR & (setup.ROOT / "manage.py").stat().st_mode
    assert stat.S_IXUSR & (setup.ROOT / ".ci" / "run").stat().st_mode
