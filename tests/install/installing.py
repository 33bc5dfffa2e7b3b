"""The portal in a real cluster, by the same manifests that people use: an overlay on `docker/kubernetes/trial`.

`KUBECONFIG` names the cluster. `CLUSTER_INGRESS` is where its ingress controller and its Gateways answer from this
machine (default http://127.0.0.1:80). The images of `docker/build` must be on its nodes.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import yaml
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from tests.journeys.portal import ROOT, Answer, fetch, wait_until

INGRESS = os.environ.get("CLUSTER_INGRESS", "http://127.0.0.1:80")
PORT = urlsplit(INGRESS).port or 80
HOST = "portal.localhost"
ORIGIN = f"http://{HOST}:{PORT}"
PASSWORD = "the-administrators-password"
PROGRAMS = ("web", "worker", "control", "sshgateway")
#: What the entrance by SSH is called; nothing resolves it, so whoever goes there puts an address in its place.
ENTRANCE = "entrance.test"


def kubectl(*words: str, given: str | None = None, check: bool = True) -> str:
    """Run kubectl; what it printed."""
    done = subprocess.run(["kubectl", *words], input=given, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 or not check, f"kubectl {' '.join(words)}: {done.stderr}"
    return done.stdout


def objects(*words: str) -> list[dict[str, Any]]:
    """What `kubectl get` lists."""
    found: list[dict[str, Any]] = json.loads(kubectl("get", *words, "-o", "json"))["items"]
    return found


@dataclass
class Installation:
    """One installation in a namespace of its own; `folder` is a copy of the manifests with an overlay `here`."""

    namespace: str
    folder: Path
    _token: str = field(default="", repr=False)

    def install(self) -> None:
        """Apply the overlay and wait until every program is ready."""
        shutil.copytree(ROOT / "docker" / "kubernetes", self.folder)
        self._secrets()
        overlay = self.folder / "here"
        overlay.mkdir()
        (self.folder / "ssh-host-key").rename(overlay / "ssh-host-key")
        (overlay / "kustomization.yaml").write_text(yaml.safe_dump(self._overlay()))
        (overlay / "more.yaml").write_text(yaml.safe_dump(self._reach()))
        kubectl("apply", "--server-side", "-f", "-", given=kubectl("kustomize", str(overlay)))
        self.wait()

    def wait(self) -> None:
        """Until the migration is done and every program is ready."""
        try:
            for kind, name, state in (
                ("job", "mlportal-migrate", "condition=complete"),
                *(("deployment", f"mlportal-{name}", "condition=available") for name in PROGRAMS),
            ):
                kubectl("-n", self.namespace, "wait", kind, name, f"--for={state}", "--timeout=240s")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.story()}") from error

    def remove(self) -> None:
        """Everything that `install` made, and the namespaces of its queues."""
        install = f"mlportal.io/install={self.install_id()}"
        kubectl("delete", "clusterrolebinding,clusterrole", "mlportal", "--ignore-not-found")
        kubectl("delete", "namespace", self.namespace, "--ignore-not-found", "--wait=false")
        if not install.endswith("="):
            kubectl("delete", "namespace", "-l", install, "--ignore-not-found", "--wait=false")

    def install_id(self) -> str:
        """The word that labels what this portal makes; empty when it has made nothing yet."""
        query = "from apps.clusters.installation import install_id; print('id', install_id())"
        said = self.run("web", "python", "manage.py", "shell", "-v", "0", "-c", query, check=False)
        found = re.search(r"^id (\S+)$", said, re.MULTILINE)
        return found[1] if found else ""

    def run(self, program: str, *words: str, check: bool = True) -> str:
        """A command in a program's pod."""
        return kubectl("-n", self.namespace, "exec", f"deployment/mlportal-{program}", "--", *words, check=check)

    def story(self) -> str:
        """What a person would look at: pods, events, the ends of logs."""
        lines = [kubectl("-n", self.namespace, "get", "pods,jobs,events", check=False)]
        for name in ("migrate", *PROGRAMS, "postgres", "redis"):
            label = f"app.kubernetes.io/component={name}"
            words = ("-n", self.namespace, "logs", "-l", label, "--all-containers", "--tail=30")
            lines.append(f"--- {name}\n{kubectl(*words, check=False)}")
        return "\n".join(lines)[-15000:]

    def _secrets(self) -> None:
        trial = self.folder / "trial"
        for name in ("secret.env", "portal.json", "postgres-password", "redis-password"):
            (trial / name).unlink(missing_ok=True)  # a person's own, copied along
        subprocess.run([str(trial / "secrets")], check=True, capture_output=True)
        host_key = self.folder / "ssh-host-key"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(host_key)], check=True)
        file = trial / "secret.env"
        file.write_text(
            re.sub(r"(?m)^PORTAL_ADMIN_PASSWORD=.*$", f"PORTAL_ADMIN_PASSWORD={PASSWORD}", file.read_text())
        )

    def _overlay(self) -> dict[str, Any]:
        small = [
            {"op": "replace", "path": "/spec/template/spec/containers/0/resources/requests/cpu", "value": "50m"},
            {"op": "replace", "path": "/spec/template/spec/initContainers/0/resources/requests/cpu", "value": "20m"},
        ]
        return {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "namespace": self.namespace,
            "resources": ["../trial", "more.yaml"],
            "components": ["../ssh"],
            "configMapGenerator": [
                {
                    "name": "mlportal",
                    "behavior": "merge",
                    "literals": [
                        f"PORTAL_ORIGIN={ORIGIN}",
                        "PORTAL_APPS_DOMAIN=apps.localhost",
                        f"PORTAL_SSH_PUBLIC={ENTRANCE}:22",
                    ],
                }
            ],
            "secretGenerator": [{"name": "mlportal-keys", "behavior": "merge", "files": ["ssh-host-key"]}],
            "patches": [
                {"target": {"kind": "Deployment", "name": f"mlportal-{name}"}, "patch": yaml.safe_dump(small)}
                for name in PROGRAMS
            ],
        }

    def _reach(self) -> dict[str, Any]:
        """What an administrator adds where API server and DNS listen on other ports than the usual ones."""
        slices = objects("endpointslices", "-A")
        ports = {
            (port.get("protocol", "TCP"), port["port"])
            for one in slices
            for port in one.get("ports") or []
            if (one["metadata"]["namespace"], one["metadata"]["name"]) == ("default", "kubernetes")
            or (one["metadata"]["namespace"] == "kube-system" and "dns" in one["metadata"]["name"])
        }
        return {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": "mlportal-this-cluster"},
            "spec": {
                "podSelector": {},
                "policyTypes": ["Egress"],
                "egress": [{"ports": [{"protocol": protocol, "port": port} for protocol, port in sorted(ports)]}],
            },
        }

    # -- as people and programs use it ---------------------------------------------------------------------------

    def fetch(
        self, path: str, *, method: str = "GET", headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> Answer:
        """A request to the portal through the cluster's entrance."""
        sent = {"Host": f"{HOST}:{PORT}", **(headers or {})}
        answer = fetch(f"{INGRESS}{path}", method=method, headers=sent, body=body)
        return Answer(answer.status, {name.title(): value for name, value in answer.headers.items()}, answer.body)

    def at(self, host: str, path: str, *, key: str = "", method: str = "GET", body: bytes | None = None) -> Answer:
        """A request to an instance's host through the same entrance."""
        headers = {"Host": host, **({"Authorization": f"token {key}"} if key else {})}
        return fetch(f"{INGRESS}{path}", method=method, headers=headers, body=body)

    def signals(self, cookie: str) -> AbstractContextManager[ClientConnection]:
        """The web socket of the portal's pages, opened as a browser does, for the length of a block."""
        link = socket.create_connection((urlsplit(INGRESS).hostname, PORT), timeout=30)
        return connect(
            f"ws://{HOST}:{PORT}/live/", sock=link, origin=Origin(ORIGIN), additional_headers={"Cookie": cookie}
        )

    def api(self, method: str, path: str, body: Any = None) -> Answer:
        """A REST call as the administrator."""
        headers = {"Authorization": f"Bearer {self.token()}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        return self.fetch(f"/api/v1/{path}", method=method, headers=headers, body=data)

    def token(self) -> str:
        """Made once, as a script makes one."""
        if not self._token:
            basic = base64.b64encode(f"admin:{PASSWORD}".encode()).decode()
            headers = {"Authorization": f"Basic {basic}", "Content-Type": "application/json"}
            answer = self.fetch("/api/v1/tokens", method="POST", headers=headers, body=b'{"name": "test"}')
            assert answer.status == 201, answer.body
            self._token = answer.json["token"]
        return self._token

    def sign_in(self) -> str:
        """The form that people fill in; the session's cookie."""
        page = self.fetch("/sign-in")
        assert page.status == 200, page.body[:500]
        csrf = re.search(rb'name="csrfmiddlewaretoken" value="([^"]+)"', page.body)
        assert csrf is not None
        jar = SimpleCookie(page.headers["Set-Cookie"])
        form = {"username": "admin", "password": PASSWORD, "csrfmiddlewaretoken": csrf[1].decode()}
        headers = {
            "Host": f"{HOST}:{PORT}",
            "Cookie": "; ".join(f"{one.key}={one.value}" for one in jar.values()),
            "Origin": ORIGIN,
            "Content-Type": "application/x-www-form-urlencoded",
        }
        parts = urlsplit(INGRESS)
        with closing(HTTPConnection(parts.hostname or "", PORT, timeout=30)) as link:
            link.request("POST", "/sign-in", body=urlencode(form), headers=headers)
            answer = link.getresponse()
            body = answer.read()
        assert answer.status == 302, body[:500]
        for header in answer.headers.get_all("Set-Cookie") or []:
            jar.load(header)
        return "; ".join(f"{one.key}={one.value}" for one in jar.values())

    def launch(self, name: str) -> str:
        """A small instance that runs; its id."""
        wanted = {"name": name, "image": "jupyter", "size": "small", "queue": "default"}
        made = self.api("POST", "instances", wanted)
        assert made.status == 201, made.body
        self.until(made.json["id"], "running")
        return str(made.json["id"])

    def until(self, instance: str, state: str, *, seconds: float = 240) -> dict[str, Any]:
        """Wait for an instance's state; the instance."""
        last: dict[str, Any] = {}

        def there() -> bool:
            answer = self.api("GET", f"instances/{instance}")
            last.update(answer.json)
            assert last.get("state") != "failed", last
            return last.get("state") == state

        try:
            wait_until(f"instance that is {state}", there, seconds=seconds, every=0.5)
        except AssertionError as error:
            raise AssertionError(f"{error}: {last.get('state')} {last.get('reason')}\n{self.story()}") from error
        return last


def gateway(namespace: str, *, name: str = "gateway", namespaces: dict[str, Any] | None = None) -> None:
    """A Gateway that answers where the Ingress controller does; it lets in ``namespaces``, without them its own."""
    classes = objects("gatewayclasses")
    assert classes, "this cluster has no GatewayClass: install a Gateway API controller"
    allowed = {"namespaces": namespaces or {"from": "Same"}}
    made = {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "gatewayClassName": classes[0]["metadata"]["name"],
            "listeners": [{"name": "web", "protocol": "HTTP", "port": PORT, "allowedRoutes": allowed}],
        },
    }
    kubectl("apply", "-f", "-", given=json.dumps(made))


def patient(probe: Any, *, seconds: float = 60) -> Any:
    """Poll until true: routes reach the proxy a moment after the cluster has them."""
    end = time.monotonic() + seconds
    while not (found := probe()) and time.monotonic() < end:
        time.sleep(0.3)
    return found
