"""Causes in the program: its configuration, its memory, its end, its silence."""

from __future__ import annotations

import re

from kubekit.diagnose.model import Context, Finding, ended_container, lines, restarts, strip

#: Failed probes of a second each before an instance is called silent rather than busy starting.
_PROBE_PATIENCE = 15
#: A program that lived less long than this never really began.
_START_S = 60.0


def bad_config(context: Context) -> Finding | None:
    main = context.pod.main if context.pod is not None else None
    if (
        main is None
        or main.state != "waiting"
        or main.reason not in ("CreateContainerConfigError", "CreateContainerError")
    ):
        return None
    found = re.search(r"(secret|configmap) \"([^\"]+)\" not found", main.message, re.IGNORECASE)
    params = {"kind": found[1].lower(), "name": found[2]} if found else {}
    return Finding(code="config_missing" if found else "config_error", params=params, evidence=strip(main.message),
                   next="start_again" if found else "ask_admin")  # fmt: skip


def out_of_memory(context: Context) -> Finding | None:
    ended, pod = ended_container(context), context.pod
    if ended is None or pod is None or pod.ready or ended.reason != "OOMKilled":
        return None
    params = {"memory_bytes": pod.memory_limit_bytes, "restarts": ended.restarts or restarts(pod)}
    return Finding(code="out_of_memory", params=params, evidence=lines(context.log_tail), next="bigger_size")


def bad_command(context: Context) -> Finding | None:
    ended, pod = ended_container(context), context.pod
    main = pod.main if pod is not None else None
    if main is not None and main.state == "waiting" and main.reason in ("RunContainerError", "StartError"):
        return Finding(code="command_not_found", evidence=strip(main.message), next="fix_command")
    if ended is None or (pod is not None and pod.ready) or not start_failed(ended.reason):
        return None
    params = {"exit_code": ended.exit_code}
    return Finding(code="command_not_found", params=params, evidence=strip(ended.message), next="fix_command")


def start_failed(reason: str) -> bool:
    """Whether a terminated container's reason means that its program could not even be executed."""
    return reason in ("StartError", "ContainerCannotRun", "RunContainerError")


def crashed(context: Context) -> Finding | None:
    ended, pod = ended_container(context), context.pod
    if ended is None or pod is None or pod.ready or (ended.exit_code == 0 and pod.finished):
        return None
    ran_s = 0.0
    if ended.started_at is not None and ended.finished_at is not None:
        ran_s = (ended.finished_at - ended.started_at).total_seconds()
    params = {"exit_code": ended.exit_code, "restarts": restarts(pod), "signal": ended.signal, "ran_s": int(ran_s)}
    evidence = lines(ended.message) or lines(context.log_tail)
    code = "crashed_at_start" if ran_s < _START_S else "crashed"
    return Finding(code=code, params=params, evidence=evidence, next="see_log")


def not_answering(context: Context) -> Finding | None:
    pod = context.pod
    main = pod.main if pod is not None else None
    note = context.said("Unhealthy")
    if pod is None or main is None or main.state != "running" or pod.ready or note is None:
        return None
    # A program that has just begun fails its probe for good reasons.
    if note.count < _PROBE_PATIENCE and context.waited_s < context.start_timeout_s:
        return None
    return Finding(code="not_answering", params={"failures": note.count}, evidence=strip(note.message), next="see_log")


def too_slow(context: Context) -> Finding | None:
    pod = context.pod
    if context.waited_s < context.start_timeout_s or (pod is not None and (pod.ready or pod.finished)):
        return None
    params = {"waited_s": int(context.waited_s), "timeout_s": int(context.start_timeout_s)}
    return Finding(code="start_timeout", params=params, evidence=context.warnings(), next="start_again")
