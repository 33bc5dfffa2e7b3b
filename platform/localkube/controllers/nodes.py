"""Nodes that stopped reporting: taints, pods marked not ready, and their eviction after the toleration time.

The node of this process never goes silent; tests do it to Node objects with nobody behind them.
"""

from __future__ import annotations

from collections.abc import Hashable
from datetime import UTC, datetime
from typing import Final

from localkube import events, pods
from localkube.controllers.base import Controller
from localkube.status import Object
from localkube.store import copy, now
from localkube.times import parse_time

_NOT_READY: Final = "node.kubernetes.io/not-ready"
_UNREACHABLE: Final = "node.kubernetes.io/unreachable"
_UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"
_ORPHANS: Final = object()
_QUARANTINE_S: Final = 40.0
"""How long a node may be gone before its pods go, as the real pod collector waits."""
_OURS: Final = (_NOT_READY, _UNREACHABLE, _UNSCHEDULABLE)


class NodeController(Controller):
    """Turns the Ready condition of a node into taints, and taints into evictions."""

    name = "node-controller"

    def watch(self) -> None:
        self.follow("nodes", self._on_node)
        self.enqueue_after(_ORPHANS, _QUARANTINE_S)

    def _on_node(self, event_type: str, node: Object) -> Hashable | None:
        if event_type == "DELETED":
            self.enqueue_after(_ORPHANS, _QUARANTINE_S)
            return None
        return str(node["metadata"]["name"])

    def reconcile(self, key: Hashable) -> None:
        if key is _ORPHANS:
            self._collect()
            return
        node = self.store.peek("nodes", None, str(key))
        if node is None:
            return
        ready = pods.condition(node, "Ready")
        state = ready["status"] if ready else ""
        self._taint(node, state)
        if ready is None or state == "True":
            return
        taint = _UNREACHABLE if state == "Unknown" else _NOT_READY
        since = parse_time(ready.get("lastTransitionTime") or now())
        soonest: float | None = None
        for pod in tuple(self.store.iterate("pods")):
            if pod["spec"].get("nodeName") != key or pods.ended(pod):
                continue
            self._mark(pod)
            limit = _tolerated_s(pod, taint)
            if limit is None or pod["metadata"].get("deletionTimestamp"):
                continue
            left = limit - (datetime.now(UTC) - since).total_seconds()
            if left <= 0:
                self._evict(pod)
            else:
                soonest = left if soonest is None else min(soonest, left)
        if soonest is not None:
            self.enqueue_after(key, soonest)

    def _collect(self) -> None:
        """Remove pods whose node was deleted: nobody is left to end them."""
        names = {node["metadata"]["name"] for node in self.store.iterate("nodes")}
        for pod in tuple(self.store.iterate("pods")):
            metadata, node = pod["metadata"], pod["spec"].get("nodeName")
            if not node or node in names:
                continue
            text = "PodGC: node no longer exists"
            if not pods.ended(pod):
                current = self.store.get("pods", metadata["namespace"], metadata["name"])
                current["status"]["phase"] = "Failed"
                pods.set_condition(
                    current, "DisruptionTarget", "True", reason="DeletionByPodGC", message=text, at=now()
                )
                self.store.update("pods", current, subresource="status")
            self.store.delete("pods", metadata["namespace"], metadata["name"], uid=metadata["uid"], grace_period_s=0)

    def _taint(self, node: Object, state: str) -> None:
        taints = [t for t in node.get("spec", {}).get("taints") or () if t["key"] not in _OURS]
        at = {t["key"]: t.get("timeAdded") for t in node.get("spec", {}).get("taints") or ()}
        if state not in ("", "True"):
            name = _UNREACHABLE if state == "Unknown" else _NOT_READY
            taints += [
                {"key": name, "effect": e, "timeAdded": at.get(name) or now()} for e in ("NoSchedule", "NoExecute")
            ]
        if node.get("spec", {}).get("unschedulable"):
            taints.append({"key": _UNSCHEDULABLE, "effect": "NoSchedule", "timeAdded": at.get(_UNSCHEDULABLE) or now()})
        if taints == (node.get("spec", {}).get("taints") or []):
            return
        changed = copy(node)
        changed.setdefault("spec", {})["taints"] = taints
        if not taints:
            del changed["spec"]["taints"]
        self.store.update("nodes", changed)

    def _mark(self, pod: Object) -> None:
        metadata = pod["metadata"]
        if not pods.is_ready(pod):
            return
        current = self.store.get("pods", metadata["namespace"], metadata["name"])
        pods.set_condition(current, "Ready", "False", at=now())
        self.store.update("pods", current, subresource="status")
        events.record(
            self.store,
            pod,
            reason="NodeNotReady",
            message="Node is not ready",
            component="node-controller",
            type_="Warning",
        )

    def _evict(self, pod: Object) -> None:
        metadata = pod["metadata"]
        text = f"Marking for deletion Pod {metadata['namespace']}/{metadata['name']}"
        events.record(
            self.store, pod, reason="TaintManagerEviction", message=text, component="taint-eviction-controller"
        )
        self.store.delete("pods", metadata["namespace"], metadata["name"], uid=metadata["uid"])


def _tolerated_s(pod: Object, taint: str) -> float | None:
    """Seconds a pod stays on a node with this NoExecute taint; None for ever, 0 when it does not tolerate it."""
    matching = [
        t
        for t in pod["spec"].get("tolerations") or ()
        if t.get("key") in (taint, None, "") and t.get("effect") in ("NoExecute", None, "")
    ]
    if not matching:
        return 0.0
    limits = [float(t["tolerationSeconds"]) for t in matching if t.get("tolerationSeconds") is not None]
    return min(limits) if limits else None
