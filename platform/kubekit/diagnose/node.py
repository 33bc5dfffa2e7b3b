"""Causes in nodes: none fits, one is lost, one threw the pod out."""

from __future__ import annotations

import re
from typing import Any

from kubekit.diagnose.model import Context, Finding, excerpt, strip


def node_lost(context: Context) -> Finding | None:
    pod = context.pod
    if pod is None or not pod.unreachable:
        return None
    ready = pod.conditions.get("Ready")
    said = pod.message or (ready.message if ready is not None else "")
    since = ready.since if ready is not None else None
    return Finding(
        code="node_lost", params={"node": pod.node or "", "since": since}, evidence=(said,) if said else (),
        next="wait_or_tell_admin",
    )  # fmt: skip


def thrown_out(context: Context) -> Finding | None:
    pod = context.pod
    if pod is None:
        return None
    if pod.reason == "DeadlineExceeded":
        return Finding(code="deadline_exceeded", evidence=strip(pod.message), next="raise_timeout")
    disruption = pod.conditions.get("DisruptionTarget")
    why = disruption.reason if disruption is not None and disruption.true else ""
    text = strip(pod.message, disruption.message if disruption is not None else "")
    if why == "PreemptionByScheduler" or pod.reason in ("Preempting", "Preempted") or context.said("Preempted"):
        return Finding(code="preempted", evidence=text, next="start_again")
    if pod.reason == "Evicted" or why in ("TerminationByKubelet", "EvictionByEvictionAPI"):
        lacking = re.search(r"low on resource: ([a-z-]+)", pod.message)
        own = OWN_DISK_LIMIT.search(pod.message)
        if own is not None:
            return Finding(code="disk_limit", evidence=text, next="write_to_volume")
        params = {"node": pod.node or "", "resource": lacking[1] if lacking else ""}
        return Finding(code="evicted", params=params, evidence=text, next="start_again")
    return None


#: The kubelet's texts when a pod is thrown out for its own doing rather than its node's.
OWN_DISK_LIMIT = re.compile(r"exceeds the (total )?limit|exceeded its local ephemeral storage limit", re.ASCII)

#: A scheduler writes a few hundred characters; what is longer is no list of nodes.
_LONGEST_TEXT = 4000
_NODE_COUNT = re.compile(r"(?<!\d)(\d{1,6})/(\d+) nodes are available")
_INSUFFICIENT = re.compile(r"(?<!\d)(\d{1,6}) Insufficient ([^\s,.;]+(?:\.[^\s,.;]+)*)")
_TOO_MANY = re.compile(r"(?<!\d)(\d{1,6}) Too many pods")
_TAINT = re.compile(r"(?<!\d)(\d{1,6}) node\(s\) had (?:untolerated )?taints?(?:\(s\))?\s*(\{[^}]*\})?")
_SELECTOR = re.compile(r"(?<!\d)(\d{1,6}) node\(s\) didn't match (?:Pod's node affinity(?:/selector)?|node selector)")
_VOLUME_NODE = re.compile(r"(?<!\d)(\d{1,6}) node\(s\) had volume node affinity conflict")
UNBOUND = re.compile(r"unbound immediate PersistentVolumeClaims|didn't find available persistent volumes")
NO_CLAIM = re.compile(r'persistentvolumeclaim "([^"]+)" (?:not found|is being deleted)')


def unscheduled_text(context: Context) -> str:
    """What the scheduler last said, while there is no node; short enough for the patterns above."""
    pod = context.pod
    condition = pod.conditions.get("PodScheduled") if pod is not None else None
    if condition is not None and not condition.true and condition.message:
        return condition.message[:_LONGEST_TEXT]
    note = context.said("FailedScheduling")
    return note.message[:_LONGEST_TEXT] if note is not None and (pod is None or pod.node is None) else ""


def no_node(context: Context) -> Finding | None:
    text = unscheduled_text(context)
    if not text or UNBOUND.search(text) or NO_CLAIM.search(text):
        return None
    # What follows "preemption:" repeats the nodes by another measure.
    counted = text.partition("preemption:")[0]
    total = _NODE_COUNT.search(counted)
    lacking = {name.rstrip("."): int(count) for count, name in _INSUFFICIENT.findall(counted)}
    mismatch = {
        "selector": sum(int(n) for n in _SELECTOR.findall(counted)),
        "volume": sum(int(n) for n in _VOLUME_NODE.findall(counted)),
        "taint": sum(int(n) for n, _ in _TAINT.findall(counted)),
    }
    params: dict[str, Any] = {"nodes": int(total[2]) if total else None, "lacking": lacking}
    taints = sorted({taint for _, taint in _TAINT.findall(counted) if taint})
    evidence = (excerpt(text),)
    gpus = [name for name in lacking if "/" in name]
    if gpus:
        return Finding(
            code="no_node_gpu", params={**params, "resource": gpus[0]}, evidence=evidence, next="smaller_size"
        )
    for resource in ("memory", "cpu"):
        if resource in lacking:
            return Finding(code=f"no_node_{resource}", params=params, evidence=evidence, next="smaller_size")
    if _TOO_MANY.search(counted):
        return Finding(code="no_node_pods", params=params, evidence=evidence, next="wait_or_tell_admin")
    if any(mismatch.values()):
        matched = {**params, **mismatch, "taints": taints}
        return Finding(code="placement_mismatch", params=matched, evidence=evidence, next="ask_admin")
    return Finding(code="no_node_fits", params=params, evidence=evidence, next="wait_or_tell_admin")


def node_refused(context: Context) -> Finding | None:
    pod = context.pod
    if pod is None or pod.phase != "Failed" or not refused_by_node(pod.reason):
        return None
    return Finding(code="node_refused", params={"reason": pod.reason}, evidence=strip(pod.message), next="start_again")


_REFUSALS = frozenset({
    "NodeAffinity", "NodePorts", "UnexpectedAdmissionError", "TopologyAffinityError", "InvalidNodeInfo",
    "PodOSSelectorNodeLabelDoesNotMatch", "SMTAlignmentError", "NodeNotReady",
})  # fmt: skip


def refused_by_node(reason: str) -> bool:
    """Whether a pod's reason means that the kubelet never let it start (OutOfcpu, UnexpectedAdmissionError ...)."""
    return reason in _REFUSALS or reason.startswith("OutOf")


def node_trouble(context: Context) -> Finding | None:
    main = context.pod.main if context.pod is not None else None
    note = context.said("FailedCreatePodSandBox")
    if note is None or (main is not None and main.state != "waiting"):
        return None
    return Finding(code="node_trouble", params={"node": context.pod.node if context.pod else ""},
                   evidence=strip(note.message), next="wait_or_tell_admin")  # fmt: skip
