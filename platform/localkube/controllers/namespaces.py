"""Namespaces: the default service account of a new one, and emptying one that is being deleted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from localkube.bootstrap import default_account
from localkube.controllers.base import Controller
from localkube.pods import set_condition
from localkube.resources import Resource
from localkube.status import ApiError, Object
from localkube.store import now


class NamespaceController(Controller):
    """Deletes the content of a terminating namespace, says what holds it up, and removes it when it is empty."""

    name = "namespace-controller"

    def watch(self) -> None:
        def on_any(event_type: str, obj: Object) -> None:
            if event_type == "DELETED" and (name := obj["metadata"].get("namespace")):
                self._wake_if_terminating(name)

        def on_namespace(event_type: str, obj: Object) -> None:
            name = obj["metadata"]["name"]
            if event_type == "ADDED":
                default_account(self.registry, name)
            elif event_type == "MODIFIED":
                self._wake_if_terminating(name)

        self._unsubscribe.append(self.store.subscribe("*", on_any))
        self._unsubscribe.append(self.store.subscribe("namespaces", on_namespace))
        for namespace in tuple(self.store.iterate("namespaces")):
            self._wake_if_terminating(namespace["metadata"]["name"])

    def _wake_if_terminating(self, name: str) -> None:
        namespace = self.store.peek("namespaces", None, name)
        if namespace and namespace["metadata"].get("deletionTimestamp"):
            self.enqueue(name)

    def reconcile(self, key: Hashable) -> None:
        name = str(key)
        namespace = self.store.peek("namespaces", None, name)
        if namespace is None or not namespace["metadata"].get("deletionTimestamp"):
            return
        kinds = [kind for kind in self.store.resources.served() if kind.namespaced]
        for kind in kinds:
            for obj in tuple(self.store.iterate(kind.key, name)):
                if not obj["metadata"].get("deletionTimestamp"):
                    self._delete(kind, obj)
        remaining = {kind: found for kind in kinds if (found := tuple(self.store.iterate(kind.key, name)))}
        current = self.store.get("namespaces", None, name)
        if not remaining:
            current["spec"]["finalizers"] = [f for f in current["spec"].get("finalizers", []) if f != "kubernetes"]
            self.store.update("namespaces", current)
        elif _explain(current, remaining):
            self.store.update("namespaces", current, subresource="status")

    def _delete(self, kind: Resource, obj: Object) -> None:
        metadata = obj["metadata"]
        try:
            self.store.delete(kind.key, metadata["namespace"], metadata["name"], uid=metadata["uid"])
        except ApiError as error:
            if error.code != 404:
                raise


def _explain(namespace: Object, remaining: dict[Resource, tuple[Object, ...]]) -> bool:
    """Write the conditions that say what a namespace waits for; False when they already say it."""
    counts = [f"{kind.qualified}. has {len(found)} resource instances" for kind, found in remaining.items()]
    finalizers = Counter(
        finalizer
        for found in remaining.values()
        for obj in found
        for finalizer in obj["metadata"].get("finalizers") or ()
    )
    listed = ", ".join(f"{name} in {count} resource instances" for name, count in sorted(finalizers.items()))
    told = (
        ("NamespaceDeletionContentFailure", "False", "ContentDeleted",
         "All content successfully deleted, may be waiting on finalization"),
        ("NamespaceContentRemaining", "True", "SomeResourcesRemain",
         f"Some resources are remaining: {', '.join(sorted(counts))}"),
        ("NamespaceFinalizersRemaining", "True", "SomeFinalizersRemain",
         f"Some content in the namespace has finalizers remaining: {listed}"),
    )  # fmt: skip
    changed = False
    for kind, value, reason, message in told if finalizers else told[:2]:
        changed |= set_condition(namespace, kind, value, reason=reason, message=message, at=now())
    return changed
