"""The kinds the portal touches and where the API serves them."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from .errors import SpecError


@dataclass(frozen=True)
class Kind:
    """One row of the table: ``api_version`` ("apps/v1"), path ``plural``, and whether objects live in a namespace."""

    name: str
    api_version: str
    plural: str
    namespaced: bool = True

    @property
    def group(self) -> str:
        """API group, empty for the core group."""
        return self.api_version.rpartition("/")[0]

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """Path below the server's address, every part percent-encoded.

        Raises `SpecError` when a namespace is given to a cluster-wide kind, or missing where an object is named.
        """
        if not self.namespaced and namespace is not None:
            raise SpecError("no_namespace_allowed", "namespace", f"{self.name} does not live in a namespace")
        if self.namespaced and namespace is None and name is not None:
            raise SpecError("namespace_missing", "namespace", f"{self.name} {name} needs its namespace")
        root = f"/apis/{self.api_version}" if self.group else f"/api/{self.api_version}"
        scope = f"/namespaces/{quote(namespace, safe='')}" if namespace is not None else ""
        tail = "".join(f"/{quote(part, safe='')}" for part in (name, subresource) if part is not None)
        return f"{root}{scope}/{self.plural}{tail}"


_TABLE = (
    Kind("Namespace", "v1", "namespaces", namespaced=False),
    Kind("Node", "v1", "nodes", namespaced=False),
    Kind("PersistentVolume", "v1", "persistentvolumes", namespaced=False),
    Kind("Pod", "v1", "pods"),
    Kind("Service", "v1", "services"),
    Kind("Secret", "v1", "secrets"),
    Kind("ConfigMap", "v1", "configmaps"),
    Kind("Event", "v1", "events"),
    Kind("PersistentVolumeClaim", "v1", "persistentvolumeclaims"),
    Kind("ResourceQuota", "v1", "resourcequotas"),
    Kind("LimitRange", "v1", "limitranges"),
    Kind("ServiceAccount", "v1", "serviceaccounts"),
    Kind("StatefulSet", "apps/v1", "statefulsets"),
    Kind("Deployment", "apps/v1", "deployments"),
    Kind("Job", "batch/v1", "jobs"),
    Kind("Ingress", "networking.k8s.io/v1", "ingresses"),
    Kind("IngressClass", "networking.k8s.io/v1", "ingressclasses", namespaced=False),
    Kind("NetworkPolicy", "networking.k8s.io/v1", "networkpolicies"),
    Kind("PriorityClass", "scheduling.k8s.io/v1", "priorityclasses", namespaced=False),
    Kind("StorageClass", "storage.k8s.io/v1", "storageclasses", namespaced=False),
    Kind("HTTPRoute", "gateway.networking.k8s.io/v1", "httproutes"),
    Kind("Gateway", "gateway.networking.k8s.io/v1", "gateways"),
    Kind("GatewayClass", "gateway.networking.k8s.io/v1", "gatewayclasses", namespaced=False),
    Kind("NodeMetrics", "metrics.k8s.io/v1beta1", "nodes", namespaced=False),
    Kind("SelfSubjectAccessReview", "authorization.k8s.io/v1", "selfsubjectaccessreviews", namespaced=False),
    Kind("SelfSubjectReview", "authentication.k8s.io/v1", "selfsubjectreviews", namespaced=False),
)

KINDS: dict[str, Kind] = {kind.name: kind for kind in _TABLE}


def kind_named(name: str) -> Kind:
    """The table's row; raises `SpecError` ``unknown_kind``."""
    try:
        return KINDS[name]
    except KeyError:
        raise SpecError("unknown_kind", "kind", f"{name!r} is not a kind the portal uses") from None
