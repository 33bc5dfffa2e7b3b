"""Somebody's own machine: keys, a configuration made by portalctl, and the programs of OpenSSH."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.journeys.portal import ROOT, Portal, wait_until

PATIENCE_S = 120


class Desk:
    """A person's own machine: keys, configuration, and the programs of OpenSSH."""

    def __init__(self, portal: Portal, folder: Path) -> None:
        self.portal, self.folder = portal, folder
        self.conf = folder / ".ssh" / "mlportal.conf"
        (folder / ".ssh").mkdir(mode=0o700)
        self.make_key("mine")
        self.make_key("stranger")

    def make_key(self, name: str) -> Path:
        path = self.folder / name
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(path)], check=True)
        return path.with_suffix(".pub")

    def portalctl(self, *words: str) -> str:
        environ = {
            **os.environ, "HOME": str(self.folder), "PORTAL_URL": self.portal.url, "PORTAL_TOKEN": self.portal.token(),
            "PYTHONPATH": f"{ROOT / 'platform'}",
        }  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-m", "portalctl", *words],
            env=environ, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def configure(self) -> None:
        """``portalctl ssh-config --write``; OpenSSH itself takes ~ from the password file, so paths are made whole."""
        self.portalctl("ssh-config", "--write")
        text = self.conf.read_text().replace("~/.ssh", str(self.folder / ".ssh"))
        for key in ("mine", "stranger"):
            own = f"Match all\n  IdentityFile {self.folder / key}\n  IdentitiesOnly yes\n  IdentityAgent none\n"
            own += f"  BatchMode yes\n  ConnectTimeout {PATIENCE_S}\n"
            (self.folder / f"as-{key}").write_text(text + own)

    def options(self, key: str = "mine") -> list[str]:
        return ["-F", str(self.folder / f"as-{key}")]

    def ssh(self, *words: str, key: str = "mine", **given: Any) -> Any:
        command = ["ssh", *self.options(key), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, **given)

    def wait_for(self, name: str) -> None:
        """sshd comes up beside JupyterLab, and may be a moment later."""
        wait_until(f"ssh to {name}", lambda: self.ssh(name, "true").returncode == 0, seconds=PATIENCE_S, every=0.5)
