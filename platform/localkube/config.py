"""What one localkube process is told at its start."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass, field
from pathlib import Path


class ConfigError(ValueError):
    """A setting that localkube refuses, with the sentence to show."""


def _machine_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@dataclass(frozen=True)
class Config:
    """Settings of the server and its one real node. Sizes are bytes, CPU is cores, durations end in `_s`."""

    home: Path
    listen: str = "127.0.0.1:6443"
    caddy_admin: Path | None = None
    hosts: Path | None = None
    """Caddy's folder, in which it looks for a socket named like the host that is asked for."""
    node_name: str = "localkube"
    cpu: int = field(default_factory=lambda: os.cpu_count() or 1)
    memory: int = field(default_factory=_machine_memory)
    max_pods: int = 110
    fake_gpus: int = 0
    images: Path | None = None
    """The table that resolves image references (docker/images.toml); None leaves every image unknown."""
    event_ttl_s: float = 3600.0
    watch_history: int = 3_000
    """Changes kept for watches that resume; a client that missed more lists again."""

    @property
    def host(self) -> str:
        return self.listen.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        return int(self.listen.rpartition(":")[2])

    def check(self) -> None:
        """Raise ConfigError for an address other than loopback."""
        try:
            loopback = ipaddress.ip_address(self.host).is_loopback
            port_ok = 0 <= self.port <= 65535
        except ValueError:
            raise ConfigError(f"--listen {self.listen}: expected ADDRESS:PORT, such as 127.0.0.1:6443") from None
        if not loopback:
            raise ConfigError(
                f"--listen {self.listen}: localkube is a development tool and listens on loopback only; "
                "use 127.0.0.1, or a real cluster for anything reachable from outside"
            )
        if not port_ok:
            raise ConfigError(f"--listen {self.listen}: the port must be 0 to 65535")
