"""Nodes that fell silent or were deleted: what becomes of their pods.

The node of this process never goes silent; tests do it to Node objects with nobody behind them.
"""

from __future__ import annotations

from collections.abc import Hashable

from localkube import events, pods
from localkube.controllers.base import Controller
from localkube.status import Object
from localkube.store import now

_GONE = "PodGC: node no longer exists"


class NodeController(Controller):
    """Marks the pods of a node that is not ready, and removes those of a node that is gone: nobody else ends them."""

    name = "node-controller"

    def watch(self) -> None:
        self.follow("nodes", lambda _event_type, node: str(node["metadata"]["name"]))
        for pod in self.store.iterate("pods"):
            if name := pod["spec"].get("nodeName"):
                self.enqueue(name)

    def reconcile(self, key: Hashable) -> None:
        node = self.store.peek("nodes", None, str(key))
        lost = [pod for pod in self.store.iterate("pods") if pod["spec"].get("nodeName") == key]
        if node is None:
            for pod in lost:
                self._collect(pod)
        elif pods.condition(node, "Ready") and not pods.is_ready(node):
            for pod in lost:
                self._mark(pod)

    def _collect(self, pod: Object) -> None:
        metadata = pod["metadata"]
        if not pods.ended(pod):
            current = self.store.get("pods", metadata["namespace"], metadata["name"])
            current["status"]["phase"] = "Failed"
            pods.set_condition(current, "DisruptionTarget", "True", reason="DeletionByPodGC", message=_GONE, at=now())
            self.store.update("pods", current, subresource="status")
        self.store.delete("pods", metadata["namespace"], metadata["name"], uid=metadata["uid"], grace_period_s=0)

    def _mark(self, pod: Object) -> None:
        if not pods.is_ready(pod) or pods.ended(pod):
            return
        current = self.store.get("pods", pod["metadata"]["namespace"], pod["metadata"]["name"])
        pods.set_condition(current, "Ready", "False", at=now())
        self.store.update("pods", current, subresource="status")
        text = "Node is not ready"
        events.record(self.store, pod, reason="NodeNotReady", message=text, component=self.name, type_="Warning")
