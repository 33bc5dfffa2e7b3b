"""The columns Ready, Status and Restarts of a pod, as the real server's printer derives them."""

from __future__ import annotations

from localkube.pods import condition
from localkube.status import Object
from localkube.times import since


def _statuses(pod: Object) -> list[Object]:
    return list(pod.get("status", {}).get("containerStatuses") or ())


def ready_count(pod: Object) -> str:
    count = sum(1 for s in _statuses(pod) if s.get("ready"))
    return f"{count}/{len(pod['spec'].get('containers', []))}"


def status_text(pod: Object) -> str:
    status = pod.get("status", {})
    reason = status.get("reason") or status.get("phase", "")
    scheduled = condition(pod, "PodScheduled")
    if scheduled and scheduled.get("reason") == "SchedulingGated":
        reason = "SchedulingGated"
    starting = False
    total = len(pod["spec"].get("initContainers") or ())
    for index, found in enumerate(status.get("initContainerStatuses") or ()):
        state = found.get("state") or {}
        ended = state.get("terminated")
        if (ended and ended.get("exitCode") == 0) or found.get("started"):
            continue
        waiting = (state.get("waiting") or {}).get("reason", "")
        if ended:
            reason = f"Init:{ended.get('reason') or 'ExitCode:' + str(ended.get('exitCode'))}"
        elif waiting and waiting != "PodInitializing":
            reason = f"Init:{waiting}"
        else:
            reason = f"Init:{index}/{total}"
        starting = True
        break
    if not starting:
        running = False
        for found in reversed(_statuses(pod)):
            state = found.get("state") or {}
            if (state.get("waiting") or {}).get("reason"):
                reason = state["waiting"]["reason"]
            elif state.get("terminated"):
                ended = state["terminated"]
                signal = f"Signal:{ended['signal']}" if ended.get("signal") else f"ExitCode:{ended.get('exitCode')}"
                reason = ended.get("reason") or signal
            elif found.get("ready") and "running" in state:
                running = True
        if reason == "Completed" and running:
            reason = "Running" if (condition(pod, "Ready") or {}).get("status") == "True" else "NotReady"
    if pod["metadata"].get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            return "Unknown"
        if status.get("phase") not in ("Succeeded", "Failed"):
            return "Terminating"
    return str(reason)


def restarts(pod: Object) -> str:
    count, last = 0, ""
    for found in (*(pod.get("status", {}).get("initContainerStatuses") or ()), *_statuses(pod)):
        count += found.get("restartCount", 0)
        last = max(last, ((found.get("lastState") or {}).get("terminated") or {}).get("finishedAt") or "")
    return f"{count} ({since(last)} ago)" if count and last else str(count)
