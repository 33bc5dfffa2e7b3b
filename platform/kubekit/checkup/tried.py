"""Verdicts on what was tried in a cluster: storage, Pod Security, user namespaces, network policy."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kubekit.checkup.model import Line, Result
from kubekit.errors import Forbidden, Invalid, KubeError, NotImplementedByCluster

SETTLED = 3
"""So many knocks with one and the same result are believed."""
_MAP = re.compile(r"^\s*(\d+)\s+(\d+)\s+(\d+)\s*$", re.MULTILINE | re.ASCII)
_FIREWALL_URL = (
    "https://raw.githubusercontent.com/cloudnativelabs/kube-router/master/daemonset/kube-router-firewall-daemonset.yaml"
)


@dataclass(frozen=True, kw_only=True)
class ClaimTrial:
    """What became of one claim: ``said`` is what the cluster said about one that got no volume."""

    bound: bool
    said: tuple[str, ...] = ()


def storage(name: str, trials: Mapping[str, ClaimTrial], *, used: bool) -> Line:
    """One class by what became of a claim in each access mode; ``used`` when volumes of the portal come from it."""
    good = [mode for mode, trial in trials.items() if trial.bound]
    bad = [mode for mode, trial in trials.items() if not trial.bound]
    params = {"name": name, "modes": ", ".join(good), "without": ", ".join(bad)}
    said = tuple(line for mode in bad for line in trials[mode].said)[:5]
    if not bad:
        return Line(topic="storage", code="storage_good", result="good", params=params)
    if good:
        return Line(topic="storage", code="storage_partly", result="note", params=params, evidence=said)
    command = f"kubectl describe storageclass {name}"
    result: Result = "missing" if used else "note"
    return Line(topic="storage", code="storage_fails", result=result, params=params, command=command, evidence=said)


def storage_kept(name: str) -> Line:
    """A class that keeps what is released is not tried: a volume would be left behind."""
    return Line(topic="storage", code="storage_not_tried", result="note", params={"name": name})


def pod_security(answer: KubeError | None, *, level: str) -> Line:
    """By what the server answers to a privileged pod (as a dry run) in a namespace with the queues' level."""
    params = {"level": level}
    if answer is None:
        command = "kube-apiserver --enable-admission-plugins=PodSecurity"
        return Line(topic="pod_security", code="pod_security_ignored", result="missing", params=params, command=command)
    if isinstance(answer, Forbidden):
        return Line(topic="pod_security", code="pod_security_good", result="good", params=params)
    known = isinstance(answer, NotImplementedByCluster | Invalid)
    return Line(
        topic="pod_security",
        code="pod_security_other" if known else "not_told",
        result="note" if known else "unknown",
        params=params,
        evidence=(answer.message,),
    )


def user_namespaces(uid_map: str, *, why: Sequence[str] = (), wanted: bool) -> Line:
    """By ``/proc/self/uid_map`` of a pod that asked for a user namespace; ``why`` when it never ran."""
    absent: Result = "missing" if wanted else "note"
    rows = [tuple(map(int, found)) for found in _MAP.findall(uid_map)]
    if not rows:
        return Line(topic="user_namespaces", code="user_namespaces_fails", result=absent, evidence=tuple(why)[:5])
    if any(inside == outside == 0 for inside, outside, _count in rows):
        return Line(topic="user_namespaces", code="user_namespaces_ignored", result=absent, evidence=(_plain(uid_map),))
    code = "user_namespaces_good" if wanted else "user_namespaces_unused"
    return Line(topic="user_namespaces", code=code, result="good" if wanted else "note", evidence=(_plain(uid_map),))


def _plain(text: str) -> str:
    return "; ".join(" ".join(row.split()) for row in text.splitlines() if row.strip())


@dataclass(frozen=True, kw_only=True)
class Knocks:
    """What one pod's log says of its knocking at the other: ``count`` of all, ``last`` few of them."""

    count: int = 0
    last: tuple[str, ...] = ()

    def all(self, word: str) -> bool:
        """Whether the last few were all ``open`` (or all ``shut``)."""
        return len(self.last) >= SETTLED and set(self.last[-SETTLED:]) == {word}


def knocks(log: bytes) -> Knocks:
    """Read the log of a pod of `kubekit.build.probe`."""
    words = [line for line in log.decode("utf-8", "replace").split() if line in ("open", "shut")]
    return Knocks(count=len(words), last=tuple(words[-SETTLED:]))


@dataclass(frozen=True, kw_only=True)
class NetworkTrial:
    """Two pods, one of them under a policy that denies all, in both directions (``into`` and ``out of`` it).

    ``why`` when they never ran; ``open_before`` without the policy; ``shut`` and ``alive`` (still knocking) under it;
    ``open_after`` once it was taken away again. ``seconds``: from the policy until both were shut.
    """

    ran: bool = False
    why: tuple[str, ...] = ()
    open_before: bool = False
    shut: Mapping[str, bool] = field(default_factory=dict)
    alive: bool = False
    open_after: bool = False
    seconds: float = 0.0


def network(trial: NetworkTrial) -> Line:
    """Whether network policies are enforced. Anything that does not fit together is said to be unknown, never good."""
    command = f"kubectl apply -f {_FIREWALL_URL}"
    if not trial.ran:
        return _network("network_no_pods", "unknown", evidence=trial.why[:5])
    if not trial.open_before:
        return _network("network_no_path", "unknown")
    if not trial.alive:
        return _network("network_unclear", "unknown")
    shut = [way for way, is_shut in trial.shut.items() if is_shut]
    if not shut:
        return _network("network_stored", "missing", command=command)
    if len(shut) < len(trial.shut):
        return _network(f"network_only_{shut[0]}", "missing", command=command)
    if not trial.open_after:
        return _network("network_unclear", "unknown")
    return _network("network_enforced", "good", seconds=round(trial.seconds, 1))


def _network(code: str, result: Result, *, command: str = "", evidence: tuple[str, ...] = (), **params: float) -> Line:
    return Line(topic="network", code=code, result=result, params=params, command=command, evidence=evidence)
