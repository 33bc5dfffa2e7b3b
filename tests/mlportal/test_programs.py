"""The portal's own programs, as far as they are more than what they call."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from apps.core import control as loops
from mlportal import programs
from mlportal.celery import app
from mlportal.paths import ROOT, Home


async def test_the_control_process_shows_outside_that_its_loops_go_round(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    registered: dict[str, loops.Loop] = {}
    monkeypatch.setattr(loops, "register", registered.__setitem__)
    monkeypatch.setattr(programs, "call_command", lambda name: None)
    monkeypatch.setattr(programs, "BEAT_S", 0.01)
    monkeypatch.setattr(settings, "ENVIRONMENT", replace(settings.ENVIRONMENT, home=Home(root=tmp_path)))
    ready = Home(root=tmp_path).ready_file("control")
    ready.parent.mkdir(parents=True)
    programs.control()
    assert ready.exists()
    os.utime(ready, (1, 1))
    stop = asyncio.Event()
    beating = asyncio.create_task(registered["alive"](stop))
    for _ in range(9000):
        if ready.stat().st_mtime > 1:
            break
        await asyncio.sleep(0.01)
    stop.set()
    await beating
    assert ready.stat().st_mtime > 1


@pytest.mark.parametrize(
    "words",
    [
        ("manage.py", "check"),
        *(("-m", "mlportal", action) for action in ("prepare", "check", "worker")),
    ],
    ids=" ".join,
)
def test_every_command_refuses_a_slip_in_one_line(words: tuple[str, ...], tmp_path: Path) -> None:
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    places = {"PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}", "PORTAL_HOME": str(tmp_path / "home")}
    done = subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env={**kept, **places, "PORTAL_HTTPPORT": "8123"},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == os.EX_USAGE and not done.stdout
    assert "PORTAL_HTTPPORT is no setting of the portal; the nearest is PORTAL_HTTP_PORT." in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "home").exists()


def test_hints_of_unit_tests_go_nowhere_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    with app.connection_for_write() as connection:
        connection.default_channel.queue_declare("nowhere", auto_delete=True)
        assert connection.info()["transport"] == "memory"
    assert not [record for record in caplog.records if "hostname" in record.getMessage()]
