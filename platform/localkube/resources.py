"""The table of kinds that localkube serves, and the custom ones that CustomResourceDefinitions add."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

VERBS: Final = ("create", "delete", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True)
class Resource:
    """One served kind. `key` is the name used everywhere inside: the plural, for custom kinds `plural.group`."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    custom: bool = False
    generation: bool = True

    @property
    def key(self) -> str:
        return f"{self.plural}.{self.group}" if self.custom else self.plural

    @property
    def qualified(self) -> str:
        """`plural.group`, or the plural alone in the core group: how error texts name a resource."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def has_status(self) -> bool:
        return "status" in self.subresources


def _core(plural: str, kind: str, short: str = "", **more: Any) -> Resource:
    return Resource("", "v1", plural, kind, short_names=tuple(short.split()), **({"generation": False} | more))


def _v1(group: str, plural: str, kind: str, short: str = "", **more: Any) -> Resource:
    return Resource(group, "v1", plural, kind, short_names=tuple(short.split()), **more)


_STATUS: Final[dict[str, Any]] = {"subresources": ("status",)}
_CLUSTER: Final[dict[str, Any]] = {"namespaced": False}
_ALL: Final[dict[str, Any]] = {"categories": ("all",)}
_POD: Final[dict[str, Any]] = {"subresources": ("status", "log", "exec", "portforward"), "generation": True}

BUILTIN: Final[tuple[Resource, ...]] = (
    _core("namespaces", "Namespace", "ns", **_CLUSTER, **_STATUS),
    _core("pods", "Pod", "po", **_ALL, **_POD),
    _core("services", "Service", "svc", **_ALL, **_STATUS),
    _core("secrets", "Secret"),
    _core("configmaps", "ConfigMap", "cm"),
    _core("events", "Event", "ev"),
    _core("nodes", "Node", "no", **_CLUSTER, **_STATUS),
    _core("persistentvolumeclaims", "PersistentVolumeClaim", "pvc", **_STATUS),
    _core("persistentvolumes", "PersistentVolume", "pv", **_CLUSTER, **_STATUS),
    _core("serviceaccounts", "ServiceAccount", "sa"),
    _core("resourcequotas", "ResourceQuota", "quota", **_STATUS),
    _core("limitranges", "LimitRange", "limits"),
    _v1("apps", "statefulsets", "StatefulSet", "sts", **_ALL, subresources=("status", "scale")),
    _v1("batch", "jobs", "Job", **_ALL, **_STATUS),
    _v1("networking.k8s.io", "ingresses", "Ingress", "ing", **_STATUS),
    _v1("networking.k8s.io", "ingressclasses", "IngressClass", **_CLUSTER),
    _v1("networking.k8s.io", "networkpolicies", "NetworkPolicy", "netpol"),
    _v1("discovery.k8s.io", "endpointslices", "EndpointSlice"),
    _v1("coordination.k8s.io", "leases", "Lease", generation=False),
    _v1("storage.k8s.io", "storageclasses", "StorageClass", "sc", **_CLUSTER, generation=False),
    _v1("scheduling.k8s.io", "priorityclasses", "PriorityClass", "pc", **_CLUSTER),
    _v1("apiextensions.k8s.io", "customresourcedefinitions", "CustomResourceDefinition", "crd crds", **_CLUSTER,
        **_STATUS),
)  # fmt: skip

REFUSED: Final[dict[tuple[str, str], str]] = {
    ("apps", "deployments"): "Deployment (make a StatefulSet)",
    ("apps", "replicasets"): "ReplicaSet (make a StatefulSet)",
    ("apps", "daemonsets"): "DaemonSet",
    ("apps", "controllerrevisions"): "ControllerRevision",
    ("batch", "cronjobs"): "CronJob (schedules are the portal's own)",
    ("", "endpoints"): "Endpoints (read the EndpointSlices)",
    ("", "replicationcontrollers"): "ReplicationController",
    ("", "podtemplates"): "PodTemplate",
    ("autoscaling", "horizontalpodautoscalers"): "HorizontalPodAutoscaler",
    ("policy", "poddisruptionbudgets"): "PodDisruptionBudget",
    ("rbac.authorization.k8s.io", "roles"): "Role (its one user may do everything)",
    ("rbac.authorization.k8s.io", "rolebindings"): "RoleBinding",
    ("rbac.authorization.k8s.io", "clusterroles"): "ClusterRole",
    ("rbac.authorization.k8s.io", "clusterrolebindings"): "ClusterRoleBinding",
    ("events.k8s.io", "events"): "the events.k8s.io group (use the core group's events)",
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations"): "admission webhooks",
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"): "admission webhooks",
}
"""Kinds that a real server has and this one refuses with 501, with the words of the refusal."""


REFUSED_SUBRESOURCES: Final = {
    "pods": ("attach", "binding", "ephemeralcontainers", "eviction", "proxy", "resize"),
    "namespaces": ("finalize",),
    "services": ("proxy",),
    "nodes": ("proxy",),
    "serviceaccounts": ("token",),
}


class ResourceTable:
    """Looks kinds up by REST path or by key; grows and shrinks with the stored CustomResourceDefinitions."""

    def __init__(self) -> None:
        self._by_path = {(r.group, r.version, r.plural): r for r in BUILTIN}
        self._by_key = {r.key: r for r in BUILTIN}

    def __getitem__(self, key: str) -> Resource:
        return self._by_key[key]

    def __iter__(self) -> Iterator[Resource]:
        return iter(tuple(self._by_path.values()))

    def served(self) -> tuple[Resource, ...]:
        """Every kind once, in its storage version."""
        return tuple(self._by_key.values())

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        return self._by_path.get((group, version, plural))

    def set_custom(self, crd: dict[str, Any]) -> None:
        """Serve the kind of a CustomResourceDefinition in its one version (`schema` refuses several)."""
        self.drop_custom(crd)
        spec = crd["spec"]
        names = spec["names"]
        for version in spec["versions"]:
            resource = Resource(
                spec["group"],
                version["name"],
                names["plural"],
                names["kind"],
                namespaced=spec.get("scope", "Namespaced") == "Namespaced",
                singular=names.get("singular", names["kind"].lower()),
                short_names=tuple(names.get("shortNames", ())),
                categories=tuple(names.get("categories", ())),
                subresources=("status",) if "status" in version.get("subresources", {}) else (),
                custom=True,
            )
            self._by_path[(resource.group, resource.version, resource.plural)] = resource
            self._by_key[resource.key] = resource

    def drop_custom(self, crd: dict[str, Any]) -> None:
        spec = crd["spec"]
        self._by_key.pop(f"{spec['names']['plural']}.{spec['group']}", None)
        for path, resource in tuple(self._by_path.items()):
            if resource.custom and (path[0], path[2]) == (spec["group"], spec["names"]["plural"]):
                del self._by_path[path]
