"""The portal's own code at work on a real cluster, with the account and the role that an installation gives it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from apps.core import reconciling
from kubekit import client
from kubekit.credentials import Credentials, parse_kubeconfig
from tests.install.asking import Use, uses_of
from tests.install.installing import kubectl

ROLE = Path(__file__).parents[2] / "docker" / "kubernetes" / "base" / "permissions.yaml"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
MERGE = "application/merge-patch+json"


class Account:
    """A service account bound to a copy of the role, whose rules can be changed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rules: list[dict[str, Any]] = yaml.safe_load(ROLE.read_text())["rules"]
        self.admin = client.Cluster(parse_kubeconfig(Path(os.environ["KUBECONFIG"]).read_text()))
        metadata = {"name": name}
        subject = {"kind": "ServiceAccount", "name": "portal", "namespace": name}
        group = "rbac.authorization.k8s.io"
        for obj in (
            {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata},
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "portal", "namespace": name}},
            {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": metadata, "rules": self.rules},
            {
                "apiVersion": f"{group}/v1",
                "kind": "ClusterRoleBinding",
                "metadata": metadata,
                "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
                "subjects": [subject],
            },
        ):
            kubectl("apply", "-f", "-", given=json.dumps(obj))
        self.token = kubectl("-n", name, "create", "token", "portal", "--duration=2h").strip()

    def credentials(self) -> Credentials:
        """As the portal stores them."""
        own = self.admin.credentials
        return Credentials(server=own.server, ca_data=own.ca_data, token=self.token)

    def kubeconfig(self) -> str:
        """As an administrator pastes it."""
        document = yaml.safe_load(Path(os.environ["KUBECONFIG"]).read_text())
        chosen = next(c for c in document["contexts"] if c["name"] == document["current-context"])
        document["users"] = [{"name": chosen["context"]["user"], "user": {"token": self.token}}]
        return yaml.safe_dump(document)

    def take_away(self, use: Use) -> None:
        """All rules but this verb, in one write."""
        rules = [
            {**rule, "verbs": [verb for verb in rule["verbs"] if use not in uses_of([{**rule, "verbs": [verb]}])]}
            for rule in self.rules
        ]
        body = {"rules": [rule for rule in rules if rule["verbs"]]}
        self.admin._request("PATCH", f"{ROLES}/{self.name}", {}, body=body, content_type=MERGE)

    def remove(self) -> None:
        """Everything of it."""
        kubectl("delete", "clusterrolebinding,clusterrole", self.name, "--ignore-not-found")
        kubectl("delete", "namespace", self.name, "--ignore-not-found", "--wait=false")


def until(what: str, check: Callable[[], Any], *, seconds: float = 180) -> Any:
    end = time.monotonic() + seconds
    while not (found := check()):
        assert time.monotonic() < end, f"after {seconds:.0f} s still not {what}"
        time.sleep(0.2)
    return found


def look(kind: str, obj: Any, *states: Any) -> None:
    """Rounds of the reconciler, as a worker does them, until the row is in one of the states."""

    def there() -> bool:
        reconciling.reconcile_one(kind, obj.pk)
        obj.refresh_from_db()
        return obj.state in states

    until(f"{kind} {obj} in {states}, but {obj.state}: {obj.reason}", there)
