"""The fields each kind has, as far down as localkube looks: unknown ones are reported as the real server reports them,
known ones that nothing here acts on are stored with a warning, and what would mislead is refused.

Pods' own fields are the node's to judge (`NodeRuntime.check_pod`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from localkube import status
from localkube.resources import Resource
from localkube.status import ApiError, Object

_METADATA: Final = frozenset(
    (
        "name",
        "namespace",
        "generateName",
        "labels",
        "annotations",
        "finalizers",
        "ownerReferences",
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "managedFields",
        "selfLink",
    )
)
_EVENT: Final = (
    "involvedObject reason message source firstTimestamp lastTimestamp count type eventTime series action related "
    "reportingComponent reportingInstance"
)


@dataclass(frozen=True)
class Fields:
    """Field names of one kind: outside the spec, in the spec acted on, stored only, refused."""

    top: str = ""
    spec: str | None = None
    stored: str = ""
    refused: str = ""
    known: frozenset[str] = field(init=False, default=frozenset())

    def __post_init__(self) -> None:
        object.__setattr__(self, "known", frozenset(f"{self.spec} {self.stored} {self.refused}".split()))


FIELDS: Final[dict[str, Fields]] = {
    "namespaces": Fields(spec="finalizers"),
    "pods": Fields(top="spec"),
    "services": Fields(
        spec="ports selector clusterIP clusterIPs publishNotReadyAddresses type ipFamilies ipFamilyPolicy "
        "internalTrafficPolicy sessionAffinity externalName",
        stored="sessionAffinityConfig externalIPs externalTrafficPolicy healthCheckNodePort loadBalancerIP "
        "loadBalancerClass loadBalancerSourceRanges allocateLoadBalancerNodePorts trafficDistribution",
    ),
    "endpoints": Fields(top="subsets"),
    "endpointslices": Fields(top="addressType endpoints ports"),
    "secrets": Fields(top="data stringData type immutable"),
    "configmaps": Fields(top="data binaryData immutable"),
    "events": Fields(top=_EVENT),
    "nodes": Fields(spec="taints unschedulable podCIDR podCIDRs providerID configSource externalID"),
    "persistentvolumeclaims": Fields(
        spec="accessModes resources storageClassName volumeName volumeMode",
        stored="volumeAttributesClassName",
        refused="selector dataSource dataSourceRef",
    ),
    "persistentvolumes": Fields(top="spec"),
    "serviceaccounts": Fields(top="secrets imagePullSecrets automountServiceAccountToken"),
    "resourcequotas": Fields(spec="hard scopes scopeSelector"),
    "limitranges": Fields(spec="limits"),
    "statefulsets": Fields(
        spec="replicas selector template serviceName podManagementPolicy updateStrategy ordinals volumeClaimTemplates "
        "revisionHistoryLimit",
        stored="minReadySeconds persistentVolumeClaimRetentionPolicy",
    ),
    "jobs": Fields(
        spec="parallelism completions backoffLimit activeDeadlineSeconds ttlSecondsAfterFinished suspend "
        "completionMode selector manualSelector template podReplacementPolicy",
        refused="podFailurePolicy successPolicy backoffLimitPerIndex maxFailedIndexes managedBy",
    ),
    "ingresses": Fields(spec="rules ingressClassName defaultBackend", stored="tls"),
    "ingressclasses": Fields(spec="controller parameters"),
    "networkpolicies": Fields(spec="podSelector policyTypes ingress egress"),
    "leases": Fields(
        spec="holderIdentity leaseDurationSeconds acquireTime renewTime leaseTransitions strategy preferredHolder"
    ),
    "storageclasses": Fields(
        top="provisioner parameters reclaimPolicy mountOptions allowVolumeExpansion volumeBindingMode allowedTopologies"
    ),
    "priorityclasses": Fields(top="value globalDefault description preemptionPolicy"),
    "roles": Fields(top="rules"),
    "rolebindings": Fields(top="subjects roleRef"),
}
_DEFAULTED: Final = {"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"}}


def _unknown(resource: Resource, obj: Object) -> list[tuple[str, ...]]:
    fields = FIELDS.get(resource.key)
    if fields is None:
        return []
    top = {"apiVersion", "kind", "metadata", "status", *fields.top.split()}
    if fields.spec is not None:
        top.add("spec")
    paths: list[tuple[str, ...]] = [(name,) for name in obj if name not in top]
    paths += [("metadata", name) for name in obj.get("metadata") or () if name not in _METADATA]
    spec = obj.get("spec")
    if fields.spec is not None and isinstance(spec, dict):
        paths += [("spec", name) for name in spec if name not in fields.known]
    return paths


def check(resource: Resource, obj: Object, *, mode: str) -> list[str]:
    """Drop unknown fields from `obj` and return the warnings to send, by `fieldValidation` (Strict, Warn, Ignore).

    Raises ApiError 400 for unknown fields under Strict, 501 for known ones that would mislead when merely stored.
    """
    unknown = _unknown(resource, obj)
    texts = [f'unknown field "{".".join(path)}"' for path in unknown]
    if texts and mode == "Strict":
        text = f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}'
        raise status.bad_request(f"{text}: strict decoding error: {', '.join(texts)}")
    for *parents, name in unknown:
        holder = obj
        for parent in parents:
            holder = holder[parent]
        del holder[name]
    warnings = texts if mode != "Ignore" else []
    fields, spec = FIELDS.get(resource.key), obj.get("spec")
    if fields is None or not isinstance(spec, dict):
        return warnings
    for name in fields.refused.split():
        if spec.get(name):
            raise ApiError(501, f"localkube does not implement spec.{name} of a {resource.kind}")
    stored = [n for n in fields.stored.split() if spec.get(n) and spec[n] != _DEFAULTED.get(n)]
    if resource.key == "services" and spec.get("type") in ("NodePort", "LoadBalancer"):
        warnings.append(f"spec.type: localkube serves a {spec['type']} service inside the cluster only")
    return warnings + [f"spec.{name}: stored, but localkube does not act on it" for name in stored]


def check_applied(resource: Resource, obj: Object) -> None:
    """Refuse unknown fields of an applied configuration. Raises ApiError 500, as the real server does."""
    unknown = _unknown(resource, obj)
    if unknown:
        metadata = obj.get("metadata") or {}
        shown = (
            f"{metadata.get('namespace', '')}/{metadata.get('name', '')}; {resource.api_version}, Kind={resource.kind}"
        )
        listed = "".join(f".{'.'.join(path)}: field not declared in schema" for path in unknown[:1])
        raise ApiError(500, f"failed to create typed patch object ({shown}): {listed}", reason="InternalError")
