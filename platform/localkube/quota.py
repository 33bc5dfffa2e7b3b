"""ResourceQuota: what every object uses, running totals per quota, and the refusals.

A quota's `status.used` is right in the same commit as the change that moved it. A real server charges a create that
then fails with 409 until its controller recounts; that fault is not imitated.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from localkube import pods, status
from localkube.changes import Event
from localkube.quantity import ZERO, Quantity, QuantityError, parse
from localkube.resources import Resource
from localkube.status import ApiError, Object
from localkube.store import Store

Usage = dict[str, Quantity]

_ONE: Final = Quantity(10**9)
_COMPUTE: Final = ("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory")
_COUNTED: Final = ("services", "secrets", "configmaps", "persistentvolumeclaims", "resourcequotas")
_CLASS_SUFFIX: Final = ".storageclass.storage.k8s.io"


def _pod_usage(pod: Object) -> Usage:
    usage: Usage = {"count/pods": _ONE}
    if pods.ended(pod):
        return usage
    usage["pods"] = _ONE
    spec = pod.get("spec", {})
    for name, amount in pods.resources(spec, "requests").items():
        usage[f"requests.{name}"] = amount
        if "/" not in name:
            usage[name] = amount
    for name, amount in pods.resources(spec, "limits").items():
        if "/" not in name:
            usage[f"limits.{name}"] = amount
    return usage


def _claim_usage(claim: Object) -> Usage:
    spec = claim.get("spec", {})
    requested = parse((spec.get("resources", {}).get("requests") or {}).get("storage", "0"))
    usage: Usage = {"persistentvolumeclaims": _ONE, "requests.storage": requested}
    usage["count/persistentvolumeclaims"] = _ONE
    if name := spec.get("storageClassName"):
        usage[f"{name}{_CLASS_SUFFIX}/requests.storage"] = requested
        usage[f"{name}{_CLASS_SUFFIX}/persistentvolumeclaims"] = _ONE
    return usage


def usage_of(resource: Resource, obj: Object) -> Usage:
    """Everything that an object counts for, under every key a quota may use."""
    try:
        if resource.key == "pods":
            return _pod_usage(obj)
        if resource.key == "persistentvolumeclaims":
            return _claim_usage(obj)
    except QuantityError:
        return {}
    usage = {f"count/{resource.qualified}": _ONE}
    if resource.key in _COUNTED:
        usage[resource.key] = _ONE
    return usage


def _countable(resource: str) -> bool:
    return resource not in ("events", "leases", "endpointslices")


def _must_specify(quota: Object, pod: Object) -> str:
    """`requests.cpu for: a,b; ...` for a quota on compute resources that some container does not state."""
    missing: dict[str, list[str]] = defaultdict(list)
    for name in sorted(set(quota["spec"].get("hard") or {}) & set(_COMPUTE)):
        section, _, resource = name.rpartition(".")
        for container in pod["spec"]["containers"]:
            stated = container.get("resources", {}).get(section or "requests") or {}
            if resource not in stated:
                missing[name].append(container["name"])
    return "; ".join(f"{name} for: {','.join(names)}" for name, names in missing.items())


class Ledger:
    """Running totals for every ResourceQuota, kept by a hook inside each commit."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._used: dict[str, Usage] = {}
        self._by_namespace: dict[str, dict[str, Object]] = defaultdict(dict)
        for quota in store.iterate("resourcequotas"):
            self._by_namespace[quota["metadata"]["namespace"]][quota["metadata"]["uid"]] = quota
            self._recount(quota)
        store.hooks.append(self._on_commit)

    def publish_all(self) -> None:
        """Write the status of every quota whose totals moved while nobody kept them."""
        for quotas in tuple(self._by_namespace.values()):
            for quota in tuple(quotas.values()):
                self._publish(quota)

    def check(self, resource: Resource, new: Object, old: Object | None = None) -> None:
        """Refuse what would pass a quota of the namespace. Raises ApiError 403 with the real server's text."""
        namespace = new["metadata"].get("namespace", "")
        quotas = sorted(self._by_namespace.get(namespace, {}).values(), key=lambda q: str(q["metadata"]["name"]))
        if not quotas or not _countable(resource.key):
            return
        name = new["metadata"].get("name", "")
        before = usage_of(resource, old) if old else {}
        delta = {key: amount - before.get(key, ZERO) for key, amount in usage_of(resource, new).items()}
        for quota in quotas:
            title = quota["metadata"]["name"]
            if resource.key == "pods" and not old and (missing := _must_specify(quota, new)):
                raise _refusal(resource, name, f"failed quota: {title}: must specify {missing}")
            hard = quota["spec"].get("hard") or {}
            used = self._used.get(quota["metadata"]["uid"], {})
            over = {
                key: (delta[key], used.get(key, ZERO), parse(hard[key]))
                for key in sorted(hard)
                if key in delta and delta[key] > ZERO and used.get(key, ZERO) + delta[key] > parse(hard[key])
            }
            if over:
                asked, held, limit = (",".join(f"{k}={v[i]}" for k, v in over.items()) for i in range(3))
                text = f"exceeded quota: {title}, requested: {asked}, used: {held}, limited: {limit}"
                raise _refusal(resource, name, text)

    def _on_commit(self, event: Event) -> None:
        namespace = event.obj["metadata"].get("namespace", "")
        resource = self._store.resources[event.resource]
        if event.resource == "resourcequotas":
            self._on_quota(event, namespace)
        quotas = self._by_namespace.get(namespace)
        if not quotas or not _countable(event.resource):
            return
        new = usage_of(resource, event.obj) if event.type != "DELETED" else {}
        old = usage_of(resource, event.previous) if event.previous else {}
        if new == old:
            return
        for quota in tuple(quotas.values()):
            if quota is not event.obj:
                self._move(quota, new, old)

    def _move(self, quota: Object, new: Usage, old: Usage) -> None:
        used = self._used[quota["metadata"]["uid"]]
        changed = [name for name in used if new.get(name, ZERO) != old.get(name, ZERO)]
        for name in changed:
            used[name] = used[name] - old.get(name, ZERO) + new.get(name, ZERO)
        if changed:
            self._publish(quota)

    def _on_quota(self, event: Event, namespace: str) -> None:
        uid = event.obj["metadata"]["uid"]
        if event.type == "DELETED":
            self._by_namespace[namespace].pop(uid, None)
            self._used.pop(uid, None)
            return
        self._by_namespace[namespace][uid] = event.obj
        if event.previous is None or event.previous.get("spec") != event.obj.get("spec"):
            self._recount(event.obj)
            self._publish(event.obj)

    def _recount(self, quota: Object) -> None:
        namespace = quota["metadata"]["namespace"]
        used = {name: ZERO for name in quota["spec"].get("hard") or {} if _tracked(name)}
        self._used[quota["metadata"]["uid"]] = used
        for resource in (kind for kind in self._store.resources.served() if kind.namespaced and _countable(kind.key)):
            for obj in self._store.iterate(resource.key, namespace):
                for name, amount in usage_of(resource, obj).items():
                    if name in used:
                        used[name] = used[name] + amount

    def _publish(self, quota: Object) -> None:
        metadata = quota["metadata"]
        used = self._used.get(metadata["uid"], {})
        wanted = {"hard": quota["spec"].get("hard") or {}, "used": {name: str(used[name]) for name in sorted(used)}}
        if quota.get("status") == wanted:
            return
        current = self._store.get("resourcequotas", metadata["namespace"], metadata["name"])
        current["status"] = wanted
        self._store.update("resourcequotas", current, subresource="status")


def _tracked(name: str) -> bool:
    """Whether anything here counts a key: `limits.<extended>` and unknown ones stay unenforced, as on a real server."""
    if name.startswith("limits.") or "/" not in name:
        return "/" not in name
    return name.startswith(("requests.", "count/")) or _CLASS_SUFFIX in name


def _refusal(resource: Resource, name: str, why: str) -> ApiError:
    return status.forbidden(resource.group, resource.plural, name, why)
