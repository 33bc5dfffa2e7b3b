"""Where a portal keeps what it owns: one folder, plus a folder for sockets when that one's path is too long."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The checkout: manage.py, templates/ and static/ are here."""

LONGEST_SOCKET_PATH = 100
"""Linux refuses a unix socket whose path is 108 bytes or longer (unix(7)); PostgreSQL and Redis need a few more."""

LONGEST_SOCKET_NAME = len("localkube-node.sock")


@dataclass(frozen=True, kw_only=True, slots=True)
class Home:
    """The data folder of one portal (PORTAL_HOME) and the places in it."""

    root: Path

    @property
    def run(self) -> Path:
        """Sockets and pid files. Outside the data folder only when socket paths would be too long there."""
        inside = self.root / "run"
        if len(os.fsencode(inside)) + 1 + LONGEST_SOCKET_NAME <= LONGEST_SOCKET_PATH:
            return inside
        digest = hashlib.sha256(os.fsencode(self.root)).hexdigest()[:12]
        base = os.environ.get("XDG_RUNTIME_DIR", "")
        if base and len(base) < 40 and Path(base).is_dir():
            return Path(base) / f"mlportal-{digest}"
        return Path("/tmp") / f"mlportal-{os.getuid()}-{digest}"  # noqa: S108 - made 0700 and its owner checked

    @property
    def postgres_data(self) -> Path:
        """PostgreSQL's cluster folder."""
        return self.root / "pg"

    @property
    def redis_data(self) -> Path:
        """Redis' working folder."""
        return self.root / "redis"

    @property
    def secrets(self) -> Path:
        """Files of mode 0600."""
        return self.root / "secrets"

    @property
    def secret_file(self) -> Path:
        """Django's key and the keys that encrypt columns."""
        return self.secrets / "portal.json"

    @property
    def ssh_host_key(self) -> Path:
        """The host key of the entrance by SSH."""
        return self.secrets / "ssh-host-key"

    @property
    def first_password(self) -> Path:
        """The generated password of `admin`, from its making until it has been shown."""
        return self.secrets / "first-password"

    @property
    def localkube(self) -> Path:
        """The embedded cluster's store, volumes, images and kubeconfig."""
        return self.root / "localkube"

    @property
    def static(self) -> Path:
        """What collectstatic gathers."""
        return self.root / "static"

    @property
    def log(self) -> Path:
        """One file per process."""
        return self.root / "log"

    @property
    def version_file(self) -> Path:
        """The layout version that wrote this folder."""
        return self.root / "version"

    @property
    def lock_file(self) -> Path:
        """Held by the one `up` that uses this folder."""
        return self.root / "lock"

    @property
    def processes_file(self) -> Path:
        """Who runs, noted for the case that the supervisor is killed."""
        return self.run / "processes.json"

    @property
    def redis_socket(self) -> Path:
        """Redis listens here, mode 0600."""
        return self.run / "redis.sock"

    @property
    def caddy_admin_socket(self) -> Path:
        """Caddy's admin interface, mode 0600."""
        return self.run / "caddy-admin.sock"

    @property
    def hosts(self) -> Path:
        """One socket for each instance's host, mode 0600: the cluster's to make, Caddy's to find."""
        return self.run / "hosts"

    @property
    def gateway_socket(self) -> Path:
        """The gateway's HTTP, mode 0600: Caddy's to reach, for hosts of instances that have no socket of their own."""
        return self.run / "gateway.sock"

    def ready_file(self, name: str) -> Path:
        """Written by a program of the portal once it works."""
        return self.run / f"{name}.ready"

    @property
    def web_socket(self) -> Path:
        """The portal's own HTTP, reached through Caddy alone."""
        return self.run / "web.sock"
