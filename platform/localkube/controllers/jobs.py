"""Jobs: pods until enough succeeded, counted once each by their finalizer."""

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
_BACKOFF_S: Final = 10.0
_LONGEST_BACKOFF_S: Final = 600.0


def finished(job: Object) -> bool:
    """Complete or Failed."""
    return any((pods.condition(job, kind) or {}).get("status") == "True" for kind in ("Complete", "Failed"))


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
            return
        if job["metadata"].get("deletionTimestamp"):
            for pod in self._pods(job):
                self._release(pod)
            return
        job = self._count(job)
        if finished(job):
            self._expire(job, key)
            return
        live = [p for p in self._pods(job) if not pods.ended(p)]
        active = [p for p in live if not p["metadata"].get("deletionTimestamp")]
        outcome = self._outcome(job, key)
        if outcome:
            for pod in active:
                self._end(pod)
            self._finish(job, *outcome)
        elif job["spec"].get("suspend"):
            for pod in active:
                self._end(pod)
            self._write(job, self._status(job, active=[], live=live))
        else:
            self._refill(job, key, active, live)

    def _pods(self, job: Object) -> list[Object]:
        uid = job["metadata"]["uid"]
        found = self.store.iterate("pods", job["metadata"]["namespace"])
        return [pod for pod in found if (ref := controller_of(pod)) and ref["uid"] == uid]

    def _count(self, job: Object) -> Object:
        """Add ended pods to the totals, then release them: a crash in between finds their uids in the status."""
        counted = job.get("status", {}).get("uncountedTerminatedPods") or {}
        known = {*(counted.get("succeeded") or ()), *(counted.get("failed") or ())}
        status = copy(job.get("status", {}))
        fresh: dict[str, list[str]] = {"succeeded": [], "failed": []}
        held = [p for p in self._pods(job) if _FINALIZER in (p["metadata"].get("finalizers") or ())]
        ended = [p for p in held if pods.ended(p) or (p["metadata"].get("deletionTimestamp") and not _runs(p))]
        for pod in ended:
            if pod["metadata"]["uid"] not in known:
                success = pod.get("status", {}).get("phase") == "Succeeded"
                fresh["succeeded" if success else "failed"].append(pod["metadata"]["uid"])
        for name, uids in fresh.items():
            if uids:
                status[name] = status.get(name, 0) + len(uids)
        if fresh["succeeded"] or fresh["failed"]:
            status["uncountedTerminatedPods"] = {name: uids for name, uids in fresh.items() if uids}
            job = self._write(job, status)
        for pod in ended:
            self._release(pod)
        if job.get("status", {}).get("uncountedTerminatedPods"):
            job = self._write(job, copy(job["status"]) | {"uncountedTerminatedPods": {}})
        return job

    def _release(self, pod: Object) -> None:
        metadata = pod["metadata"]
        current = self.store.peek("pods", metadata["namespace"], metadata["name"])
        if current is None or _FINALIZER not in (current["metadata"].get("finalizers") or ()):
            return
        changed = copy(current)
        changed["metadata"]["finalizers"].remove(_FINALIZER)
        self.store.update("pods", changed)

    def _outcome(self, job: Object, key: Hashable) -> tuple[str, str, str] | None:
        """The condition that ends the job, its reason and its message; None while it goes on."""
        spec, status = job["spec"], job.get("status", {})
        wanted = spec.get("completions")
        if status.get("succeeded", 0) >= (wanted if wanted is not None else 1):
            return "Complete", "CompletionsReached", "Reached expected number of succeeded pods"
        if status.get("failed", 0) > spec.get("backoffLimit", 6):
            return "Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit"
        deadline, begun = spec.get("activeDeadlineSeconds"), status.get("startTime")
        if deadline is not None and begun:
            left = deadline - (datetime.now(UTC) - parse_time(begun)).total_seconds()
            if left <= 0:
                return "Failed", "DeadlineExceeded", "Job was active longer than specified deadline"
            self.enqueue_after(key, left)
        return None

    def _finish(self, job: Object, kind: str, reason: str, message: str) -> None:
        live = [p for p in self._pods(job) if not pods.ended(p)]
        status = self._status(job, active=[], live=live)
        wrapper = {"status": status}
        first = "SuccessCriteriaMet" if kind == "Complete" else "FailureTarget"
        pods.set_condition(wrapper, first, "True", reason=reason, message=message, at=now())
        if not live:
            pods.set_condition(wrapper, kind, "True", reason=reason, message=message, at=now())
            if kind == "Complete":
                status["completionTime"] = now()
            done = kind == "Complete"
            events.record(
                self.store,
                job,
                reason="Completed" if done else reason,
                message="Job completed" if done else message,
                component=_COMPONENT,
                type_="Normal" if done else "Warning",
            )
        self._write(job, status)

    def _refill(self, job: Object, key: Hashable, active: list[Object], live: list[Object]) -> None:
        spec, status = job["spec"], job.get("status", {})
        wanted = spec.get("completions")
        left = spec["parallelism"] if wanted is None else min(spec["parallelism"], wanted - status.get("succeeded", 0))
        if wanted is None and status.get("succeeded", 0):
            left = 0
        for pod in active[left:]:
            self._end(pod)
        wait = self._backoff(job)
        if wait > 0 and len(live) < left:
            self.enqueue_after(key, wait)
            left = len(live)
        taken = self._taken_indexes(job) if spec.get("completionMode") == "Indexed" else set()
        for _ in range(max(0, left - len(live))):
            index = next(i for i in range(len(taken) + 1) if i not in taken)
            taken.add(index)
            pod = self._create(job, index)
            active.append(pod)
            live.append(pod)
        self._write(job, self._status(job, active=active, live=live))

    def _taken_indexes(self, job: Object) -> set[int]:
        keep = [p for p in self._pods(job) if p.get("status", {}).get("phase") != "Failed"]
        return {int(p["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"]) for p in keep}

    def _backoff(self, job: Object) -> float:
        """Seconds until the next pod may start: 10 s after the first failure, then twice as long each time."""
        failures = [p for p in self._pods(job) if p.get("status", {}).get("phase") == "Failed"]
        if not failures:
            return 0
        found = [s for pod in failures for s in pod["status"].get("containerStatuses") or ()]
        texts = [((s.get("state") or {}).get("terminated") or {}).get("finishedAt") for s in found]
        ends = [parse_time(text) for text in texts if text]
        if not ends:
            return 0
        pause: float = min(_LONGEST_BACKOFF_S, _BACKOFF_S * 2 ** (len(failures) - 1))
        return pause - (datetime.now(UTC) - max(ends)).total_seconds()

    def _create(self, job: Object, index: int) -> Object:
        metadata, template = job["metadata"], copy(job["spec"]["template"])
        template_metadata = template.get("metadata") or {}
        annotations = dict(template_metadata.get("annotations") or {})
        labels = dict(template_metadata.get("labels") or {})
        prefix = f"{metadata['name']}-"
        if job["spec"].get("completionMode") == "Indexed":
            labels["batch.kubernetes.io/job-completion-index"] = str(index)
            annotations["batch.kubernetes.io/job-completion-index"] = str(index)
            prefix += f"{index}-"
            for container in pods.containers(template["spec"]):
                container.setdefault("env", []).append({"name": "JOB_COMPLETION_INDEX", "value": str(index)})
        pod = {
            "metadata": {
                "generateName": prefix,
                "labels": labels,
                "annotations": annotations,
                "finalizers": [_FINALIZER],
                "ownerReferences": [controller_ref(job)],
            },
            "spec": template["spec"],
        }
        try:
            created = self.registry.create(self.store.resources["pods"], metadata["namespace"], pod)
        except ApiError as error:
            text = f"Error creating: {error.message}"
            events.record(self.store, job, reason="FailedCreate", message=text, component=_COMPONENT, type_="Warning")
            raise
        text = f"Created pod: {created['metadata']['name']}"
        events.record(self.store, job, reason="SuccessfulCreate", message=text, component=_COMPONENT)
        return created

    def _end(self, pod: Object) -> None:
        metadata = pod["metadata"]
        self.store.delete("pods", metadata["namespace"], metadata["name"], uid=metadata["uid"])

    def _status(self, job: Object, *, active: list[Object], live: list[Object]) -> Object:
        status: Object = copy(job.get("status", {}))
        status.setdefault("startTime", now())
        status.setdefault("uncountedTerminatedPods", {})
        status["terminating"] = len(live) - len(active)
        status["ready"] = sum(1 for pod in active if pods.is_ready(pod))
        if active:
            status["active"] = len(active)
        else:
            status.pop("active", None)
        return status

    def _write(self, job: Object, status: Object) -> Object:
        if job.get("status") == status:
            return job
        current = self.store.get("jobs", job["metadata"]["namespace"], job["metadata"]["name"])
        current["status"] = status
        return self.store.update("jobs", current, subresource="status")

    def _expire(self, job: Object, key: Hashable) -> None:
        """Delete a finished job after ttlSecondsAfterFinished."""
        ttl = job["spec"].get("ttlSecondsAfterFinished")
        if ttl is None:
            return
        ends = [c["lastTransitionTime"] for c in job["status"]["conditions"] if c["type"] in ("Complete", "Failed")]
        left = ttl - (datetime.now(UTC) - parse_time(max(ends))).total_seconds()
        if left > 0:
            self.enqueue_after(key, left)
            return
        metadata = job["metadata"]
        self.store.delete("jobs", metadata["namespace"], metadata["name"], uid=metadata["uid"])


def _runs(pod: Object) -> bool:
    """Whether a node still has the pod: bound, and not yet told to be gone."""
    return bool(pod["spec"].get("nodeName")) and pod["metadata"].get("deletionGracePeriodSeconds", 0) > 0
