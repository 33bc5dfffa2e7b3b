"""A cluster in memory whose pods behave as a script says: the client's methods, and a kubelet in the test's hand."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from kubekit import names
from kubekit.errors import AlreadyExists, BadRequest, Conflict, KubeError, NotFound, Unreachable

Obj = dict[str, Any]


def stamp(moment: datetime | None = None) -> str:
    """RFC 3339 as a server writes it."""
    return (moment or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ")


class FakeKube:
    """Pods by (namespace, name). ``calls`` holds verb and name in order.

    ``lose_answers`` carries out the next so many creates but answers as if the connection broke; ``refuse_create`` is
    raised instead of creating; ``away`` fails everything.
    """

    def __init__(self) -> None:
        self.pods: dict[tuple[str, str], Obj] = {}
        self.logs: dict[str, bytes] = {}
        self.events: list[Obj] = []
        self.calls: list[tuple[str, str]] = []
        self.lose_answers = 0
        self.refuse_create: KubeError | None = None
        self.away = False
        self.ignore_sigterm = False
        self.created: list[Obj] = []
        self.now: Callable[[], datetime] = lambda: datetime.now(UTC)
        self._count = itertools.count(1)

    # --- the client ------------------------------------------------------------------------------------------------

    def create(self, obj: Mapping[str, Any], *, dry_run: bool = False) -> Obj:
        metadata = obj["metadata"]
        self._meet("create", metadata["name"])
        if self.refuse_create is not None:
            raise self.refuse_create
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
        self.created.append(made)
        if self.lose_answers:
            self.lose_answers -= 1
            raise Unreachable("the answer was lost", maybe_done=True)
        return copy.deepcopy(made)

    def get(self, kind: str, namespace: str | None, name: str) -> Obj:
        self._meet("get", name)
        found = self.pods.get((namespace or "", name)) if kind == "Pod" else None
        if found is None:
            raise NotFound(f'{kind} "{name}" not found', status=404)
        return copy.deepcopy(found)

    def list(self, kind: str, namespace: str | None = None, **_: Any) -> Iterator[Obj]:
        self._meet("list", kind)
        rows = self.events if kind == "Event" else [pod for (space, _n), pod in self.pods.items() if space == namespace]
        return iter(copy.deepcopy(rows))

    def patch_merge(self, kind: str, namespace: str | None, name: str, patch: Mapping[str, Any], **_: Any) -> Obj:
        self._meet("patch", name)
        pod = self._pod(namespace, name)
        wanted = patch["metadata"]
        if wanted.get("resourceVersion") not in (None, pod["metadata"]["resourceVersion"]):
            raise Conflict("the object has been modified", status=409)
        pod["metadata"]["finalizers"] = list(wanted["finalizers"] or [])
        self._changed(pod)
        self._drop_if_done(pod)
        return copy.deepcopy(pod)

    def delete(
        self,
        kind: str,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        grace_s: int | None = None,
        **_: Any,
    ) -> Obj:
        self._meet("delete", name)
        pod = self._pod(namespace, name)
        if uid is not None and pod["metadata"]["uid"] != uid:
            raise Conflict("the UID in the precondition does not match", status=409)
        if "deletionTimestamp" not in pod["metadata"]:
            pod["metadata"]["deletionTimestamp"] = stamp(self.now())
            pod["metadata"]["deletionGracePeriodSeconds"] = 0
            self._changed(pod)
            if pod["status"]["phase"] == "Running" and not self.ignore_sigterm:
                self.finish(pod, exit_code=137, reason="Error")
        if grace_s == 0 and not pod["metadata"].get("finalizers"):  # by force: no node is waited for
            self.pods.pop((namespace or "", name), None)
        self._drop_if_done(pod)
        return copy.deepcopy(pod)

    def log_tail(
        self,
        namespace: str,
        pod: str,
        container: str,
        *,
        tail_lines: int | None = 200,
        limit_bytes: int | None = None,
        since_time: str | None = None,
        timestamps: bool = False,
        previous: bool = False,
    ) -> bytes:
        self._meet("log", pod)
        if self._pod(namespace, pod)["status"]["phase"] == "Pending":
            raise BadRequest("container is waiting to start", status=400)
        lines = self.logs.get(pod, b"").splitlines(keepends=True)
        since = (since_time or "").rstrip("Z")
        raw = b"".join(line for line in lines if line.decode("utf-8", "replace")[: len(since)] >= since)
        return raw if limit_bytes is None else raw[:limit_bytes]

    # --- the kubelet -----------------------------------------------------------------------------------------------

    def only(self) -> Obj:
        """The one pod there is."""
        assert len(self.pods) == 1, sorted(self.pods)
        return next(iter(self.pods.values()))

    def run(self, pod: Obj, *, at: datetime | None = None, log: bytes = b"") -> None:
        """A node takes it and starts the program."""
        pod["spec"]["nodeName"] = "node-1"
        state = {"running": {"startedAt": stamp(at)}}
        pod["status"] = {
            "phase": "Running",
            "startTime": stamp(at),
            "containerStatuses": [{"name": "main", "state": state, "ready": True, "restartCount": 0}],
        }
        self.logs[pod["metadata"]["name"]] = log
        self._changed(pod)

    def finish(
        self,
        pod: Obj,
        *,
        exit_code: int = 0,
        reason: str = "",
        pod_reason: str = "",
        at: datetime | None = None,
        conditions: list[Obj] | None = None,
    ) -> None:
        """The program ends."""
        before = (pod["status"].get("containerStatuses") or [{}])[0].get("state", {}).get("running", {})
        ended = {
            "exitCode": exit_code,
            "reason": reason or ("Completed" if exit_code == 0 else "Error"),
            "startedAt": before.get("startedAt", stamp(at)),
            "finishedAt": stamp(at),
        }
        pod["status"] = {
            "phase": "Succeeded" if exit_code == 0 and not pod_reason else "Failed",
            "reason": pod_reason,
            "conditions": conditions or [],
            "containerStatuses": [{"name": "main", "state": {"terminated": ended}, "restartCount": 0}],
        }
        self._changed(pod)
        self._drop_if_done(pod)

    def silence(self, pod: Obj, *, silent: bool = True) -> None:
        """Its node stops reporting, or answers again; a silent one ends nothing."""
        self.ignore_sigterm = silent
        lost = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
        pod["status"]["conditions"] = [lost if silent else {"type": "Ready", "status": "True"}]
        self._changed(pod)

    def vanish(self, pod: Obj) -> None:
        """Somebody took finalizer and pod away by force."""
        del self.pods[pod["metadata"]["namespace"], pod["metadata"]["name"]]

    # --- inside ----------------------------------------------------------------------------------------------------

    def _pod(self, namespace: str | None, name: str) -> Obj:
        try:
            return self.pods[namespace or "", name]
        except KeyError:
            raise NotFound(f'pods "{name}" not found', status=404) from None

    def _changed(self, pod: Obj) -> None:
        pod["metadata"]["resourceVersion"] = str(next(self._count))

    def _drop_if_done(self, pod: Obj) -> None:
        metadata = pod["metadata"]
        ended = pod["status"]["phase"] in ("Succeeded", "Failed") or "nodeName" not in pod["spec"]
        if "deletionTimestamp" in metadata and ended and not metadata.get("finalizers"):
            self.pods.pop((metadata["namespace"], metadata["name"]), None)

    def _meet(self, verb: str, name: str) -> None:
        self.calls.append((verb, name))
        if self.away:
            raise Unreachable("http://cluster does not answer: refused")


def has_finalizer(pod: Obj) -> bool:
    """Whether the portal still holds the pod."""
    return names.RESULT_FINALIZER in (pod["metadata"].get("finalizers") or [])
