"""A queue: its namespace and everything that bounds it, rendered together so that no part can be forgotten.

Measured on a real server: it accepts ``limits.nvidia.com/gpu`` and plain ``nvidia.com/gpu`` as quota keys and enforces
neither, so an unknown key here is a hole that nobody sees. Only keys in `_COUNTED` and ``requests.<extended resource>``
are rendered; everything else raises `SpecError` ``unknown_quota_key``.
"""

from __future__ import annotations

import re
from typing import Any

from kubekit import names
from kubekit.build import pod
from kubekit.errors import SpecError
from kubekit.quantities import format_bytes, format_cpu
from kubekit.specs import QueueSpec

Obj = dict[str, Any]

QUOTA_NAME = "queue"
LIMITS_NAME = "queue"

#: Keys that ResourceQuota really enforces and that the portal has a use for.
_COUNTED = frozenset({
    "requests.cpu", "limits.cpu", "requests.memory", "limits.memory", "requests.storage", "persistentvolumeclaims",
    "pods", "requests.ephemeral-storage", "limits.ephemeral-storage", "services", "services.loadbalancers",
    "services.nodeports", "secrets", "configmaps", "count/pods", "count/jobs.batch", "count/statefulsets.apps",
    "count/deployments.apps", "count/services", "count/secrets", "count/configmaps",
    "count/persistentvolumeclaims", "count/ingresses.networking.k8s.io",
})  # fmt: skip
_PER_STORAGE_CLASS = re.compile(
    r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?\.storageclass\.storage\.k8s\.io/(requests\.storage|persistentvolumeclaims)",
    re.ASCII,
)
_NAMESPACE_NAME = "kubernetes.io/metadata.name"


def objects(spec: QueueSpec) -> list[Obj]:
    """Everything of the queue in the order to apply it: bounds stand before the first pod can come."""
    return [namespace(spec), resource_quota(spec), limit_range(spec), *network_policies(spec)]


def namespace(spec: QueueSpec) -> Obj:
    """The namespace with its Pod Security level enforced."""
    metadata = pod.metadata(spec.identity, "namespace", name=spec.namespace)
    for mode in ("enforce", "audit", "warn"):
        metadata["labels"][f"pod-security.kubernetes.io/{mode}"] = spec.pod_security
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def hard_limits(spec: QueueSpec) -> dict[str, str]:
    """``spec.hard`` of the quota. CPU and memory bound requests and limits, GPUs and storage requests only."""
    hard = {
        "requests.cpu": format_cpu(spec.cpu_millis),
        "limits.cpu": format_cpu(spec.limit_cpu_millis),
        "requests.memory": format_bytes(spec.memory_bytes),
        "limits.memory": format_bytes(spec.limit_memory_bytes),
        "requests.storage": format_bytes(spec.storage_bytes),
        "persistentvolumeclaims": str(spec.claims),
        "pods": str(spec.pods),
        "services.loadbalancers": "0",
        "services.nodeports": "0",
        **{f"requests.{resource}": str(count) for resource, count in sorted(spec.gpus.items())},
    }
    for key, count in sorted(spec.extra_quota.items()):
        check_quota_key(key)
        hard[key] = str(count)
    return hard


def check_quota_key(key: str) -> None:
    """Raise `SpecError` unless a server enforces ``key``."""
    if key in _COUNTED or _PER_STORAGE_CLASS.fullmatch(key):
        return
    hint = "; GPUs go into gpus, under the resource's own name" if "gpu" in key else ""
    raise SpecError("unknown_quota_key", "extra_quota", f"{key!r} would be stored and never enforced{hint}")


def resource_quota(spec: QueueSpec) -> Obj:
    """The namespace's ResourceQuota: the judge, whatever the portal's own ledger says."""
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": pod.metadata(spec.identity, "quota", name=QUOTA_NAME, namespace=spec.namespace),
        "spec": {"hard": hard_limits(spec)},
    }


def limit_range(spec: QueueSpec) -> Obj:
    """Defaults for containers that name no resources; without them the quota would refuse such pods outright."""
    default = {"cpu": format_cpu(spec.default_cpu_millis), "memory": format_bytes(spec.default_memory_bytes)}
    return {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": pod.metadata(spec.identity, "defaults", name=LIMITS_NAME, namespace=spec.namespace),
        "spec": {"limits": [{"type": "Container", "default": default, "defaultRequest": dict(default)}]},
    }


def network_policies(spec: QueueSpec) -> list[Obj]:
    """Nothing in and nothing out, then what is needed: DNS, the outside world, and the entrance to instances."""
    policies = [
        _policy(spec, "default-deny", {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}),
        _policy(spec, "allow-dns", {"podSelector": {}, "policyTypes": ["Egress"], "egress": [_dns(spec)]}),
    ]
    if spec.outside or spec.allowed_ranges:
        # An empty "to" would mean everywhere.
        egress: list[Obj] = []
        if spec.allowed_ranges:
            egress.append({"to": [{"ipBlock": {"cidr": cidr}} for cidr in spec.allowed_ranges]})
        if spec.outside:
            egress.append(
                {
                    "to": [
                        {"ipBlock": {"cidr": "0.0.0.0/0", "except": list(spec.blocked_ranges)}},
                        {"ipBlock": {"cidr": "::/0", "except": list(spec.blocked_ranges_v6)}},
                    ]
                }
            )
        policies.append(
            _policy(spec, "allow-outside", {"podSelector": {}, "policyTypes": ["Egress"], "egress": egress})
        )
    if spec.ingress_namespaces:
        peers = [{"namespaceSelector": {"matchLabels": {_NAMESPACE_NAME: name}}} for name in spec.ingress_namespaces]
        policies.append(
            _policy(
                spec,
                "allow-entrance",
                {
                    "podSelector": {"matchLabels": {names.INSTALL: spec.identity.install, names.KIND: "instance"}},
                    "policyTypes": ["Ingress"],
                    "ingress": [{"from": peers}],
                },
            )
        )
    return policies


def _dns(spec: QueueSpec) -> Obj:
    return {
        "to": [{"namespaceSelector": {"matchLabels": {_NAMESPACE_NAME: spec.dns_namespace}}}],
        "ports": [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")],
    }


def _policy(spec: QueueSpec, name: str, body: Obj) -> Obj:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": pod.metadata(spec.identity, "network", name=name, namespace=spec.namespace),
        "spec": body,
    }
