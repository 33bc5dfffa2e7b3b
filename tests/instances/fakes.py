"""A cluster in memory that also plays the controllers' part for one instance, step by step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from kubekit.errors import BadRequest, NotFound
from tests.clusters.fake import FakeCluster, Obj

NODE = "node-1"


def stamp(moment: datetime | None = None) -> str:
    """A time as the server writes it."""
    return (moment or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ")


class InstanceCluster(FakeCluster):
    """With what instances need besides: scale, merge patch, selectors and logs."""

    def __init__(self) -> None:
        super().__init__()
        self.logs = b"the log"
        self.asked_logs = 0

    def patch_merge(
        self, kind: str, namespace: str | None, name: str, patch: Mapping[str, Any], *, subresource: str | None = None
    ) -> Obj:
        self._meet("patch", kind)
        stored = self.objects.get((kind, namespace, name))
        if stored is None:
            raise NotFound(f"{kind} {name} not found", status=404)
        for field, value in patch.items():
            stored.setdefault(field, {}).update(value)
        return stored

    def scale(self, namespace: str, name: str, replicas: int) -> Obj:
        return self.patch_merge("StatefulSet", namespace, name, {"spec": {"replicas": replicas}}, subresource="scale")

    def list(
        self,
        kind: str,
        namespace: str | None = None,
        *,
        labels: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
        **_: Any,
    ) -> Iterator[Obj]:
        for obj in FakeCluster.list(self, kind, namespace, labels=labels):
            wanted = (fields or {}).get("involvedObject.name")
            if wanted is not None and obj["involvedObject"]["name"] != wanted:
                continue
            yield obj

    def log_tail(self, namespace: str, pod: str, container: str, **_: Any) -> bytes:
        self._meet("log", "Pod", write=False)
        self.asked_logs += 1
        if ("Pod", namespace, pod) not in self.objects:
            raise BadRequest("the container has not started", status=400)
        return self.logs

    # --- what controllers and kubelet do ---------------------------------------------------------------------

    def one(self, kind: str) -> Obj:
        """The newest object of a kind, as stored."""
        found = [obj for (k, _namespace, _name), obj in self.objects.items() if k == kind]
        assert found, f"there is no {kind}"
        return found[-1]

    def make_pod(self) -> Obj:
        """The StatefulSet's controller makes the pod of the newest instance, the scheduler places it."""
        workload = self.one("StatefulSet")
        namespace, name = workload["metadata"]["namespace"], f"{workload['metadata']['name']}-0"
        pod = {
            "kind": "Pod",
            "metadata": {
                "namespace": namespace,
                "name": name,
                "uid": f"pod-{next(self._count)}",
                "labels": dict(workload["spec"]["template"]["metadata"]["labels"]),
                "creationTimestamp": stamp(),
            },
            "spec": {**workload["spec"]["template"]["spec"], "nodeName": NODE},
            "status": {"phase": "Pending", "conditions": [condition("PodScheduled", "True")]},
        }
        self.objects["Pod", namespace, name] = pod
        return pod

    def container(self, **fields: Any) -> Obj:
        """Set the main container's status; ``ready`` makes the pod ready."""
        pod = self.one("Pod")
        status = {"name": "main", "ready": False, "restartCount": 0, "image": "x", **fields}
        ready = "True" if status["ready"] else "False"
        pod["status"] = {
            "phase": "Running",
            "startTime": stamp(),
            "conditions": [condition("PodScheduled", "True"), condition("Ready", ready)],
            "containerStatuses": [status],
        }
        return pod

    def run_pod(self, *, restarts: int = 0, last: Mapping[str, Any] | None = None) -> Obj:
        """The program runs and answers."""
        more = {"lastState": {"terminated": dict(last)}} if last else {}
        return self.container(ready=True, restartCount=restarts, state={"running": {"startedAt": stamp()}}, **more)

    def wait(self, reason: str, message: str = "", *, restarts: int = 0, last: Mapping[str, Any] | None = None) -> Obj:
        """The container waits, with the kubelet's reason."""
        more = {"lastState": {"terminated": dict(last)}} if last else {}
        waiting = {"waiting": {"reason": reason, "message": message}}
        return self.container(state=waiting, restartCount=restarts, **more)

    def unschedulable(self, message: str) -> Obj:
        """No node takes the pod."""
        pod = self.make_pod()
        del pod["spec"]["nodeName"]
        pod["status"]["conditions"] = [condition("PodScheduled", "False", reason="Unschedulable", message=message)]
        return pod

    def remove_pod(self) -> Obj:
        """The kubelet has ended it and the object is gone."""
        pod = self.one("Pod")
        del self.objects["Pod", pod["metadata"]["namespace"], pod["metadata"]["name"]]
        return pod

    def event(self, reason: str, message: str, *, about: Obj, kind: str = "Pod", warning: bool = True) -> Obj:
        """An event about an object."""
        namespace, number = about["metadata"]["namespace"], next(self._count)
        raw = {
            "kind": "Event",
            "metadata": {"namespace": namespace, "name": f"event-{number}"},
            "involvedObject": {"kind": kind, "namespace": namespace, "name": about["metadata"]["name"]},
            "reason": reason,
            "message": message,
            "type": "Warning" if warning else "Normal",
            "count": 1,
            "lastTimestamp": stamp(),
        }
        self.objects["Event", namespace, f"event-{number}"] = raw
        return raw


def condition(kind: str, status: str, *, reason: str = "", message: str = "") -> Obj:
    """A row of ``status.conditions``."""
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": stamp(),
    }
