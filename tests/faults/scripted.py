"""The cluster of the random lives: an API server's store, its quota and its controllers in memory, moved by hand.

Pods are those of ``tests.flows.fakes``. Beside them are the objects of instances, the StatefulSets' controller, the
garbage collector, and a ResourceQuota that counts as the real one does: admission adds what a pod asks for before the
store can find that its name is taken (failure F12), and what ends is taken off when the quota's controller looks.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

from kubekit import names
from kubekit.build.queue import QUOTA_NAME
from kubekit.errors import AlreadyExists, Conflict, NotFound, QuotaExceeded
from kubekit.quantities import parse_bytes, parse_cpu
from tests.flows.fakes import FakeKube, stamp

Obj = dict[str, Any]
Key = tuple[str, str, str]
CPU, MEMORY = "requests.cpu", "requests.memory"
ENDED = ("Succeeded", "Failed")


class ScriptedCluster(FakeKube):
    """One namespace with a quota of ``hard_millis`` CPU.

    ``meet`` is called with the verb of each request before it is carried out, ``met`` after each write: they raise
    what goes wrong. ``now`` is the cluster's clock.
    """

    def __init__(
        self,
        *,
        namespace: str,
        hard_millis: int,
        now: Callable[[], datetime],
        meet: Callable[[str], None],
        met: Callable[[], None],
    ) -> None:
        super().__init__()
        self.namespace, self.hard_millis, self.now = namespace, hard_millis, now
        self.before, self.after = meet, met
        self.objects: dict[Key, Obj] = {}
        self.used: Counter[str] = Counter()
        self.silent: set[str] = set()
        self._told: dict[str, Obj] = {}

    # --- the client ------------------------------------------------------------------------------------------------

    def create(self, obj: Mapping[str, Any], *, dry_run: bool = False) -> Obj:
        self._meet("create", obj["metadata"]["name"])
        made = self._insert(obj)
        self.after()
        return copy.deepcopy(made)

    def apply(self, obj: Mapping[str, Any], *, dry_run: bool = False, force: bool = True) -> Obj:
        self._meet("apply", obj["metadata"]["name"])
        key = (obj["kind"], obj["metadata"].get("namespace") or "", obj["metadata"]["name"])
        stored, made = self.objects.get(key), copy.deepcopy(dict(obj))
        before = (stored or {"metadata": {}})["metadata"]
        changed = stored is None or stored.get("spec") != made.get("spec")
        made["metadata"] |= {
            "uid": before.get("uid") or f"uid-{next(self._count)}",
            "resourceVersion": str(next(self._count)),
            "creationTimestamp": before.get("creationTimestamp") or stamp(self.now()),
            "generation": before.get("generation", 0) + changed,
        }
        made["status"] = (stored or {}).get("status", {})
        if obj["kind"] == "PersistentVolumeClaim":
            asked = made["spec"]["resources"]["requests"]["storage"]
            self.used["requests.storage"] += 0 if stored else parse_bytes(asked)
            made["status"] = {"phase": "Bound", "capacity": {"storage": asked}}
        self.objects[key] = made
        self.after()
        return copy.deepcopy(made)

    def get(self, kind: str, namespace: str | None, name: str) -> Obj:
        if kind == "Pod":
            return super().get(kind, namespace, name)
        self._meet("get", name)
        if kind == "ResourceQuota":
            used = {key: f"{count}m" if key == CPU else str(count) for key, count in self.used.items()}
            return {"kind": kind, "metadata": {"name": QUOTA_NAME, "uid": "quota"}, "status": {"used": used}}
        return copy.deepcopy(self._object(kind, namespace, name))

    def list(
        self,
        kind: str,
        namespace: str | None = None,
        *,
        labels: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
        **_: Any,
    ) -> Iterator[Obj]:
        self._meet("list", kind)
        if kind == "Event":
            about = (fields or {}).get("involvedObject.name")
            return iter([event for event in self.events if event["involvedObject"]["name"] == about])
        rows = self.pods.values() if kind == "Pod" else (obj for key, obj in self.objects.items() if key[0] == kind)
        chosen = [
            {**copy.deepcopy(obj), "kind": kind}
            for obj in rows
            if namespace in (None, obj["metadata"]["namespace"])
            and (labels or {}).items() <= obj["metadata"]["labels"].items()
        ]
        return iter(chosen)

    def patch_merge(self, kind: str, namespace: str | None, name: str, patch: Mapping[str, Any], **more: Any) -> Obj:
        if kind == "Pod" and "finalizers" in patch["metadata"]:
            answer = super().patch_merge(kind, namespace, name, patch, **more)
        elif kind == "Pod":  # notes on it, which nothing here reads
            self._meet("patch", name)
            answer = copy.deepcopy(self._pod(namespace, name))
        else:
            self._meet("patch", name)
            answer = self._patch(self._object(kind, namespace, name), patch)
        self.after()
        return answer

    def scale(self, namespace: str, name: str, replicas: int) -> Obj:
        return self.patch_merge("StatefulSet", namespace, name, {"spec": {"replicas": replicas}})

    def delete(self, kind: str, namespace: str | None, name: str, *, uid: str | None = None, **more: Any) -> Obj:
        if kind == "Pod":
            self.ignore_sigterm = name in self.silent
            answer = super().delete(kind, namespace, name, uid=uid, **more)
        else:
            self._meet("delete", name)
            answer = self._object(kind, namespace, name)
            if uid is not None and answer["metadata"]["uid"] != uid:
                raise Conflict("the UID in the precondition does not match", status=409)
            del self.objects[kind, namespace or "", name]
        self.after()
        return answer

    # --- what controllers and nodes do -------------------------------------------------------------------------------

    def control(self) -> None:
        """The StatefulSets' controller and the garbage collector look at everything."""
        for (kind, namespace, name), workload in list(self.objects.items()):
            if kind != "StatefulSet":
                continue
            workload["status"] = {"observedGeneration": workload["metadata"]["generation"]}
            pod = self.pods.get((namespace, f"{name}-0"))
            if pod is None and workload["spec"]["replicas"]:
                self._make_pod(workload)
            elif pod is not None and (not workload["spec"]["replicas"] or pod["status"]["phase"] in ENDED):
                self.ask_to_end(pod)
        owners = {obj["metadata"]["uid"] for obj in self.objects.values()}
        for pod in list(self.pods.values()):
            if any(owner["uid"] not in owners for owner in pod["metadata"].get("ownerReferences") or ()):
                self.ask_to_end(pod)

    def count(self) -> None:
        """The quota's controller counts anew what is there."""
        self.used = Counter({CPU: 0, MEMORY: 0})
        for pod in self.pods.values():
            self.used.update(requested(pod) if pod["status"]["phase"] not in ENDED else {})
        for claim in (obj for key, obj in self.objects.items() if key[0] == "PersistentVolumeClaim"):
            self.used["requests.storage"] += parse_bytes(claim["spec"]["resources"]["requests"]["storage"])

    def serve(self, pod: Obj, *, ready: bool, restarts: int = 0) -> None:
        """A node runs a pod that serves, and says whether it answers."""
        pod["spec"]["nodeName"] = "node-1"
        at = stamp(self.now())
        status: Obj = {
            "name": "main",
            "ready": ready,
            "restartCount": restarts,
            "state": {"running": {"startedAt": at}},
        }
        if restarts:
            ended = {"exitCode": 1, "reason": "Error", "startedAt": at, "finishedAt": at}
            status["lastState"] = {"terminated": ended}
        pod["status"] = {
            "phase": "Running",
            "startTime": at,
            "conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": str(ready)}],
            "containerStatuses": [status],
        }
        self._changed(pod)

    def ask_to_end(self, pod: Obj) -> None:
        """Somebody deletes it; whatever holds it is waited for."""
        metadata = pod["metadata"]
        if "deletionTimestamp" not in metadata:
            metadata |= {"deletionTimestamp": stamp(self.now()), "deletionGracePeriodSeconds": 0}
            self._changed(pod)
        self._drop_if_done(pod)

    def lose_contact(self, pod: Obj, *, lost: bool = True) -> None:
        """Its node stops reporting, or reports again; a silent one ends nothing."""
        (self.silent.add if lost else self.silent.discard)(pod["metadata"]["name"])
        ready = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
        others = [row for row in pod["status"].get("conditions") or () if row["type"] != "Ready"]
        pod["status"]["conditions"] = [*others, ready if lost else {"type": "Ready", "status": "True"}]
        self._changed(pod)

    def news(self) -> list[tuple[str, Obj]]:
        """What a watch has to tell since it told last."""
        now = {pod["metadata"]["uid"]: snapshot(pod) for pod in self.pods.values()}
        found = [("DELETED", pod) for uid, pod in self._told.items() if uid not in now]
        for uid, pod in now.items():
            before = self._told.get(uid)
            if before is None or before["metadata"]["resourceVersion"] != pod["metadata"]["resourceVersion"]:
                found.append(("MODIFIED" if before else "ADDED", pod))
        self._told = now
        return found

    # --- inside ------------------------------------------------------------------------------------------------------

    def _insert(self, obj: Mapping[str, Any]) -> Obj:
        """What admission and store do with a new pod."""
        metadata = obj["metadata"]
        asked = requested(obj)
        if self.used[CPU] + asked[CPU] > self.hard_millis:
            figures = {"requested": asked[CPU], "used": self.used[CPU], "limited": self.hard_millis}
            told = ", ".join(f"{name}: {CPU}={count}m" for name, count in figures.items())
            raise QuotaExceeded(
                f'pods "{metadata["name"]}" is forbidden: exceeded quota: {QUOTA_NAME}, {told}',
                quota=QUOTA_NAME,
                **{name: {CPU: f"{count}m"} for name, count in figures.items()},
            )
        self.used.update(asked)
        key = (metadata["namespace"], metadata["name"])
        if key in self.pods:
            raise AlreadyExists(f'pods "{key[1]}" already exists', status=409)
        made = copy.deepcopy(dict(obj))
        made["metadata"] |= {
            "uid": f"uid-{next(self._count)}",
            "resourceVersion": str(next(self._count)),
            "creationTimestamp": stamp(self.now()),
        }
        made["status"] = {"phase": "Pending"}
        self.pods[key] = made
        return made

    def _make_pod(self, workload: Obj) -> None:
        metadata, template = workload["metadata"], workload["spec"]["template"]
        owner = {"kind": "StatefulSet", "name": metadata["name"], "uid": metadata["uid"], "controller": True}
        pod = {
            "kind": "Pod",
            "metadata": {
                "namespace": metadata["namespace"],
                "name": f"{metadata['name']}-0",
                "labels": dict(template["metadata"]["labels"]),
                "ownerReferences": [owner],
            },
            "spec": copy.deepcopy(template["spec"]),
        }
        try:
            self._insert(pod)
        except QuotaExceeded as error:
            at = stamp(self.now())
            self.events.append({
                "kind": "Event", "type": "Warning", "reason": "FailedCreate", "count": 1, "lastTimestamp": at,
                "metadata": {"namespace": metadata["namespace"], "name": f"event-{next(self._count)}"},
                "involvedObject": {"kind": "StatefulSet", "name": metadata["name"]},
                "message": f"create Pod in StatefulSet {metadata['name']} failed error: {error.message}",
            })  # fmt: skip

    def _patch(self, obj: Obj, patch: Mapping[str, Any]) -> Obj:
        metadata = obj["metadata"]
        if (patch.get("metadata") or {}).get("resourceVersion") not in (None, metadata["resourceVersion"]):
            raise Conflict("the object has been modified", status=409)
        for part in ("spec", "data"):
            if part in patch:
                metadata["generation"] += {**obj[part], **patch[part]} != obj[part]
                obj[part] = {**obj[part], **patch[part]}
        metadata["resourceVersion"] = str(next(self._count))
        return copy.deepcopy(obj)

    def _object(self, kind: str, namespace: str | None, name: str) -> Obj:
        try:
            return self.objects[kind, namespace or "", name]
        except KeyError:
            raise NotFound(f'{kind} "{name}" not found', status=404) from None

    def _meet(self, verb: str, name: str) -> None:
        super()._meet(verb, name)
        self.before(verb)


def requested(pod: Mapping[str, Any]) -> dict[str, int]:
    """What a pod asks for, as a quota names it: thousandths of a CPU and bytes."""
    rows = [row["resources"]["requests"] for row in pod["spec"]["containers"]]
    return {CPU: sum(parse_cpu(row["cpu"]) for row in rows), MEMORY: sum(parse_bytes(row["memory"]) for row in rows)}


def snapshot(pod: Obj) -> Obj:
    """As it is now; what is changed later is another."""
    return {**pod, "metadata": dict(pod["metadata"]), "spec": dict(pod["spec"]), "status": dict(pod["status"])}


def row_of(obj: Mapping[str, Any]) -> str:
    """The id of the row that an object was made for."""
    return str(obj["metadata"]["labels"].get(names.ID, ""))
