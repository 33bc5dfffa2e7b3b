"""The scheduler: binds each pending pod to the emptiest node that fits it. It never preempts."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from localkube import events, pods
from localkube.controllers import fitting
from localkube.controllers.base import Controller
from localkube.status import Object
from localkube.store import copy, now

_NAME: Final = "default-scheduler"
_RETRY: Final = "retry"
_RETRY_AFTER_S: Final = 0.05
"""Room that comes free is shared out once for a burst of changes, not once for each."""


class Scheduler(Controller):
    """Wakes for a new pod, and for all waiting ones when a node or a volume changes or a pod gives room back."""

    name = "scheduler"

    def watch(self) -> None:
        self._requests: dict[str, pods.Amounts] = {}
        self.follow("pods", self._on_pod)
        for resource in ("nodes", "persistentvolumeclaims"):
            self._unsubscribe.append(self.store.subscribe(resource, self._on_change))

    def _on_pod(self, event_type: str, pod: Object) -> Hashable | None:
        if event_type == "DELETED":
            self._requests.pop(pod["metadata"]["uid"], None)
        if event_type == "DELETED" or pods.ended(pod):
            self._retry_soon()
            return None
        if pod["spec"].get("nodeName") or event_type == "MODIFIED":
            return None
        return pod["metadata"]["namespace"], pod["metadata"]["name"]

    def _on_change(self, _event_type: str, obj: Object) -> None:
        if obj["kind"] != "Node" or not self._is_heartbeat(obj):
            self._retry_soon()

    def _is_heartbeat(self, node: Object) -> bool:
        """Whether nothing of a node changed that scheduling reads."""
        relevant = (node["metadata"].get("labels"), node.get("spec"), node.get("status", {}).get("allocatable"))
        name = node["metadata"]["name"]
        same = self._seen_nodes.get(name) == relevant
        self._seen_nodes[name] = relevant
        return same

    def start(self) -> None:
        self._seen_nodes: dict[str, tuple[Object | None, Object | None, Object | None]] = {}
        super().start()

    def _retry_soon(self) -> None:
        if _RETRY not in self._timers:
            self.enqueue_after(_RETRY, _RETRY_AFTER_S)

    def reconcile(self, key: Hashable) -> None:
        if key == _RETRY:
            waiting = [p for p in self.store.iterate("pods") if _waits(p)]
        else:
            assert isinstance(key, tuple)
            pod = self.store.peek("pods", *key)
            waiting = [pod] if pod and _waits(pod) else []
        if not waiting:
            return
        rooms = self._rooms()
        waiting.sort(key=lambda p: (-p["spec"].get("priority", 0), p["metadata"]["creationTimestamp"]))
        for pod in waiting:
            self._place(pod, rooms)

    def _rooms(self) -> list[fitting.NodeRoom]:
        by_name = {node["metadata"]["name"]: fitting.NodeRoom(node) for node in self.store.iterate("nodes")}
        for pod in self.store.iterate("pods"):
            room = by_name.get(pod["spec"].get("nodeName", ""))
            if room and not pods.ended(pod):
                room.take(self._requests_of(pod))
        return list(by_name.values())

    def _requests_of(self, pod: Object) -> pods.Amounts:
        uid = pod["metadata"]["uid"]
        if uid not in self._requests:
            self._requests[uid] = fitting.requests_of(pod)
        return self._requests[uid]

    def _place(self, pod: Object, rooms: list[fitting.NodeRoom]) -> None:
        requests = self._requests_of(pod)
        if text := self._volume_problem(pod):
            # The real scheduler ends this sentence with a stray "not found".
            self._unschedulable(pod, f"0/{len(rooms)} nodes are available: {text}. not found")
            return
        fits = [room for room in rooms if not fitting.reasons(pod, room, requests)]
        if not fits:
            self._unschedulable(pod, fitting.explain(pod, rooms, requests))
            return
        best = max(fits, key=lambda room: (room.free_share(), room.name))
        best.take(requests)
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        self._bind(pod, best.name)
        text = f"Successfully assigned {namespace}/{name} to {best.name}"
        self._record(pod, "Normal", "Scheduled", text)

    def _bind(self, pod: Object, node: str) -> None:
        bound = copy(self.store.stored("pods", pod["metadata"]["namespace"], pod["metadata"]["name"]))
        bound["spec"]["nodeName"] = node
        pods.set_condition(bound, "PodScheduled", "True", at=now())
        self.store.replace(self.store.resources["pods"], pod, bound)

    def _volume_problem(self, pod: Object) -> str | None:
        for volume in pod["spec"].get("volumes") or ():
            claim_name = (volume.get("persistentVolumeClaim") or {}).get("claimName")
            if not claim_name:
                continue
            claim = self.store.peek("persistentvolumeclaims", pod["metadata"]["namespace"], claim_name)
            if claim is None:
                return f'persistentvolumeclaim "{claim_name}" not found'
            if claim["metadata"].get("deletionTimestamp"):
                return f'persistentvolumeclaim "{claim_name}" is being deleted'
            if claim.get("status", {}).get("phase") != "Bound":
                return "pod has unbound immediate PersistentVolumeClaims"
        return None

    def _unschedulable(self, pod: Object, text: str) -> None:
        metadata = pod["metadata"]
        current = self.store.get("pods", metadata["namespace"], metadata["name"])
        changed = pods.set_condition(current, "PodScheduled", "False", reason="Unschedulable", message=text, at=now())
        if changed:
            self.store.update("pods", current, subresource="status")
            self._record(pod, "Warning", "FailedScheduling", text)

    def _record(self, pod: Object, type_: str, reason: str, text: str) -> None:
        events.record(self.store, pod, reason=reason, message=text, component=_NAME, type_=type_)


def _waits(pod: Object) -> bool:
    return (
        not pod["spec"].get("nodeName")
        and not pods.ended(pod)
        and not pod["metadata"].get("deletionTimestamp")
        and pod["spec"].get("schedulerName", _NAME) == _NAME
    )
