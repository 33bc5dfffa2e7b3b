"""sshd in the dev image, with the real OpenSSH client: who gets in, what a session finds, what failure leaves alone."""

from __future__ import annotations

import asyncio
import base64
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docker.test_jupyter import KEY, Instance, cache, with_key

__all__ = ["cache"]
pytestmark = pytest.mark.slow
PATIENCE_S = 90


def make_key(path: Path) -> str:
    """A key pair; the public half."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(path)], check=True)
    return path.with_suffix(".pub").read_text()


class Reached(Instance):
    """A dev instance whose SSH port answers on a port of this machine, and the client that goes there."""

    def __init__(self, home: Path, folder: Path) -> None:
        self.folder = folder
        self.mine = make_key(folder / "mine")
        make_key(folder / "stranger")
        host = make_key(folder / "host")
        secrets = {"ssh-host-key": (folder / "host").read_text(), "authorized_keys": self.mine}
        super().__init__(home, **secrets)
        self.port = self.run(self._listen())
        (folder / "known").write_text(f"[127.0.0.1]:{self.port} {host}")

    async def _listen(self) -> int:
        async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                while data := await reader.read(65536):
                    writer.write(data)
                    await writer.drain()
            except OSError:
                pass  # the other side has gone
            finally:
                writer.close()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                inside = await self.node.kubelet.dial(self.pod, 2222)
            except OSError:
                writer.close()
                return
            await asyncio.gather(pump(reader, inside[1]), pump(inside[0], writer))

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port: int = server.sockets[0].getsockname()[1]
        return port

    def options(self, key: str = "mine") -> list[str]:
        chosen = {
            "Port": self.port,
            "UserKnownHostsFile": self.folder / "known",
            "StrictHostKeyChecking": "yes",
            "IdentityFile": self.folder / key,
            "IdentitiesOnly": "yes",
            "IdentityAgent": "none",
            "ConnectTimeout": PATIENCE_S,
        }
        return ["-F", "none", *(f"-o{name}={value}" for name, value in chosen.items())]

    def ssh(self, *words: str, key: str = "mine", more: tuple[str, ...] = (), **given: Any) -> Any:
        command = ["ssh", *self.options(key), *more, "user@127.0.0.1", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, **given)

    def with_password(self, password: str, *words: str) -> Any:
        ask = self.folder / "ask"
        ask.write_text('#!/bin/sh\nprintf "%s\\n" "$SECRET"\n')
        ask.chmod(0o700)
        environ = {**os.environ, "SSH_ASKPASS": str(ask), "SSH_ASKPASS_REQUIRE": "force", "SECRET": password}
        only = ("-oPubkeyAuthentication=no", "-oNumberOfPasswordPrompts=1")
        return self.ssh(*words, more=only, env=environ)

    def wait_for_ssh(self) -> None:
        """JupyterLab and sshd start side by side, so either may be first."""
        until = time.monotonic() + PATIENCE_S
        while self.ssh("true").returncode != 0:
            assert time.monotonic() < until, self.run(self.node.log(self.pod))

    def put(self, **data: str) -> None:
        """Change the Secret, as the portal does."""

        async def change() -> None:
            found = self.node.store.get("secrets", "default", "dev")
            encoded = {name: base64.b64encode(text.encode()).decode() for name, text in data.items()}
            self.node.store.update("secrets", {**found, "data": {**found["data"], **encoded}})

        self.run(change())


@pytest.fixture(scope="module")
def reached(cache: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reached]:
    made = Reached(tmp_path_factory.mktemp("dev"), tmp_path_factory.mktemp("keys"))
    try:
        made.launch()
        made.wait_for_ssh()
        yield made
    finally:
        made.stop()


def test_a_registered_key_opens_and_the_session_has_what_a_terminal_of_jupyterlab_has(reached: Reached) -> None:
    done = reached.ssh("id -un; pwd; echo $MLPORTAL_INSTANCE_ID; command -v python jupyter; umask")
    assert done.returncode == 0, done.stderr
    who, where, instance, python, jupyter, mask = done.stdout.split()
    assert (who, where, instance, mask) == ("user", "/root", "0b8f6c0e", "0022")
    assert (python, jupyter) == ("/opt/venv/bin/python", "/opt/venv/bin/jupyter")


def test_a_terminal_has_the_images_path_too_and_a_status_comes_back(reached: Reached) -> None:
    done = reached.ssh(more=("-tt",), input="command -v jupyter; exit 7\n")
    assert "/opt/venv/bin/jupyter" in done.stdout
    assert done.returncode == 7


def test_another_key_and_a_wrong_password_open_nothing(reached: Reached) -> None:
    assert "Permission denied" in reached.ssh("true", key="stranger", more=("-oBatchMode=yes",)).stderr
    assert "Permission denied" in reached.with_password("wrong", "true").stderr
    assert "Permission denied" in reached.with_password("*", "true").stderr


def test_the_launch_key_is_the_password_until_it_is_replaced(reached: Reached) -> None:
    assert reached.with_password(KEY, "echo in").stdout == "in\n"
    fresh = "another-key-of-this-launch"
    renew = f"umask 077; printf %s {fresh} > /run/mlportal/key; mlportal-rekeyed"
    assert reached.ssh(renew).returncode == 0
    try:
        assert "Permission denied" in reached.with_password(KEY, "true").stderr
        assert reached.with_password(fresh, "echo in").stdout == "in\n"
    finally:
        reached.ssh("rm /run/mlportal/key; mlportal-rekeyed")
    assert reached.with_password(KEY, "echo in").stdout == "in\n"


def test_a_key_that_is_registered_later_opens_without_a_restart_and_one_that_goes_is_refused(reached: Reached) -> None:
    later = make_key(reached.folder / "later")
    assert reached.ssh("true", key="later", more=("-oBatchMode=yes",)).returncode == 255
    reached.put(authorized_keys=reached.mine + later)
    assert reached.ssh("echo in", key="later").stdout == "in\n"
    reached.put(authorized_keys=reached.mine)
    assert reached.ssh("true", key="later", more=("-oBatchMode=yes",)).returncode == 255


def test_files_come_and_go_by_scp_sftp_rsync_and_git(reached: Reached, tmp_path: Path) -> None:
    content = os.urandom(300_000)
    (tmp_path / "up").write_bytes(content)
    remote = ["scp", "-q", *reached.options()]
    for way in ([], ["-O"]):
        subprocess.run([*remote, *way, str(tmp_path / "up"), "user@127.0.0.1:copy"], check=True, timeout=PATIENCE_S)
        subprocess.run([*remote, *way, "user@127.0.0.1:copy", str(tmp_path / "down")], check=True, timeout=PATIENCE_S)
        assert (tmp_path / "down").read_bytes() == content
    shell = " ".join(["ssh", *reached.options()])
    sync = ["rsync", "-a", "-e", shell, f"{tmp_path}/up", "user@127.0.0.1:synced/"]
    subprocess.run(sync, check=True, timeout=PATIENCE_S)
    assert reached.ssh("stat -c %s synced/up").stdout == "300000\n"
    assert reached.ssh("git init -q -b main repo && cd repo && git -c user.name=a -c user.email=a@b commit -q "
                       "--allow-empty -m first").returncode == 0  # fmt: skip
    clone = ["git", "clone", "-q", "ssh://user@127.0.0.1/root/repo", str(tmp_path / "repo")]
    subprocess.run(clone, check=True, timeout=PATIENCE_S, env={**os.environ, "GIT_SSH_COMMAND": shell})
    assert (tmp_path / "repo" / ".git").is_dir()


def test_the_key_stands_in_no_argument_no_variable_and_no_log(reached: Reached) -> None:
    seen = reached.ssh("cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'").stdout
    assert "sshd" in seen and KEY not in seen
    assert KEY not in reached.run(reached.node.log(reached.pod))


def test_an_instance_that_was_told_to_end_begins_no_session(reached: Reached) -> None:
    reached.ssh("touch /run/mlportal/closed; mlportal-rekeyed")
    try:
        assert "being stopped" in reached.ssh("true").stderr
        assert "Permission denied" in reached.with_password(KEY, "true").stderr
    finally:
        opened = "rm /run/mlportal/closed; mlportal-rekeyed"
        assert reached.run(reached.node.exec(reached.pod, "sh", "-c", opened))[0] == 0
    assert reached.ssh("echo in").stdout == "in\n"


def test_jupyterlab_lives_when_sshd_dies_and_sshd_comes_back(reached: Reached) -> None:
    reached.ssh("pkill -f 'sshd.*listener'")
    assert reached.ask("GET", "/api/status", **with_key())[0] == 200
    reached.wait_for_ssh()


def test_without_a_host_key_there_is_no_ssh_and_it_says_why(cache: None, tmp_path: Path) -> None:
    made = Instance(tmp_path)
    try:
        made.launch()
        assert made.ask("GET", "/api/status", **with_key())[0] == 200
        log = made.run(made.node.log(made.pod))
        assert "SSH is not available: the instance was started before the portal knew SSH" in log
    finally:
        made.stop()
