"""What is checked before a start."""

import dataclasses
import os
import socket
import subprocess
import sys
import time

import pytest

from mlportal import env, preflight, supervise
from mlportal.paths import Home
from mlportal.preflight import Refused
from mlportal.processes import MARK, Identity, end, left_behind, listener, started_ticks


@pytest.fixture
def home(tmp_path):
    found = Home(root=tmp_path / "home")
    preflight.folders(found)
    return found


def test_folders_are_closed_to_others(home):
    home.root.chmod(0o755)
    preflight.folders(home)
    with preflight.only_one(home, url="http://first"):
        assert {oct(folder.stat().st_mode & 0o777) for folder in (home.root, home.run, home.secrets)} == {"0o700"}


def test_a_folder_from_another_version_is_refused_and_left_as_it_is(home):
    home.version_file.write_text("999\n")
    with pytest.raises(Refused, match="another version") as caught:
        preflight.folders(home)
    assert caught.value.code == os.EX_DATAERR
    assert home.version_file.read_text() == "999\n"


def test_a_database_without_a_version_is_refused(home):
    home.version_file.unlink()
    home.postgres_data.mkdir()
    with pytest.raises(Refused, match="says no version"):
        preflight.folders(home)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(Refused, match="PORTAL_HOME") as caught:
        preflight.folders(Home(root=tmp_path / "file" / "home"))
    assert caught.value.code == os.EX_CANTCREAT


def test_a_full_disk_is_refused_with_what_is_free_and_what_is_needed(home):
    with pytest.raises(Refused, match=r"Only \d+ MiB are free") as caught:
        preflight.room(home, needed=2**60)
    assert caught.value.code == os.EX_IOERR


def test_a_database_whose_keys_are_gone_is_refused(home):
    home.postgres_data.mkdir()
    with pytest.raises(Refused, match="Put the file back"):
        preflight.secrets_present(env.read({"PORTAL_HOME": str(home.root)}))


def test_a_taken_port_names_the_process_that_holds_it():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        assert listener(port) == os.getpid()
        with pytest.raises(Refused, match=rf"process {os.getpid()} \(.*PORTAL_HTTP_PORT="):
            preflight.port_free(env.read({"PORTAL_HTTP_PORT": str(port)}))
    preflight.port_free(env.read({"PORTAL_HTTP_PORT": str(port)}))


def test_a_taken_port_for_ssh_is_refused_with_its_holder_only_when_it_was_asked_for(monkeypatch, capsys):
    monkeypatch.setenv("PORTAL_SSH_PORT", "before")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        asked = env.read({"PORTAL_SSH_PORT": str(port)})
        with pytest.raises(Refused, match=rf"process {os.getpid()} \(.*PORTAL_SSH_PORT=0"):
            preflight.ssh_listener(asked)
        assert preflight.ssh_listener(dataclasses.replace(asked, ssh_port_given=False)) is None
        assert f"Port {port} on 127.0.0.1, for SSH, is taken by process {os.getpid()}" in capsys.readouterr().out
        assert os.environ["PORTAL_SSH_PORT"] == "0"
    assert preflight.ssh_listener(env.read({"PORTAL_SSH_PORT": "0"})) is None


def test_the_listener_for_ssh_outlives_what_a_supervised_program_closes():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    made = preflight.ssh_listener(env.read({"PORTAL_SSH_PORT": str(port)}))
    assert made is not None
    with made, socket.create_connection(("127.0.0.1", port), timeout=90):
        assert made.fileno() >= 300 > supervise._Options.minfds
        assert not made.get_inheritable()


def test_a_second_holder_is_told_who_the_first_is(home):
    with (
        preflight.only_one(home, url="http://first"),
        pytest.raises(Refused, match=rf"http://first \(process {os.getpid()}\)") as caught,
        preflight.only_one(home, url="http://second"),
    ):
        pass
    assert caught.value.code == 1
    with preflight.only_one(home, url="http://third"):
        assert "third" in home.lock_file.read_text()


def test_the_folder_of_sockets_is_there_for_its_holder_and_goes_with_it_when_it_is_empty(home):
    with preflight.only_one(home, url="http://first"):
        with pytest.raises(Refused), preflight.only_one(home, url="http://second"):
            pass
        assert home.run.is_dir(), "who was refused takes nothing away"
    assert not home.run.exists()
    with pytest.raises(ZeroDivisionError), preflight.only_one(home, url="http://third"):
        raise ZeroDivisionError
    assert not home.run.exists()
    with preflight.only_one(home, url="http://fourth"):
        (home.run / "socket").touch()
    assert (home.run / "socket").exists()


@pytest.mark.parametrize(
    ("setting", "bad", "line"),
    [
        (
            "kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        ("kernel/unprivileged_userns_clone", "0", "sysctl -w kernel.unprivileged_userns_clone=1"),
        ("user/max_user_namespaces", "0", "sysctl -w user.max_user_namespaces=15000"),
    ],
)
def test_forbidden_user_namespaces_name_the_setting_and_the_line_that_changes_it(tmp_path, setting, bad, line):
    file = tmp_path / setting
    file.parent.mkdir(parents=True)
    file.write_text(f"{bad}\n")
    assert line in preflight._forbidden("refused", sysctls=tmp_path)


def test_what_a_killed_supervisor_left_is_found_by_its_mark_and_by_its_record_and_ended(tmp_path):
    sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
    marked = subprocess.Popen(sleep, env={MARK: str(tmp_path)})
    other = subprocess.Popen(sleep, env={MARK: str(tmp_path / "other")})
    noted = subprocess.Popen(["sleep", "60"], env={})
    try:
        deadline = time.monotonic() + 10
        recorded = [Identity(pid=noted.pid, started_ticks=started_ticks(noted.pid))]
        recorded.append(Identity(pid=os.getpid(), started_ticks=1))  # a number that was given out again
        while {marked.pid, noted.pid} != {one.pid for one in left_behind(home=tmp_path, recorded=recorded)}:
            assert time.monotonic() < deadline
        end(left_behind(home=tmp_path, recorded=recorded))
        assert marked.wait(5) != 0
        assert noted.wait(5) != 0
        assert other.poll() is None
    finally:
        for process in (marked, other, noted):
            process.kill()
            process.wait()


def test_a_process_that_ignores_the_request_is_killed():
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print('on', flush=True); time.sleep(60)"
    stubborn = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    stubborn.stdout.readline()
    end([Identity(pid=stubborn.pid, started_ticks=started_ticks(stubborn.pid))], within_s=0.2)
    assert stubborn.wait(5) == -9
