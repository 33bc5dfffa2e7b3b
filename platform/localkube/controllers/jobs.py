"""Jobs: pods until enough succeeded, or too many failed, or the deadline passed."""

from __future__ import annotations

from collections.abc import Hashable
from datetime import UTC, datetime
from typing import Final

from localkube import events, pods
from localkube.controllers.base import Controller, controller_of, controller_ref, key_of
from localkube.status import ApiError, Object
from localkube.store import copy, now
from localkube.times import parse_time

_COMPONENT: Final = "job-controller"
_FINALIZER: Final = "batch.kubernetes.io/job-tracking"
"""Of each pod until it is counted: whoever deletes it, its end is never missed."""
_BACKOFF_S: Final = 10.0
_LONGEST_BACKOFF_S: Final = 600.0


class JobController(Controller):
    """Keeps `parallelism` pods running until `completions` succeeded, or it fails by backoffLimit or deadline."""

    name = _COMPONENT

    def watch(self) -> None:
        self.follow("jobs", key_of)
        self.follow("pods", self._owner_key)

    def _owner_key(self, _event_type: str, pod: Object) -> Hashable | None:
        ref = controller_of(pod)
        return (pod["metadata"]["namespace"], ref["name"]) if ref and ref["kind"] == "Job" else None

    def reconcile(self, key: Hashable) -> None:
        assert isinstance(key, tuple)
        job = self.store.peek("jobs", *key)
        if job is None:
            for pod in self.store.iterate("pods", key[0]):
                if self._owner_key("", pod) == key:
                    self._release(pod)
            return
        job = self._count(job)
        if any((pods.condition(job, kind) or {}).get("status") == "True" for kind in ("Complete", "Failed")):
            return
        live = [pod for pod in self._pods(job) if not pods.ended(pod)]
        outcome = self._outcome(job, key)
        if outcome is None:
            live += self._refill(job, key, live)
        else:
            for pod in live:
                self.store.delete("pods", pod["metadata"]["namespace"], pod["metadata"]["name"])
            live = [pod for pod in self._pods(job) if not pods.ended(pod)]
        self._report(job, live, outcome)

    def _pods(self, job: Object) -> list[Object]:
        uid = job["metadata"]["uid"]
        found = self.store.iterate("pods", job["metadata"]["namespace"])
        return [pod for pod in found if (ref := controller_of(pod)) and ref["uid"] == uid]

    def _count(self, job: Object) -> Object:
        """Add ended pods to the totals and release them. Nothing else is written between the two."""
        status = copy(job.get("status", {}))
        held = [pod for pod in self._pods(job) if _FINALIZER in (pod["metadata"].get("finalizers") or ())]
        ended = [pod for pod in held if pods.ended(pod) or not _runs(pod)]
        for pod in ended:
            name = "succeeded" if pod.get("status", {}).get("phase") == "Succeeded" else "failed"
            status[name] = status.get(name, 0) + 1
            self._release(pod)
        return self._write(job, status)

    def _release(self, pod: Object) -> None:
        changed = copy(pod)
        if _FINALIZER in (changed["metadata"].get("finalizers") or ()):
            changed["metadata"]["finalizers"].remove(_FINALIZER)
            self.store.update("pods", changed)

    def _outcome(self, job: Object, key: Hashable) -> tuple[str, str, str] | None:
        """The condition that ends the job, its reason and its message; None while it goes on."""
        spec, status = job["spec"], job.get("status", {})
        if status.get("succeeded", 0) >= spec["completions"]:
            return "Complete", "CompletionsReached", "Reached expected number of succeeded pods"
        if status.get("failed", 0) > spec["backoffLimit"]:
            return "Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit"
        deadline, begun = spec.get("activeDeadlineSeconds"), status.get("startTime")
        if deadline is not None and begun:
            left = deadline - (datetime.now(UTC) - parse_time(begun)).total_seconds()
            if left <= 0:
                return "Failed", "DeadlineExceeded", "Job was active longer than specified deadline"
            self.enqueue_after(key, left)
        return None

    def _refill(self, job: Object, key: Hashable, live: list[Object]) -> list[Object]:
        """Start the pods that are wanted now: 10 s after a first failure, then twice as long each time."""
        spec = job["spec"]
        missing = min(spec["parallelism"], spec["completions"] - job["status"].get("succeeded", 0)) - len(live)
        failed = [pod for pod in self._pods(job) if pod.get("status", {}).get("phase") == "Failed"]
        states = [(s.get("state") or {}).get("terminated") for p in failed for s in _statuses(p)]
        ends = [parse_time(state["finishedAt"]) for state in states if state and state.get("finishedAt")]
        if missing > 0 and ends:
            pause = min(_LONGEST_BACKOFF_S, _BACKOFF_S * 2 ** (len(failed) - 1))
            wait = pause - (datetime.now(UTC) - max(ends)).total_seconds()
            if wait > 0:
                self.enqueue_after(key, wait)
                return []
        return [self._create(job) for _ in range(missing)]

    def _create(self, job: Object) -> Object:
        metadata, template = job["metadata"], copy(job["spec"]["template"])
        own = {"generateName": f"{metadata['name']}-", "finalizers": [_FINALIZER]}
        pod = template | {"metadata": template["metadata"] | own | {"ownerReferences": [controller_ref(job)]}}
        try:
            created = self.registry.create(self.store.resources["pods"], metadata["namespace"], pod)
        except ApiError as error:
            self._record(job, "FailedCreate", f"Error creating: {error.message}", warning=True)
            raise
        self._record(job, "SuccessfulCreate", f"Created pod: {created['metadata']['name']}")
        return created

    def _report(self, job: Object, live: list[Object], outcome: tuple[str, str, str] | None) -> None:
        status: Object = copy(job.get("status", {})) | {"ready": sum(1 for pod in live if pods.is_ready(pod))}
        status.setdefault("startTime", now())
        status["active" if outcome is None else "terminating"] = len(live)
        for name in ("active", "terminating"):
            if not status.get(name) or (outcome and name == "active"):
                status.pop(name, None)
        if outcome:
            kind, reason, message = outcome
            done, wrapper = kind == "Complete", {"status": status}
            first = "SuccessCriteriaMet" if done else "FailureTarget"
            pods.set_condition(wrapper, first, "True", reason=reason, message=message, at=now())
            if not live:
                pods.set_condition(wrapper, kind, "True", reason=reason, message=message, at=now())
                status |= {"completionTime": now()} if done else {}
                told = ("Completed", "Job completed") if done else (reason, message)
                self._record(job, *told, warning=not done)
        self._write(job, status)

    def _write(self, job: Object, status: Object) -> Object:
        if job.get("status") == status:
            return job
        current = self.store.get("jobs", job["metadata"]["namespace"], job["metadata"]["name"])
        current["status"] = status
        return self.store.update("jobs", current, subresource="status")

    def _record(self, job: Object, reason: str, message: str, *, warning: bool = False) -> None:
        kind = "Warning" if warning else "Normal"
        events.record(self.store, job, reason=reason, message=message, component=_COMPONENT, type_=kind)


def _statuses(pod: Object) -> list[Object]:
    return pod["status"].get("containerStatuses") or []


def _runs(pod: Object) -> bool:
    """Whether a pod that has not ended is still to end: not deleted, or on its node for its grace period."""
    metadata = pod["metadata"]
    return not metadata.get("deletionTimestamp") or metadata.get("deletionGracePeriodSeconds", 0) > 0
