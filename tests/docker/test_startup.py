"""The start-up script of the dev image: how it runs, what is told of its end, and that it never stops the start."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

STARTUP = Path(__file__).parents[2] / "docker" / "dev-base" / "startup"
PATIENCE_S = 90


class Start:
    """One run of the program with a script of somebody's."""

    def __init__(self, folder: Path, script: str | None, **variables: str) -> None:
        secrets, self.live, home = (folder / name for name in ("secrets", "live", "home"))
        for made in (secrets, self.live, home):
            made.mkdir(exist_ok=True)
        if script is not None:
            (secrets / "start-script").write_text(script)
            (secrets / "start-script").chmod(0o440)
        places = {"MLPORTAL_SECRETS": str(secrets), "MLPORTAL_LIVE": str(self.live), "HOME": str(home)}
        done = subprocess.run(
            ["/bin/sh", str(STARTUP)],
            env={"PATH": os.environ["PATH"], "SHELL": shutil.which("bash") or "/bin/sh", **places, **variables},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        self.code, self.printed, self.said = done.returncode, done.stdout, done.stderr

    @property
    def ending(self) -> str:
        """What the portal reads."""
        file = self.live / "startup"
        return file.read_text().strip() if file.exists() else ""


def test_it_runs_in_the_home_with_the_variables_and_its_output_is_the_log(tmp_path: Path) -> None:
    start = Start(tmp_path, 'echo "$GREETING from $PWD"\n', GREETING="hello")
    assert start.printed == f"hello from {tmp_path}/home\n"
    assert (start.code, start.ending) == (0, "0")
    assert "ended well" in start.said


@pytest.mark.parametrize("script", ["echo out; echo bad >&2; exit 7\n", "kill -9 $$\n", "no-such-program\n", "if (\n"])
def test_one_that_fails_stops_nothing_and_its_exit_code_is_told(tmp_path: Path, script: str) -> None:
    start = Start(tmp_path, script)
    assert start.code == 0
    assert start.ending not in {"", "0", "running"}
    assert f"exit code {start.ending}" in start.said


def test_one_that_never_ends_is_ended_and_the_start_goes_on(tmp_path: Path) -> None:
    start = Start(tmp_path, "echo begun\nexec sleep 3600\n", MLPORTAL_START_SCRIPT_S="1")
    assert (start.code, start.ending, start.printed) == (0, "124", "begun\n")


def test_its_first_line_may_name_another_program(tmp_path: Path) -> None:
    start = Start(tmp_path, "#!/usr/bin/env python3\nprint(6 * 7)\nraise SystemExit(4)\n")
    assert (start.printed, start.ending) == ("42\n", "4")


def test_a_program_that_is_not_there_is_an_end_like_any_other(tmp_path: Path) -> None:
    start = Start(tmp_path, "#!/no/such/program\n")
    assert start.code == 0 and start.ending not in {"", "0"}


def test_without_a_script_nothing_is_said_and_the_last_ending_is_forgotten(tmp_path: Path) -> None:
    Start(tmp_path, "exit 3\n")
    (tmp_path / "secrets" / "start-script").unlink()
    start = Start(tmp_path, None)
    assert (start.code, start.printed, start.said, start.ending) == (0, "", "", "")


def test_what_it_leaves_in_the_background_does_not_hold_the_start_back(tmp_path: Path) -> None:
    start = Start(tmp_path, "sleep 3600 > /dev/null 2>&1 &\necho $!\n")
    os.kill(int(start.printed), 9)
    assert start.ending == "0"
