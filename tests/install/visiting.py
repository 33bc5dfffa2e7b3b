"""A person's OpenSSH on its way through the entrance of an installation to an instance."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.install.installing import ENTRANCE, Installation, kubectl
from tests.journeys.portal import wait_until

SECONDS = 240


@dataclass(frozen=True)
class Visitor:
    """Has a registered key and the configuration that the portal gives out; ``alias`` is the instance."""

    config: Path
    alias: str

    @classmethod
    def of(cls, portal: Installation, instance: str, folder: Path) -> Visitor:
        """Registers a key, and knows the entrance by the address of its Service."""
        key = folder / "key"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "visitor", "-f", str(key)], check=True)
        made = portal.api("POST", "ssh-keys", {"name": "visitor", "key": key.with_suffix(".pub").read_text()})
        assert made.status == 201, made.body
        way = portal.api("GET", f"instances/{instance}/ssh").json
        address = kubectl("-n", portal.namespace, "get", "service", "mlportal-ssh", "-o", "jsonpath={.spec.clusterIP}")
        known = folder / "known_hosts"
        known.write_text("\n".join(way["known_hosts"]).replace(ENTRANCE, address) + "\n")
        config = folder / "config"
        mine = f"Match all\n  IdentityFile {key}\n  IdentitiesOnly yes\n  IdentityAgent none\n  BatchMode yes\n"
        text = way["config"].replace(ENTRANCE, address).replace("~/.ssh/mlportal_known_hosts", str(known))
        config.write_text(f"{text}{mine}  ConnectTimeout {SECONDS}\n")
        found = cls(config, way["alias"])
        wait_until("way by SSH", lambda: found.ssh("true").returncode == 0, seconds=SECONDS, every=0.5)
        return found

    def ssh(self, *words: str, **given: Any) -> Any:
        """Run a command there."""
        return subprocess.run(self.command(*words), capture_output=True, timeout=SECONDS, check=False, **given)

    def command(self, *words: str) -> list[str]:
        """What a person types."""
        return ["ssh", "-F", str(self.config), self.alias, *words]
