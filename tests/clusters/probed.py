"""A cluster in memory in which a check can try things out: pods run, knock at each other and end, as ordered."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from kubekit.checkup.tried import SETTLED
from kubekit.errors import KubeError, NotFound, PermissionDenied, PodSecurityRefused
from tests.clusters.fake import FakeCluster

Obj = dict[str, Any]


class ProbedCluster(FakeCluster):
    """``policies``: ``enforced``, ``stored``, ``into`` (one way alone), ``apart`` (nobody meets) or ``dies`` (the
    pods stop knocking). ``denied`` holds (verb, kind); ``pods`` False lets none start; ``bound`` the access modes for
    which volumes come."""

    def __init__(self) -> None:
        super().__init__()
        self.policies = "enforced"
        self.denied: set[tuple[str, str]] = set()
        self.pods = True
        self.bound = {"ReadWriteOnce", "ReadWriteMany"}
        self.uid_map = "0 3282370560 65536\n"
        self.knocks: dict[str, list[str]] = {"guarded": [], "free": []}
        self.labels_asked: list[Mapping[str, str]] = []
        self.gateway_api: tuple[str, ...] = ()

    def whoami(self) -> str:
        return "system:serviceaccount:portal:robot"

    def served(self, group: str) -> tuple[str, ...]:
        return self.gateway_api

    def access_review(self, *, verb: str, kind: str, subresource: str | None = None, **_: object) -> bool:
        return (verb, f"{kind}/{subresource}" if subresource else kind) not in self.denied

    def create(self, obj: Mapping[str, Any], *, dry_run: bool = False) -> Obj:
        kind = obj["kind"]
        self._may("create", kind)
        if dry_run:
            raise PodSecurityRefused('violates PodSecurity "baseline:latest": privileged', status=403)
        made = self.apply(obj)
        stored = self.objects[kind, obj["metadata"].get("namespace"), obj["metadata"]["name"]]
        if kind == "Namespace":
            made["metadata"]["creationTimestamp"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        if kind == "PersistentVolumeClaim" and stored["spec"]["accessModes"][0] in self.bound:
            stored["status"] = {"phase": "Bound"}
        if kind == "Pod":
            stored["status"] = self._status(obj["metadata"]["name"])
        return made

    def _status(self, name: str) -> Obj:
        if not self.pods:
            waiting = {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}
            return {"phase": "Pending", "containerStatuses": [{"name": "main", "state": waiting}]}
        ended = name == "mapped"
        state = {"terminated": {"exitCode": 0}} if ended else {"running": {}}
        return {
            "phase": "Succeeded" if ended else "Running",
            "podIP": "10.0.0.1",
            "containerStatuses": [{"name": "main", "state": state}],
        }

    def get(self, kind: str, namespace: str | None, name: str) -> Obj:
        self._may("get", kind)
        return super().get(kind, namespace, name)

    def list(self, kind: str, namespace: str | None = None, **given: Any) -> Any:
        self._may("list", kind)
        if kind == "NodeMetrics":
            raise NotFound("the server could not find the requested resource", status=404)
        return super().list(kind, namespace, **given)

    def log_tail(self, namespace: str, pod: str, container: str, **_: Any) -> bytes:
        if pod == "mapped":
            return self.uid_map.encode()
        words = self.knocks[pod]
        in_force = self._in_force()
        if not (self.policies == "dies" and in_force):
            shut = (
                self.policies == "apart"
                or (in_force and self.policies == "enforced")
                or (in_force and self.policies == "into" and pod == "free")
            )
            words.extend(["shut" if shut else "open"] * SETTLED)  # so one look is enough, however slow the machine
        return "\n".join(["up", *words]).encode()

    def _in_force(self) -> bool:
        policies = [obj for (kind, _n, _name), obj in self.objects.items() if kind == "NetworkPolicy"]
        return any("guarded" in policy["spec"]["podSelector"]["matchLabels"].values() for policy in policies)

    def delete(self, kind: str, namespace: str | None, name: str, **given: Any) -> Obj:
        answer = super().delete(kind, namespace, name, **given)
        if kind == "Namespace":
            self.objects = {key: obj for key, obj in self.objects.items() if key[1] != name}
        return answer

    def _may(self, verb: str, kind: str) -> None:
        if (verb, kind) in self.denied:
            raise _denial(verb, kind)

    def namespaces(self) -> list[str]:
        return [name for kind, _namespace, name in self.objects if kind == "Namespace"]


def _denial(verb: str, kind: str) -> KubeError:
    text = f'{kind} is forbidden: User "robot" cannot {verb} resource "{kind}"'
    return PermissionDenied(text, verb=verb, resource=kind, status=403)


def storage_class(name: str, *, default: bool = True, **more: Any) -> Obj:
    """A StorageClass as listed."""
    mark = {"storageclass.kubernetes.io/is-default-class": "true"} if default else {}
    return copy.deepcopy({"metadata": {"name": name, "annotations": mark}, "reclaimPolicy": "Delete", **more})
