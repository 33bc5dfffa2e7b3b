"""A new key for a running program goes over standard input: nothing that others can list has it."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kubekit import keyfile
from kubekit.errors import BadRequest


class Pod:
    """Takes commands as the API server would and runs them here, with the key's folder elsewhere."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.commands: list[Sequence[str]] = []

    async def run(
        self, namespace: str, pod: str, container: str, command: Sequence[str], *, stdin: bytes, **_: Any
    ) -> tuple[int, bytes, bytes]:
        self.commands.append(command)
        here = [word.replace(keyfile.LIVE_PATH, str(self.folder)) for word in command]
        done = await asyncio.to_thread(subprocess.run, here, input=stdin, capture_output=True, check=False)
        return done.returncode, done.stdout, done.stderr


async def test_the_key_is_in_the_file_and_in_no_argument(tmp_path: Path) -> None:
    pod: Any = Pod(tmp_path)
    await keyfile.push(pod, "ns", "pod-0", "main", "a-new-key")
    await keyfile.push(pod, "ns", "pod-0", "main", "a-newer-key")
    assert (tmp_path / "key").read_text() == "a-newer-key"
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / ".key.new").exists()
    assert not [word for command in pod.commands for word in command if "a-new" in word]


async def test_a_pod_without_the_folder_says_so(tmp_path: Path) -> None:
    pod: Any = Pod(tmp_path / "absent")
    with pytest.raises(BadRequest, match="could not be replaced"):
        await keyfile.push(pod, "ns", "pod-0", "main", "a-new-key")


def test_a_key_that_comes_cut_short_replaces_nothing(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("old")
    script = keyfile._SCRIPT.replace(keyfile.LIVE_PATH, str(tmp_path))
    done = subprocess.run(["/bin/sh", "-c", script, "x", "9"], input=b"a-new", capture_output=True, check=False)
    assert done.returncode != 0
    assert (tmp_path / "key").read_text() == "old"
