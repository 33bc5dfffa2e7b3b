"""The portal's own programs, as far as they are more than what they call."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from typing import Any

import pytest
from django.conf import settings

from apps.core import control as loops
from mlportal import programs
from mlportal.paths import Home


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
