"""Admission: what changes or refuses a valid object before it is stored, in the real server's order and words."""

from __future__ import annotations

from typing import Final

from localkube import pods, quota, status
from localkube.quantity import parse
from localkube.resources import Resource
from localkube.status import Object
from localkube.store import Store

_IN_USE: Final = "kubernetes.io/pvc-protection"
"""Finalizer of every claim; the volume controller takes it off when no pod uses the claim."""


class Admission:
    """Namespace life cycle, service account, priority, LimitRange and ResourceQuota."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.ledger = quota.Ledger(store)

    def mutate(self, resource: Resource, obj: Object) -> None:
        """Admit a new object before its validation, changing it in place. Raises ApiError 403 or 404."""
        if resource.namespaced:
            self._namespace(resource, obj)
        if resource.key == "pods":
            self._service_account(obj)
            self._priority(obj)
            self._limit_ranges(resource, obj)
        if resource.key == "persistentvolumeclaims":
            self._storage_class(obj)
            finalizers = obj["metadata"].setdefault("finalizers", [])
            if _IN_USE not in finalizers:
                finalizers.append(_IN_USE)

    def validate(self, resource: Resource, obj: Object) -> None:
        """Admit a valid new object: quota. Raises ApiError 403."""
        self.ledger.check(resource, obj)

    def update(self, resource: Resource, new: Object, old: Object) -> None:
        """Admit a change: quota for what grows. Raises ApiError 403."""
        if resource.key == "persistentvolumeclaims":
            self.ledger.check(resource, new, old)

    def delete(self, resource: Resource, name: str) -> None:
        """Refuse to delete what the cluster cannot be without. Raises ApiError 403."""
        if resource.key == "namespaces" and name in ("default", "kube-system", "kube-public"):
            raise status.forbidden("", "namespaces", name, "this namespace may not be deleted")
        if resource.key == "persistentvolumes":
            raise status.not_implemented("the deletion of a volume: it goes with its claim")

    def _namespace(self, resource: Resource, obj: Object) -> None:
        name = obj["metadata"]["namespace"]
        namespace = self._store.peek("namespaces", None, name)
        if namespace is None:
            raise status.not_found("", "namespaces", name)
        if namespace["metadata"].get("deletionTimestamp"):
            why = f"unable to create new content in namespace {name} because it is being terminated"
            error = status.forbidden(resource.group, resource.plural, obj["metadata"].get("name", ""), why)
            assert error.details is not None
            text = f"namespace {name} is being terminated"
            error.details["causes"] = [
                {"reason": "NamespaceTerminating", "message": text, "field": "metadata.namespace"}
            ]
            raise error

    def _service_account(self, obj: Object) -> None:
        namespace, account = obj["metadata"]["namespace"], obj["spec"]["serviceAccountName"]
        if self._store.peek("serviceaccounts", namespace, account) is None:
            why = f'error looking up service account {namespace}/{account}: serviceaccount "{account}" not found'
            raise status.forbidden("", "pods", obj["metadata"].get("name", ""), why)

    def _priority(self, pod: Object) -> None:
        spec = pod["spec"]
        name = spec.get("priorityClassName")
        classes = [c for c in self._store.iterate("priorityclasses") if c.get("globalDefault")]
        found = self._store.peek("priorityclasses", None, name) if name else next(iter(classes), None)
        if name and found is None:
            why = f"no PriorityClass with name {name} was found"
            raise status.forbidden("", "pods", pod["metadata"].get("name", ""), why)
        if found:
            spec["priorityClassName"] = found["metadata"]["name"]
        spec["priority"] = found["value"] if found else 0
        spec["preemptionPolicy"] = (found or {}).get("preemptionPolicy", "PreemptLowerPriority")

    def _storage_class(self, obj: Object) -> None:
        if "storageClassName" in obj["spec"]:
            return
        for found in self._store.iterate("storageclasses"):
            annotations = found["metadata"].get("annotations") or {}
            if annotations.get("storageclass.kubernetes.io/is-default-class") == "true":
                obj["spec"]["storageClassName"] = found["metadata"]["name"]
                return

    def _limit_ranges(self, resource: Resource, pod: Object) -> None:
        ranges = self._store.iterate("limitranges", pod["metadata"]["namespace"])
        items = [item for found in ranges for item in found["spec"]["limits"]]
        _container_defaults(pod, items)
        errors: list[str] = []
        for container in pod["spec"].get("containers", []):
            section = container.get("resources") or {}
            requests, limits = (
                {name: parse(amount) for name, amount in (section.get(part) or {}).items()}
                for part in ("requests", "limits")
            )
            for item in items:
                errors += _bounds(item, requests, limits)
        if errors:
            why = errors[0] if len(errors) == 1 else "[" + ", ".join(errors) + "]"
            raise status.forbidden(resource.group, resource.plural, pod["metadata"].get("name", ""), why)


def _container_defaults(pod: Object, items: list[Object]) -> None:
    notes = []
    for container in pod["spec"].get("containers", []):
        resources = container.setdefault("resources", {})
        for section, source, title in (("requests", "defaultRequest", "request"), ("limits", "default", "limit")):
            set_here = []
            for item in items:
                for name, amount in sorted((item.get(source) or {}).items()):
                    if name not in (resources.get(section) or {}):
                        resources.setdefault(section, {})[name] = amount
                        set_here.append(name)
            if set_here:
                notes.append(f"{', '.join(set_here)} {title} for container {container.get('name')}")
    if notes:
        annotations = pod["metadata"].setdefault("annotations", {})
        annotations["kubernetes.io/limit-ranger"] = "LimitRanger plugin set: " + "; ".join(notes)


def _bounds(item: Object, requests: pods.Amounts, limits: pods.Amounts) -> list[str]:
    """What of a container passes the minimum or maximum of a LimitRange's item."""
    errors = []
    for name, text in sorted((item.get("min") or {}).items()):
        least, asked = parse(text), requests.get(name)
        if asked is None:
            errors.append(f"minimum {name} usage per Container is {least}.  No request is specified")
        elif asked < least:
            errors.append(f"minimum {name} usage per Container is {least}, but request is {asked}")
    for name, text in sorted((item.get("max") or {}).items()):
        most, limit = parse(text), limits.get(name)
        if limit is None:
            errors.append(f"maximum {name} usage per Container is {most}.  No limit is specified")
        elif limit > most:
            errors.append(f"maximum {name} usage per Container is {most}, but limit is {limit}")
    return errors
