"""Everything a pod needs works for an ordinary user too, with soft limits."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from localkube.node.prerequisites import explain, may_use_pod_uids

NOBODY = 61234


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that another user can work in, with a readable copy of what is tested."""
    folder = Path(tempfile.mkdtemp(prefix="localkube-ordinary-"))
    root = Path(__file__).parents[3]
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(root / "platform" / "localkube", folder / "code" / "localkube", ignore=ignore)
    tests = folder / "code" / "tests" / "localkube" / "node"
    shutil.copytree(root / "tests" / "localkube" / "node", tests, ignore=ignore)
    (folder / "bare").mkdir()
    (folder / "bare" / "requirements.txt").touch()
    (folder / "images.toml").write_text('[images."test/python:1"]\nfolder = "bare"\ncommand = ["python3"]\n')
    (folder / "home").mkdir()
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    if os.geteuid() == 0:
        os.chown(folder / "home", NOBODY, NOBODY)
    yield folder
    shutil.rmtree(folder)


def test_pods_run_limited_and_shut_in_without_root(shared: Path) -> None:
    become = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"] if os.geteuid() == 0 else []
    pythons = [sys.executable, "/usr/bin/python3"]  # this one may lie in a folder of root's own
    usable = [p for p in pythons if not subprocess.run([*become, "test", "-x", p], check=False).returncode]
    assert usable, "no Python that an ordinary user may run"
    uv = shutil.which("uv") or str(Path(sys.executable).parent / "uv")
    env = {"PATH": f"{Path(uv).parent}:/usr/bin:/bin", "PYTHONPATH": str(shared / "code")}
    command = [usable[0], "-m", "tests.localkube.node.ordinary", str(shared / "home"), str(shared / "images.toml")]
    done = subprocess.run(
        [*become, *command], capture_output=True, text=True, cwd=shared, env=env, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.endswith("all good\n")


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        ("kernel/unprivileged_userns_clone", "0", "sudo sysctl -w kernel.unprivileged_userns_clone=1"),
        ("user/max_user_namespaces", "0", "sudo sysctl -w user.max_user_namespaces=15000"),
        (
            "kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        ),
    ],
)
def test_a_machine_that_forbids_user_namespaces_is_told_which_line_allows_them(
    tmp_path: Path, path: str, value: str, line: str
) -> None:
    (tmp_path / path).parent.mkdir()
    (tmp_path / path).write_text(value + "\n")
    text = explain("bwrap: No permissions to create new namespace", tmp_path)
    assert text.endswith(line)
    assert line.rpartition(" ")[2].partition("=")[0] in text


def test_another_failure_is_shown_as_it_is(tmp_path: Path) -> None:
    assert "Can't mount proc" in explain("bwrap: Can't mount proc on /newroot/proc", tmp_path)


@pytest.mark.parametrize(
    ("uid_map", "root_may"),
    [
        ("         0          0 4294967295\n", True),
        ("         0       1000          1\n", False),
        ("         0     100000      65536\n", False),
        ("         0       1000          1\n         1     100000      65536\n", False),
    ],
)
def test_a_root_without_the_uids_of_pods_is_an_ordinary_user(uid_map: str, root_may: bool) -> None:
    assert may_use_pod_uids(uid_map) is (root_may and os.geteuid() == 0)
