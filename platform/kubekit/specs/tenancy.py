"""Specifications of what a team is given: volumes and queues."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from types import MappingProxyType

from kubekit import names
from kubekit.quantities import scale

from .checks import ACCESS_MODES, POD_SECURITY_LEVELS, require, require_extended_resource, require_name
from .common import Identity


def _is_range(text: str, family: int | None) -> bool:
    try:
        network = ipaddress.ip_network(text)
    except ValueError:
        return False
    return family is None or network.version == family


@dataclass(frozen=True, kw_only=True)
class ClaimSpec:
    """A volume: a PersistentVolumeClaim of its own, which outlives every pod that mounts it."""

    identity: Identity
    namespace: str
    storage_bytes: int
    access_mode: str = "ReadWriteOnce"
    storage_class: str | None = None

    def __post_init__(self) -> None:
        require_name(self.namespace, "namespace")
        require(self.storage_bytes > 0, "bad_storage", "storage_bytes", "must be more than 0")
        require(
            self.access_mode in ACCESS_MODES,
            "bad_access_mode",
            "access_mode",
            f"must be one of {', '.join(ACCESS_MODES)}",
        )
        storage_class = self.storage_class
        require(storage_class is None or names.is_dns_name(storage_class), "bad_name", "storage_class", "not a name")

    @property
    def object_name(self) -> str:
        """Name of the claim."""
        return names.claim_name(self.identity.name, self.identity.id)


@dataclass(frozen=True, kw_only=True)
class QueueSpec:
    """A queue: a namespace with its ResourceQuota, LimitRange and network policies.

    ``cpu_millis`` and ``memory_bytes`` bound what pods *request*; what they may *burst* to (limits) is that times the
    oversell ratio (>= 1). ``gpus`` maps an extended resource (``nvidia.com/gpu``) to a count. ``extra_quota`` is
    for further counts; a key the server would store without enforcing is refused.
    """

    identity: Identity
    cpu_millis: int
    memory_bytes: int
    storage_bytes: int
    claims: int
    pods: int
    gpus: Mapping[str, int] = field(default_factory=dict)
    oversell_cpu: Decimal | int | float = 1
    oversell_memory: Decimal | int | float = 1
    extra_quota: Mapping[str, int] = field(default_factory=dict)
    default_cpu_millis: int = 500
    default_memory_bytes: int = 1 << 30
    pod_security: str = "baseline"
    ingress_namespaces: tuple[str, ...] = ()
    dns_namespace: str = "kube-system"
    outside: bool = True
    blocked_ranges: tuple[str, ...] = (
        "10.0.0.0/8",
        "100.64.0.0/10",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "198.18.0.0/15",
    )
    blocked_ranges_v6: tuple[str, ...] = ("fc00::/7", "fe80::/10")
    allowed_ranges: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for where in ("gpus", "extra_quota"):
            object.__setattr__(self, where, MappingProxyType(dict(getattr(self, where))))
        for where in ("cpu_millis", "memory_bytes", "storage_bytes", "claims", "pods"):
            require(getattr(self, where) >= 0, "negative_quota", where, "must not be negative")
        for resource, count in self.gpus.items():
            require_extended_resource(resource, "gpus")
            require(count >= 0, "negative_quota", "gpus", f"{resource} must not be negative")
        for where in ("oversell_cpu", "oversell_memory"):
            require(getattr(self, where) >= 1, "bad_oversell", where, "must be 1 or more")
        for where in ("default_cpu_millis", "default_memory_bytes"):
            require(getattr(self, where) > 0, "bad_default", where, "must be more than 0")
        require(
            self.pod_security in POD_SECURITY_LEVELS,
            "bad_pod_security",
            "pod_security",
            f"must be one of {', '.join(POD_SECURITY_LEVELS)}",
        )
        for where, family in (("blocked_ranges", 4), ("blocked_ranges_v6", 6), ("allowed_ranges", None)):
            for cidr in getattr(self, where):
                require(_is_range(cidr, family), "bad_range", where, f"{cidr!r} is not a network such as 10.0.0.0/8")
        for namespace in (*self.ingress_namespaces, self.dns_namespace):
            require_name(namespace, "ingress_namespaces")

    @property
    def namespace(self) -> str:
        """Name of the namespace; never reused, because the queue's id is in it."""
        return names.namespace_name(self.identity.name, self.identity.id)

    @property
    def limit_cpu_millis(self) -> int:
        """What all limits together may reach."""
        return scale(self.cpu_millis, self.oversell_cpu)

    @property
    def limit_memory_bytes(self) -> int:
        """What all limits together may reach."""
        return scale(self.memory_bytes, self.oversell_memory)
