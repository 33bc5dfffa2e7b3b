"""An account in a real cluster with exactly the permissions of a list, as an administrator makes one for the portal."""

from __future__ import annotations

import time
from base64 import b64decode
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import yaml

from kubekit.client import Cluster
from kubekit.errors import NotFound
from kubekit.permissions import rules

RBAC = "/apis/rbac.authorization.k8s.io/v1"


@dataclass
class Account:
    """Use as a context manager. ``server`` is the administrator's client; `kubeconfig` is what the account pastes."""

    server: Cluster
    name: str = field(default_factory=lambda: f"portal-{uuid4().hex[:8]}")
    kubeconfig: str = ""

    def __enter__(self) -> Account:
        self._send("POST", "/api/v1/namespaces", {"kind": "Namespace", "metadata": {"name": self.name}})
        place = f"/api/v1/namespaces/{self.name}"
        self._send("POST", f"{place}/serviceaccounts", {"kind": "ServiceAccount", "metadata": {"name": "portal"}})
        self._send("POST", f"{RBAC}/clusterroles", self._role(rules()))
        subject = {"kind": "ServiceAccount", "name": "portal", "namespace": self.name}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": self.name}
        binding = {
            "kind": "ClusterRoleBinding",
            "metadata": {"name": self.name},
            "subjects": [subject],
            "roleRef": role,
        }
        self._send("POST", f"{RBAC}/clusterrolebindings", binding)
        secret = {
            "kind": "Secret",
            "type": "kubernetes.io/service-account-token",
            "metadata": {"name": "portal", "annotations": {"kubernetes.io/service-account.name": "portal"}},
        }
        self._send("POST", f"{place}/secrets", secret)
        self.kubeconfig = self._kubeconfig()
        return self

    def __exit__(self, *_: object) -> None:
        for path in (f"{RBAC}/clusterrolebindings/", f"{RBAC}/clusterroles/", "/api/v1/namespaces/"):
            with suppress(NotFound):
                self._send("DELETE", f"{path}{self.name}", {})

    def without(self, verb: str, resource: str) -> None:
        """Take one verb away (``create``, ``statefulsets``)."""
        wanted = [
            {**rule, "verbs": [one for one in rule["verbs"] if one != verb]} if resource in rule["resources"] else rule
            for rule in rules()
        ]
        self._put(wanted)

    def restore(self) -> None:
        """Everything that the list names."""
        self._put(rules())

    def _put(self, wanted: list[dict[str, Any]]) -> None:
        self._send("PUT", f"{RBAC}/clusterroles/{self.name}", self._role(wanted))

    def _role(self, wanted: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "kind": "ClusterRole",
            "metadata": {"name": self.name},
            "rules": [rule for rule in wanted if rule["verbs"]],
        }

    def _kubeconfig(self) -> str:
        end = time.monotonic() + 60
        while not (data := self.server.get("Secret", self.name, "portal").get("data") or {}).get("token"):
            assert time.monotonic() < end, "the account got no token"
            time.sleep(0.2)
        cluster = {"server": self.server.credentials.server, "certificate-authority-data": data["ca.crt"]}
        user = {"token": b64decode(data["token"]).decode()}
        return yaml.safe_dump({
            "kind": "Config",
            "current-context": "c",
            "clusters": [{"name": "k", "cluster": cluster}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        })  # fmt: skip

    def _send(self, method: str, path: str, body: dict[str, Any]) -> None:
        version = "rbac.authorization.k8s.io/v1" if path.startswith(RBAC) else "v1"
        self.server._json(method, path, {}, body={"apiVersion": version, **body} if body else {})
