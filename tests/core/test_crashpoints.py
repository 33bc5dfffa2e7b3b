"""Crash points: a process stops where a test asked for it, says so, and only once; else a point is nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from apps.core import crashpoints

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = "from apps.core.crashpoints import reach; reach('other'); reach('here'); print('went on', flush=True)"


def run(folder: Path) -> subprocess.Popen[bytes]:
    env = {**os.environ, "MLPORTAL_CRASH_POINTS": str(folder)}
    return subprocess.Popen([sys.executable, "-c", PROGRAM], cwd=ROOT, env=env, stdout=subprocess.PIPE)


def test_an_armed_point_stops_the_process_that_says_who_it_is_and_the_next_one_passes(tmp_path: Path) -> None:
    (tmp_path / "here.armed").touch()
    process = run(tmp_path)
    reached = tmp_path / "here.reached"
    deadline = time.monotonic() + 30
    while not reached.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert reached.read_text() == str(process.pid)
    pid, status = os.waitpid(process.pid, os.WUNTRACED)
    assert (pid, os.WIFSTOPPED(status)) == (process.pid, True)
    os.kill(process.pid, signal.SIGKILL)
    _pid, status = os.waitpid(process.pid, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    process.returncode = -signal.SIGKILL

    following = run(tmp_path)
    assert following.communicate(timeout=30)[0] == b"went on\n"


def test_without_the_variable_nothing_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here.armed").touch()
    crashpoints.reach("here")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here.armed"]
