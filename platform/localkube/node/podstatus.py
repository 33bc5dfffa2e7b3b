"""What is known of a pod's containers, and the status the kubelet would write of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from localkube.pods import set_condition
from localkube.status import Object

_LAST_WORDS: Final = 4096
"""Bytes of a termination message that are kept, as the kubelet does."""


@dataclass
class ContainerState:
    """One container: exactly one of waiting, running and terminated holds."""

    name: str
    image: str
    image_id: str = ""
    restarts: int = 0
    ready: bool = False
    waiting: tuple[str, str] = ("ContainerCreating", "")
    running_since: str | None = None
    terminated: Object | None = None
    last: Object | None = None

    def wait(self, reason: str, message: str = "") -> None:
        """Not running now, and why; what it ended with before becomes its last state."""
        if self.terminated:
            self.last = self.terminated
        self.waiting, self.running_since, self.terminated = (reason, message), None, None
        self.ready = False

    def run(self, since: str) -> None:
        """Its process started (RFC 3339)."""
        if self.terminated:
            self.last = self.terminated
        self.running_since, self.terminated = since, None

    def end(self, ended: Object) -> None:
        """Its process ended; `ended` is the `terminated` state."""
        self.running_since, self.terminated = None, ended
        self.ready = False

    @property
    def succeeded(self) -> bool:
        return self.terminated is not None and self.terminated["exitCode"] == 0

    def describe(self) -> Object:
        """The entry of containerStatuses."""
        state: Object
        if self.terminated:
            state = {"terminated": self.terminated}
        elif self.running_since:
            state = {"running": {"startedAt": _seconds(self.running_since)}}
        else:
            reason, message = self.waiting
            state = {"waiting": {"reason": reason} | ({"message": message} if message else {})}
        return {
            "name": self.name,
            "state": state,
            "lastState": {"terminated": self.last} if self.last else {},
            "ready": self.ready,
            "restartCount": self.restarts,
            "image": self.image,
            "imageID": self.image_id,
            **({"containerID": self.container_id} if self.container_id else {}),
            "started": self.running_since is not None,
        }

    container_id: str = ""

    @classmethod
    def load(cls, container: Object, status: Object | None) -> ContainerState:
        """From what the store remembers of it (after a restart of localkube)."""
        made = cls(container["name"], container["image"])
        if status:
            made.restarts = status.get("restartCount", 0)
            made.last = status.get("lastState", {}).get("terminated")
            made.terminated = status.get("state", {}).get("terminated")
            made.running_since = status.get("state", {}).get("running", {}).get("startedAt")
            made.ready = bool(status.get("ready"))
            made.image_id = status.get("imageID", "")
            made.container_id = status.get("containerID", "")
        return made


def ended_state(record: dict[str, Any], *, reason: str | None = None, message: str = "", container_id: str) -> Object:
    """The `terminated` state of an exit record."""
    code = int(record["code"])
    ended: Object = {
        "exitCode": code,
        "reason": reason or ("Completed" if code == 0 else "Error"),
        "startedAt": _seconds(record["started"]) if record["started"] else None,
        "finishedAt": _seconds(record["finished"]) if record["finished"] else None,
        "containerID": container_id,
    }
    if message:
        ended["message"] = message.encode()[-_LAST_WORDS:].decode(errors="replace")
    return ended


def _seconds(stamp: str) -> str:
    return stamp[:19] + "Z"


@dataclass
class PodState:
    """The pod as its worker sees it."""

    main: list[ContainerState] = field(default_factory=list)
    start_time: str = ""
    address: str = ""
    final: tuple[str, str, str] | None = None
    """(phase, reason, message) once the pod has ended for good."""
    disrupted: str = ""
    """Why the pod was ended from outside, for the condition DisruptionTarget."""

    def phase(self) -> str:
        if self.final:
            return self.final[0]
        begun = any(state.running_since or state.terminated or state.restarts for state in self.main)
        return "Running" if begun else "Pending"


def write_status(pod: Object, state: PodState, *, at: str, host: str) -> None:
    """Put the state into the pod object's status, as the kubelet does (conditions keep their transition times)."""
    status = pod.setdefault("status", {})
    status["phase"] = state.phase()
    status["hostIP"], status["hostIPs"] = host, [{"ip": host}]
    status["startTime"] = state.start_time
    for key in ("reason", "message"):
        status.pop(key, None)
    if state.final:
        for key, text in (("reason", state.final[1]), ("message", state.final[2])):
            if text:
                status[key] = text
    if state.address:
        status["podIP"], status["podIPs"] = state.address, [{"ip": state.address}]
    status["containerStatuses"] = [container.describe() for container in state.main]
    _write_conditions(pod, state, at)


def _write_conditions(pod: Object, state: PodState, at: str) -> None:
    set_condition(pod, "PodScheduled", "True", at=at)
    succeeded = state.final is not None and state.final[0] == "Succeeded"
    set_condition(pod, "PodReadyToStartContainers", "True" if state.address and not state.final else "False", at=at)
    set_condition(pod, "Initialized", "True", reason="PodCompleted" if succeeded else "", at=at)
    unready = [container.name for container in state.main if not container.ready]
    ready, reason, text = "True", "", ""
    if state.final:
        ready, reason = "False", "PodCompleted" if succeeded else "PodFailed"
    elif unready:
        ready, reason = "False", "ContainersNotReady"
        text = f"containers with unready status: [{' '.join(unready)}]"
    for condition in ("ContainersReady", "Ready"):
        set_condition(pod, condition, ready, reason=reason, message=text, at=at)
    if state.disrupted:
        why = state.disrupted
        set_condition(pod, "DisruptionTarget", "True", reason="TerminationByKubelet", message=why, at=at)
