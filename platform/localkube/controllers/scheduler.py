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
        self.follow("pods", self._on_pod)
        for resource in ("nodes", "persistentvolumeclaims"):
            self._unsubscribe.append(self.store.subscribe(resource, lambda _event, _obj: self._retry_soon()))

    def _on_pod(self, event_type: str, pod: Object) -> Hashable | None:
        if event_type == "DELETED" or pods.ended(pod):
            self._retry_soon()
        elif not pod["spec"].get("nodeName") and event_type == "ADDED":
            return pod["metadata"]["namespace"], pod["metadata"]["name"]
        return None

    def _retry_soon(self) -> None:
        if _RETRY not in self._timers:
            self.enqueue_after(_RETRY, _RETRY_AFTER_S)

    def reconcile(self, key: Hashable) -> None:
        if key == _RETRY:
            waiting = [pod for pod in self.store.iterate("pods") if _waits(pod)]
        else:
            assert isinstance(key, tuple)
            found = self.store.peek("pods", *key)
            waiting = [found] if found and _waits(found) else []
        if not waiting:
            return
        rooms = {node["metadata"]["name"]: fitting.NodeRoom(node) for node in self.store.iterate("nodes")}
        for pod in self.store.iterate("pods"):
            room = rooms.get(pod["spec"].get("nodeName", ""))
            if room and not pods.ended(pod):
                room.take(fitting.requests_of(pod))
        waiting.sort(key=lambda pod: (-pod["spec"].get("priority", 0), pod["metadata"]["creationTimestamp"]))
        for pod in waiting:
            self._place(pod, list(rooms.values()))

    def _place(self, pod: Object, rooms: list[fitting.NodeRoom]) -> None:
        requests = fitting.requests_of(pod)
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
        bound = copy(pod)
        bound["spec"]["nodeName"] = best.name
        pods.set_condition(bound, "PodScheduled", "True", at=now())
        self.store.replace(self.store.resources["pods"], pod, bound)
        text = f"Successfully assigned {pod['metadata']['namespace']}/{pod['metadata']['name']} to {best.name}"
        events.record(self.store, pod, reason="Scheduled", message=text, component=_NAME)

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
        changed = copy(pod)
        if pods.set_condition(changed, "PodScheduled", "False", reason="Unschedulable", message=text, at=now()):
            self.store.update("pods", changed, subresource="status")
            events.record(self.store, pod, reason="FailedScheduling", message=text, component=_NAME, type_="Warning")


def _waits(pod: Object) -> bool:
    return (
        not pod["spec"].get("nodeName")
        and not pods.ended(pod)
        and not pod["metadata"].get("deletionTimestamp")
        and pod["spec"].get("schedulerName", _NAME) == _NAME
    )
