"""The table of kinds that localkube serves, and the custom ones that CustomResourceDefinitions add."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

ALL_VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


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
    verbs: tuple[str, ...] = ALL_VERBS
    custom: bool = False
    generation: bool = True
    columns: tuple[dict[str, Any], ...] = field(default=(), hash=False, compare=False)

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
    return Resource("", "v1", plural, kind, short_names=tuple(short.split()), **more)


_STATUS: Final = ("status",)

BUILTIN: Final[tuple[Resource, ...]] = (
    _core("namespaces", "Namespace", "ns", namespaced=False, subresources=("status", "finalize"), generation=False),
    _core(
        "pods",
        "Pod",
        "po",
        categories=("all",),
        subresources=("status", "binding", "log", "exec", "attach", "portforward", "eviction"),
    ),
    _core("services", "Service", "svc", categories=("all",), subresources=_STATUS, generation=False),
    _core("endpoints", "Endpoints", "ep", generation=False),
    _core("secrets", "Secret", generation=False),
    _core("configmaps", "ConfigMap", "cm", generation=False),
    _core("events", "Event", "ev", generation=False),
    _core("nodes", "Node", "no", namespaced=False, subresources=_STATUS, generation=False),
    _core("persistentvolumeclaims", "PersistentVolumeClaim", "pvc", subresources=_STATUS, generation=False),
    _core("persistentvolumes", "PersistentVolume", "pv", namespaced=False, subresources=_STATUS, generation=False),
    _core("serviceaccounts", "ServiceAccount", "sa", generation=False),
    _core("resourcequotas", "ResourceQuota", "quota", subresources=_STATUS, generation=False),
    _core("limitranges", "LimitRange", "limits", generation=False),
    Resource(
        "apps",
        "v1",
        "statefulsets",
        "StatefulSet",
        short_names=("sts",),
        categories=("all",),
        subresources=("status", "scale"),
    ),
    Resource("batch", "v1", "jobs", "Job", categories=("all",), subresources=_STATUS),
    Resource("networking.k8s.io", "v1", "ingresses", "Ingress", short_names=("ing",), subresources=_STATUS),
    Resource("networking.k8s.io", "v1", "ingressclasses", "IngressClass", namespaced=False),
    Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", short_names=("netpol",)),
    Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice"),
    Resource("coordination.k8s.io", "v1", "leases", "Lease", generation=False),
    Resource(
        "storage.k8s.io",
        "v1",
        "storageclasses",
        "StorageClass",
        namespaced=False,
        short_names=("sc",),
        generation=False,
    ),
    Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False, short_names=("pc",)),
    Resource("rbac.authorization.k8s.io", "v1", "roles", "Role", generation=False),
    Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", generation=False),
    Resource(
        "apiextensions.k8s.io",
        "v1",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        namespaced=False,
        short_names=("crd", "crds"),
        categories=("api-extensions",),
        subresources=_STATUS,
    ),
)

REFUSED: Final[dict[tuple[str, str], str]] = {
    ("apps", "deployments"): "Deployment (make a StatefulSet)",
    ("apps", "replicasets"): "ReplicaSet (make a StatefulSet)",
    ("apps", "daemonsets"): "DaemonSet",
    ("apps", "controllerrevisions"): "ControllerRevision",
    ("batch", "cronjobs"): "CronJob (schedules are the portal's own)",
    ("", "replicationcontrollers"): "ReplicationController",
    ("", "podtemplates"): "PodTemplate",
    ("autoscaling", "horizontalpodautoscalers"): "HorizontalPodAutoscaler",
    ("policy", "poddisruptionbudgets"): "PodDisruptionBudget",
    ("rbac.authorization.k8s.io", "clusterroles"): "ClusterRole",
    ("rbac.authorization.k8s.io", "clusterrolebindings"): "ClusterRoleBinding",
    ("events.k8s.io", "events"): "the events.k8s.io group (use the core group's events)",
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations"): "admission webhooks",
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"): "admission webhooks",
}
"""Kinds that a real server has and this one refuses with 501, with the words of the refusal."""


REFUSED_SUBRESOURCES: Final = {
    "pods": ("resize", "ephemeralcontainers", "proxy"),
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

    def by_kind(self, api_version: str, kind: str) -> Resource | None:
        """The kind an owner reference or a manifest names, or None when nobody serves it."""
        for resource in self._by_path.values():
            if resource.kind == kind and resource.api_version == api_version:
                return resource
        return None

    def set_custom(self, crd: dict[str, Any]) -> None:
        """Serve every served version of a CustomResourceDefinition. All versions share one stored object."""
        self.drop_custom(crd)
        spec = crd["spec"]
        names = spec["names"]
        for version in spec["versions"]:
            if not version.get("served", True):
                continue
            subresources = tuple(name for name in ("status", "scale") if name in version.get("subresources", {}))
            resource = Resource(
                spec["group"],
                version["name"],
                names["plural"],
                names["kind"],
                namespaced=spec.get("scope", "Namespaced") == "Namespaced",
                singular=names.get("singular", names["kind"].lower()),
                short_names=tuple(names.get("shortNames", ())),
                categories=tuple(names.get("categories", ())),
                subresources=subresources,
                custom=True,
                columns=tuple(version.get("additionalPrinterColumns", ())),
            )
            self._by_path[(resource.group, resource.version, resource.plural)] = resource
            if version.get("storage") or resource.key not in self._by_key:
                self._by_key[resource.key] = resource

    def drop_custom(self, crd: dict[str, Any]) -> None:
        spec = crd["spec"]
        self._by_key.pop(f"{spec['names']['plural']}.{spec['group']}", None)
        for path, resource in tuple(self._by_path.items()):
            if resource.custom and (path[0], path[2]) == (spec["group"], spec["names"]["plural"]):
                del self._by_path[path]
