"""Three books of one queue compared: the portal's ledger, the namespace's ResourceQuota, and the pods themselves.

The quota counts requests of pods that have not ended; the ledger counts limits of objects the portal let in. So:
``quota.used`` must equal the sum over pods and claims (when it stays above, the quota controller has lost something,
failure F13), and the pods must not use more than the ledger holds (when they do, something runs that the portal does
not know of). A ledger above the pods is ordinary: what is queued or starting holds its room already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _

from apps.clusters import access
from apps.clusters.nodes import amounts as amounts_in
from apps.clusters.nodes import pod_request
from apps.tenants import amounts, ledger
from apps.tenants.models import Queue
from kubekit import client
from kubekit.build.queue import QUOTA_NAME
from kubekit.errors import KubeError, SpecError
from kubekit.quantities import parse_bytes, parse_count, parse_cpu

Raw = Mapping[str, Any]
_KEYS = {"requests.cpu": "cpu_millis", "requests.memory": "memory_bytes", "requests.storage": "storage_bytes"}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One resource in the three books. ``ledger`` and ``limits`` count limits, ``quota`` and ``pods`` requests.

    ``fault`` says in the active language what is wrong, or is empty.
    """

    resource: str
    ledger: int
    limits: int
    quota: int
    pods: int
    fault: str = ""

    @property
    def label(self) -> str:
        """The resource's word."""
        return amounts.label(self.resource)

    @property
    def figures(self) -> list[str]:
        """Ledger, limits of pods, quota's count, requests of pods, each with its unit."""
        return [amounts.show(self.resource, count) for count in (self.ledger, self.limits, self.quota, self.pods)]


@dataclass(frozen=True, kw_only=True)
class Report:
    """What the comparison found; ``error`` when the cluster could not be asked."""

    rows: tuple[Row, ...] = ()
    error: str = ""

    @property
    def is_good(self) -> bool:
        """True when the cluster answered and nothing differs."""
        return not self.error and not any(row.fault for row in self.rows)


def check(queue: Queue) -> Report:
    """Ask the cluster and compare. Never raises for what the cluster answers."""
    try:
        cluster = access.connect(queue.cluster)
        quota, pods, claims = _read(cluster, queue.namespace)
    except KubeError as error:
        return Report(error=error.message)
    held = {name: share.used for name, share in ledger.usage(queue).shares.items()}
    return Report(rows=compare(held=held, quota=quota, pods=pods, claims=claims))


def recalculate(queue: Queue) -> None:
    """Make the quota controller count anew by making the quota anew; what runs is not touched.

    Until the reconciler has made it nothing bounds the namespace in the cluster; the ledger does. Raises
    ``KubeError``.
    """
    cluster = access.connect(queue.cluster)
    uid = cluster.get("ResourceQuota", queue.namespace, QUOTA_NAME)["metadata"]["uid"]
    cluster.delete("ResourceQuota", queue.namespace, QUOTA_NAME, uid=uid)


def compare(
    *, held: Mapping[str, int], quota: Mapping[str, int], pods: Iterable[Raw], claims: Iterable[Raw]
) -> tuple[Row, ...]:
    """Pure: one row for each resource that any of the books knows."""
    requests, limits = _pods(pods)
    storage = sum(_storage(claim) for claim in claims)
    for sums in (requests, limits):
        sums["storage_bytes"] = storage
    names = [name for name in held if name not in {ledger.VOLUMES, ledger.PODS}]
    names += sorted((set(quota) | set(requests)) - set(names) - {ledger.PODS})
    return tuple(
        _row(name, held.get(name, 0), limits.get(name, 0), quota.get(name, 0), requests.get(name, 0)) for name in names
    )


def _row(name: str, held: int, limits: int, quota: int, requests: int) -> Row:
    fault = ""
    if limits > held:
        fault = _("more runs than the portal let in")
    elif quota > requests:
        fault = _("the cluster's count did not fall when something ended")
    elif quota < requests:
        fault = _("the cluster's count is behind")
    return Row(resource=name, ledger=held, limits=limits, quota=quota, pods=requests, fault=fault)


def _read(cluster: client.Cluster, namespace: str) -> tuple[dict[str, int], list[Raw], list[Raw]]:
    quota = cluster.get("ResourceQuota", namespace, QUOTA_NAME)
    used = (quota.get("status") or {}).get("used") or {}
    return (
        used_of(used),
        list(cluster.list("Pod", namespace)),
        list(cluster.list("PersistentVolumeClaim", namespace)),
    )


def used_of(used: Mapping[str, str]) -> dict[str, int]:
    """``status.used`` of a quota by the ledger's names of resources."""
    found: dict[str, int] = {}
    for key, text in used.items():
        try:
            if key == "requests.cpu":
                found["cpu_millis"] = parse_cpu(text)
            elif key in _KEYS:
                found[_KEYS[key]] = parse_bytes(text)
            elif key.startswith("requests.") and "/" in key:
                found[key.removeprefix("requests.")] = parse_count(text)
        except SpecError:
            continue  # a figure that we cannot read is not a difference
    return found


def _pods(pods: Iterable[Raw]) -> tuple[dict[str, int], dict[str, int]]:
    requests: dict[str, int] = {}
    limits: dict[str, int] = {}
    for pod in pods:
        request = pod_request(pod)
        if request is None:
            continue
        _add(requests, request.amounts)
        for container in (pod.get("spec") or {}).get("containers") or ():
            resources = container.get("resources") or {}
            _add(limits, amounts_in({**(resources.get("requests") or {}), **(resources.get("limits") or {})}))
    for sums in (requests, limits):
        sums.pop("pods", None)
    return requests, limits


def _add(total: dict[str, int], part: Mapping[str, int]) -> None:
    for name, count in part.items():
        total[name] = total.get(name, 0) + count


def _storage(claim: Raw) -> int:
    text = ((((claim.get("spec") or {}).get("resources") or {}).get("requests")) or {}).get("storage", "0")
    return parse_bytes(text)
