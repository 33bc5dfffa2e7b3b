"""The servers under test, and what a test needs from one: requests, a namespace, a node that the test plays."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kubekit.credentials import Credentials, parse_kubeconfig
from localkube.runtime import NoNode
from tests.localkube.client import Answer, Client
from tests.localkube.conftest import Cluster as LocalkubeInThread

LOCALKUBE, KUBERNETES = "localkube", "kubernetes"
#: A real server's controllers share two cores with everything else; nothing waits this long where all is well.
PATIENCE_S = 90.0
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_LISTED = (Path(__file__).parents[2] / "docs" / "localkube.md").read_text()


class Api(Client):
    """`Client` for whatever a kubeconfig names, with a real server's patience."""

    def __init__(self, credentials: Credentials) -> None:
        self.address = credentials.server.removeprefix("https://")
        self.token = credentials.token
        self.context = credentials.ssl_context()

    def until(self, path: str, wanted: Any, *, seconds: float = PATIENCE_S) -> Any:
        return super().until(path, wanted, seconds=seconds)

    def gone(self, path: str, *, seconds: float = PATIENCE_S) -> None:
        super().gone(path, seconds=seconds)


@dataclass(frozen=True)
class Server:
    """One of the two."""

    kind: str
    kubeconfig: str
    api: Api

    def own(self, difference: str, *, localkube: Any, kubernetes: Any) -> Any:
        """This server's answer where the two differ; ``difference``: words of the line that docs/localkube.md has."""
        assert difference in _LISTED, f"docs/localkube.md does not list: {difference}"
        return localkube if self.kind == LOCALKUBE else kubernetes


@contextmanager
def serving(kind: str, folder: Path) -> Iterator[Server]:
    """The server of a kind: localkube in a thread of this process, or the one that KUBECONFIG names."""
    if kind == KUBERNETES:
        text = Path(os.environ["KUBECONFIG"]).read_text()
        yield Server(kind, text, Api(parse_kubeconfig(text)))
        return
    running = LocalkubeInThread(folder, NoNode(), watch_history=100)
    try:
        text = (folder / "kubeconfig").read_text()
        yield Server(kind, text, Api(parse_kubeconfig(text)))
    finally:
        running.stop()


@dataclass(frozen=True)
class Space:
    """A namespace: paths of its collections, by the plural."""

    name: str

    @property
    def path(self) -> str:
        return f"/api/v1/namespaces/{self.name}"

    def __truediv__(self, plural: str) -> str:
        """The path of a collection of the core group, or below it (``pods/p``)."""
        return f"{self.path}/{plural}"

    def of(self, group: str, plural: str) -> str:
        """The path of a collection of another group (``apps``, ``batch`` ...), version v1."""
        return f"/apis/{group}/v1/namespaces/{self.name}/{plural}"


def new_name(prefix: str = "conformance") -> str:
    """A name that nobody has."""
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


@contextmanager
def namespace(api: Api) -> Iterator[Space]:
    """A new namespace, ready for pods, and its removal."""
    space = Space(new_name())
    made = api.post("/api/v1/namespaces", {"metadata": {"name": space.name}})
    assert made.code == 201, made
    api.until(space / "serviceaccounts/default", lambda _: True)
    try:
        yield space
    finally:
        free(api, space)
        api.delete(space.path)


def free(api: Api, space: Space) -> None:
    """Take away what would keep a namespace: finalizers, and pods whose node nobody plays any more."""
    for plural in ("pods", "configmaps"):
        for item in api.get(space / plural).body.get("items", ()):
            path = space / f"{plural}/{item['metadata']['name']}"
            if item["metadata"].get("finalizers"):
                api.patch(path, {"metadata": {"finalizers": None}})
            if plural == "pods":
                api.delete(path, {"gracePeriodSeconds": 0})


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class PlayedNode:
    """A node with nobody behind it: pods that ask for it are sent there, and the test says what becomes of them."""

    def __init__(self, api: Api, *, cpu: str = "4", memory: str = "8Gi", **more: str) -> None:
        self._api = api
        self.name = new_name("conformance-node")
        self.path = f"/api/v1/nodes/{self.name}"
        amounts = {"cpu": cpu, "memory": memory, "pods": "110"} | more
        made = api.post("/api/v1/nodes", {
            "metadata": {"name": self.name, "labels": {"kubernetes.io/hostname": self.name}},
            "spec": {"taints": [{"key": "conformance", "value": self.name, "effect": "NoSchedule"}]},
            "status": {"capacity": amounts, "allocatable": amounts},
        })  # fmt: skip
        assert made.code == 201, made
        self.says("True")
        api.until(self.path, lambda node: [t["key"] for t in node["spec"]["taints"]] == ["conformance"])

    @property
    def placement(self) -> dict[str, Any]:
        """What a pod's spec needs to come here."""
        toleration = {"key": "conformance", "operator": "Equal", "value": self.name, "effect": "NoSchedule"}
        return {"nodeSelector": {"kubernetes.io/hostname": self.name}, "tolerations": [toleration]}

    def says(self, ready: str) -> None:
        """The node's word about itself: "True", "False", or "Unknown" for a node that fell silent."""
        condition = {"type": "Ready", "status": ready, "lastHeartbeatTime": now(), "lastTransitionTime": now()}
        answer = self._api.patch(f"{self.path}/status", {"status": {"conditions": [condition]}})
        assert answer.code == 200, answer

    def takes(self, space: Space, pod: str) -> dict[str, Any]:
        """Wait until a pod was given to this node."""
        found = self._api.until(space / f"pods/{pod}", lambda p: p["spec"].get("nodeName"))
        assert found["spec"]["nodeName"] == self.name
        return dict(found)

    def runs(self, space: Space, pod: str) -> dict[str, Any]:
        """The pod runs and is ready."""
        self.takes(space, pod)
        return self._write(space, pod, "Running", {"running": {"startedAt": now()}})

    def ends(self, space: Space, pod: str, exit_code: int) -> dict[str, Any]:
        """The pod's program ended."""
        self.takes(space, pod)
        ended = {"exitCode": exit_code, "reason": "Error" if exit_code else "Completed",
                 "startedAt": now(), "finishedAt": now()}  # fmt: skip
        return self._write(space, pod, "Failed" if exit_code else "Succeeded", {"terminated": ended})

    def confirms(self, space: Space, pod: str) -> None:
        """A pod that is being deleted has ended: its object may go."""
        self._api.until(space / f"pods/{pod}", lambda p: p["metadata"].get("deletionTimestamp"))
        answer = self._api.delete(space / f"pods/{pod}", {"gracePeriodSeconds": 0})
        assert answer.code == 200, answer

    def _write(self, space: Space, pod: str, phase: str, state: dict[str, Any]) -> dict[str, Any]:
        running = "running" in state
        ready = "True" if running else "False"
        container = {"name": "main", "image": "x", "imageID": "x", "ready": running, "restartCount": 0, "state": state}
        conditions = [{"type": kind, "status": ready, "lastTransitionTime": now()}
                      for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")]  # fmt: skip
        status = {"phase": phase, "conditions": conditions, "containerStatuses": [container], "podIP": "10.9.8.7",
                  "podIPs": [{"ip": "10.9.8.7"}], "startTime": now()}  # fmt: skip
        answer = self._api.patch(space / f"pods/{pod}/status", {"status": status})
        assert answer.code == 200, answer
        return dict(answer.body)

    def remove(self) -> None:
        self._api.delete(self.path)


def refusal(answer: Answer) -> tuple[int, str, str]:
    """What a refusal says: code, reason, message; and that it is a whole Status."""
    body = answer.body
    assert (body["kind"], body["apiVersion"], body["status"], body["code"]) == ("Status", "v1", "Failure", answer.code)
    return answer.code, body["reason"], body["message"]
