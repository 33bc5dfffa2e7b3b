"""The supervisor, with real processes that do nothing."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from mlportal import supervise
from mlportal.processes import started_ticks

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("first", "second", "third")


class Stack:
    """A running fake_stack.py and what it has said."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.output = folder / "output"
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("fake_stack.py")), str(folder)],
            env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}"},
            stdout=self.output.open("wb"),
            stderr=subprocess.STDOUT,
        )

    def said(self) -> str:
        return self.output.read_text()

    def wait(self, what, seconds=20):
        deadline = time.monotonic() + seconds
        while not (found := what()):
            assert time.monotonic() < deadline, self.said()
            assert self.process.poll() is None, self.said()
            time.sleep(0.02)
        return found

    def pid(self, name):
        try:
            written = (self.folder / f"{name}.pid").read_text()
        except FileNotFoundError:  # the program that begins writes it anew
            return None
        return int(written.split()[0]) if written else None

    def pids(self):
        return {name: self.pid(name) for name in NAMES}

    def lines(self, file):
        return (self.folder / file).read_text().split() if (self.folder / file).exists() else []


def gone(pid):
    return started_ticks(pid) is None


@pytest.fixture
def stack(tmp_path):
    found = Stack(tmp_path)
    yield found
    if found.process.poll() is None:
        found.process.kill()
    found.process.wait()


@pytest.fixture
def ready(stack):
    stack.wait(lambda: "all ready" in stack.said())
    return stack


def test_programs_start_when_what_they_need_is_ready(ready):
    assert ready.lines("started") == ["first", "second", "third"]


def test_a_program_that_is_woken_costs_nothing_before_and_ends_after_and_is_there_for_the_next_one(ready):
    assert "doorman" not in [entry["name"] for entry in json.loads((ready.folder / "processes.json").read_text())]

    def visit():
        with socket.create_connection(("127.0.0.1", int((ready.folder / "port").read_text())), timeout=90) as visitor:
            return int(visitor.recv(20))

    first = visit()
    ready.wait(lambda: gone(first), seconds=90)
    second = visit()
    assert second != first
    ready.wait(lambda: ready.said().count("nobody is connected") == 2, seconds=90)


def test_each_has_a_session_of_its_own_and_is_noted_beyond_doubt(ready):
    noted = {entry["name"]: entry for entry in json.loads((ready.folder / "processes.json").read_text())}
    for name in NAMES:
        pid, session = map(int, (ready.folder / f"{name}.pid").read_text().split())
        assert session == pid
        assert (noted[name]["pid"], noted[name]["started_ticks"]) == (pid, started_ticks(pid))


def test_ctrl_c_stops_all_in_reverse_order_and_leaves_nothing(ready):
    pids = ready.pids()
    ready.process.send_signal(signal.SIGINT)
    assert ready.process.wait(10) == 0, ready.said()
    assert ready.lines("stopped") == ["third", "second", "first"]
    assert all(gone(pid) for pid in pids.values())
    assert not (ready.folder / "processes.json").exists()


@pytest.mark.parametrize("name", NAMES)
def test_a_killed_program_starts_again_and_the_line_says_so(ready, name):
    before = ready.pids()
    os.kill(before[name], signal.SIGKILL)
    ready.wait(lambda: ready.pid(name) not in {None, before[name]})
    after = ready.pids()
    assert {other: after[other] for other in NAMES if other != name} == {
        other: before[other] for other in NAMES if other != name
    }
    said = [line for line in ready.said().splitlines() if "starts again" in line]
    assert len(said) == 1
    assert name in said[0]
    assert "SIGKILL" in said[0]


def test_a_program_that_cannot_run_is_tried_later_and_later_and_its_last_words_are_shown(tmp_path):
    (tmp_path / "first.fails").touch()
    stack = Stack(tmp_path)
    try:
        stack.wait(lambda: "starts again in 2 s" in stack.said())
        assert "starts again in 1 s" in stack.said()
        assert "first cannot go on" in stack.said()
        assert stack.lines("started") == []  # the others wait for it
        (tmp_path / "first.fails").unlink()
        stack.wait(lambda: "all ready" in stack.said())
    finally:
        stack.process.send_signal(signal.SIGTERM)
        assert stack.process.wait(10) == 0


def test_killing_the_supervisor_leaves_no_program(ready):
    pids = ready.pids()
    ready.process.kill()
    ready.process.wait()
    deadline = time.monotonic() + 5
    while not all(gone(pid) for pid in pids.values()):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_stopping_while_a_program_waits_for_its_next_try_is_quick(tmp_path):
    (tmp_path / "first.fails").touch()
    stack = Stack(tmp_path)
    stack.wait(lambda: "starts again in 2 s" in stack.said())
    begun = time.monotonic()
    stack.process.send_signal(signal.SIGINT)
    assert stack.process.wait(10) == 0
    assert time.monotonic() - begun < 1.5


def test_a_full_disk_costs_notes_and_lines_of_logs_and_no_program(tmp_path):
    (tmp_path / "third.log").symlink_to("/dev/full")
    stack = Stack(tmp_path)
    try:
        stack.wait(lambda: "all ready" in stack.said(), 90)
        (tmp_path / "processes.new").mkdir()  # nothing can be written there
        first, third = stack.pid("first"), stack.pid("third")
        os.kill(first, signal.SIGKILL)
        stack.wait(lambda: stack.pid("first") not in {None, first}, 90)
        stack.wait(lambda: "cannot be noted" in stack.said(), 90)
        os.kill(third, signal.SIGUSR1)
        stack.wait(lambda: "cannot be kept in their logs: [Errno 28]" in stack.said(), 90)
        assert not gone(third)
        assert "Traceback" not in stack.said()
    finally:
        stack.process.terminate()
        stack.process.wait(90)


def test_the_terminal_shows_faults_and_not_what_people_sent_or_what_a_restart_brings_along(capsys):
    show = supervise._show_warnings()
    lines = (
        "2030-01-01T00:00:00Z WARNING django.request: Conflict: /api/v1/instances",
        "2030-01-01T00:00:00Z WARNING psycopg.pool: error connecting in 'pool-1'",
        "2030-01-01 00:00:00.000 UTC [7] FATAL:  the database system is starting up",
        "2030-01-01T00:00:00Z INFO    apps.core: nothing",
        "2030-01-01T00:00:00Z ERROR   apps.core.api: /api/v1/queues failed",
        "2030-01-01 00:00:00.000 UTC [7] FATAL:  could not open file",
    )
    process = SimpleNamespace(config=SimpleNamespace(name="web"), last_line="")
    show(SimpleNamespace(process=process, data="".join(f"{line}\n" for line in lines).encode()))
    assert [line.split("Z ")[-1].split("] ")[-1] for line in capsys.readouterr().out.splitlines()] == [
        "ERROR   apps.core.api: /api/v1/queues failed",
        "FATAL:  could not open file",
    ]
