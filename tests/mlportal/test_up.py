"""`python -m mlportal up` as a person meets it: real processes, one data folder, one terminal."""

import json
import os
import re
import shutil
import signal
import tempfile
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.mlportal.portal import PROCESSES, Portal

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("up")]


@pytest.fixture(scope="module")
def folder():
    made = Path(tempfile.mkdtemp(prefix="mlp-up-"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture(scope="module")
def portal(folder):
    found = Portal(folder / "home")
    found.start()
    yield found
    found.end()


def test_the_first_start_gives_address_name_and_a_password_once(portal):
    said = portal.said()
    assert f"http://127.0.0.1:{portal.port}/" in said
    assert re.search(r"Name +admin", said)
    password = re.search(r"Password +(\S+)", said).group(1)
    assert len(password) >= 12
    assert portal.status() == 200
    for file in (portal.home / "log").iterdir():
        assert password not in file.read_text(errors="replace")
    assert not (portal.home / "secrets" / "first-password").exists()


def test_every_process_has_a_session_of_its_own(portal):
    noted = portal.noted()
    assert set(noted) == PROCESSES
    assert all(os.getsid(pid) == pid for pid in noted.values())


def test_nothing_in_the_data_folder_is_open_to_others(portal):
    open_to_others = [
        path
        for path in [portal.home, *portal.home.rglob("*")]
        if not path.is_symlink() and path.parent in {portal.home.parent, portal.home} and path.stat().st_mode & 0o077
    ]
    assert [path for path in open_to_others if path.is_dir()] == []
    assert (portal.home / "secrets" / "portal.json").stat().st_mode & 0o777 == 0o600
    sockets = [path for path in portal.run_folder("").iterdir() if path.is_socket()]
    assert len(sockets) >= 4
    assert {oct(path.stat().st_mode & 0o777) for path in sockets} == {"0o600"}


def test_a_second_start_says_that_one_is_running_and_where(portal):
    second = Portal(portal.home)
    second.terminal = portal.home.parent / "second"
    code, said = second.refused()
    assert code == 1
    assert f"http://127.0.0.1:{portal.port} (process {portal.process.pid})" in said
    assert portal.status() == 200


def test_a_taken_port_names_its_holder_and_nothing_is_half_made(portal, folder):
    other = Portal(folder / "other")
    other.port = portal.port
    other.terminal = folder / "other-terminal"
    code, said = other.refused()
    assert code == os.EX_UNAVAILABLE
    assert f"process {portal.noted()['caddy']}" in said
    assert f"PORTAL_HTTP_PORT={portal.port + 1} make up" in said
    assert not (other.home / "pg").exists()


@pytest.mark.parametrize(
    ("changes", "code", "part"),
    [
        ({"PORTAL_HTTP_ADDRESS": "0.0.0.0"}, os.EX_USAGE, "HTTPS"),
        ({"PORTAL_HTTP_PORT": "many"}, os.EX_USAGE, "PORTAL_HTTP_PORT"),
        ({"PORTAL_HTTPPORT": "8123"}, os.EX_USAGE, "the nearest is PORTAL_HTTP_PORT. Correct it"),
        ({"PORTAL_CLUSTER": "/nowhere"}, os.EX_USAGE, "PORTAL_CLUSTER"),
        ({"PORTAL_HOME": "/proc/portal"}, os.EX_CANTCREAT, "PORTAL_HOME"),
    ],
)
def test_a_setting_that_cannot_work_is_refused_in_one_line(folder, changes, code, part):
    refused = Portal(folder / "never")
    refused.terminal = folder / "never-terminal"
    found, said = refused.refused(**changes)
    assert found == code
    assert part in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize("name", ["redis", "caddy", "web", "worker", "control", "localkube", "postgres"])
def test_a_killed_process_comes_back(portal, name):
    before = portal.noted()
    os.kill(before[name], signal.SIGKILL)
    portal.wait(lambda: portal.noted().get(name) not in {None, before[name]})
    portal.wait(lambda: portal.status("/readyz") == 200)
    assert re.search(rf"↻ {name} .*SIGKILL", portal.said())


def test_while_the_database_stands_still_people_are_told_so_and_nobody_waits_for_ever(portal):
    def ask(path, **headers):
        url = f"http://127.0.0.1:{portal.port}{path}"
        try:
            with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=90) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    server = int((portal.home / "pg" / "postmaster.pid").read_text().split()[0])
    assert ask("/readyz")[0] == 200, "there is a connection that lives"
    children = Path(f"/proc/{server}/task/{server}/children").read_text().split()
    frozen = [server, *map(int, children)]
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    try:
        with ThreadPoolExecutor() as threads:
            page = threads.submit(ask, "/", Cookie="mlportal-session=" + "x" * 32)
            items = threads.submit(ask, "/api/v1/instances", Authorization="Bearer mlp_nobody")
            ready = threads.submit(ask, "/readyz")
            assert ask("/livez")[0] == 200
            assert ready.result()[0] == 503
            status, body = page.result()
            assert status == 503 and "database does not answer just now" in body
            status, body = items.result()
            assert (status, json.loads(body)["code"]) == (503, "database_away")
    finally:
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)
    portal.wait(lambda: portal.status("/readyz") == 200, seconds=90)


def test_ctrl_c_leaves_nothing_and_the_next_start_needs_no_preparation(portal):
    portal.stop()
    assert portal.leftovers() == ([], [], [])
    portal.start()
    said = portal.said()
    assert "Password" not in said
    assert portal.status() == 200


def test_after_everything_was_killed_the_next_start_recovers(portal):
    victims = [portal.process.pid, *portal.noted().values()]
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    portal.process.wait()
    portal.start()
    assert portal.status() == 200
    portal.stop()
    assert portal.leftovers() == ([], [], [])


def test_a_data_folder_from_another_version_is_refused(portal, folder):
    old = Portal(folder / "old")
    old.home.mkdir()
    (old.home / "version").write_text("0\n")
    old.terminal = folder / "old-terminal"
    code, said = old.refused()
    assert code == os.EX_DATAERR
    assert "another version" in said


def test_a_long_data_folder_works_all_the_same(folder):
    long = Portal(folder / ("long-" * 20) / "home")
    long.home.parent.mkdir()
    long.start()
    try:
        assert long.status() == 200
        run = long.run_folder("")
        assert not run.is_relative_to(long.home)
        assert run.stat().st_mode & 0o777 == 0o700
    finally:
        long.stop()
    assert not run.exists(), "a folder outside of the data folder goes too"
