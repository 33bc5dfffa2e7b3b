"""Garbage collection by owner references: dependents go, in the background, with their last owner."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable

from localkube.changes import Event
from localkube.controllers.base import Controller
from localkube.status import ApiError, Object


class GarbageCollector(Controller):
    """Keeps who owns whom by uid, in a hook, so that it never scans the store."""

    name = "garbage-collector"

    def watch(self) -> None:
        self._place: dict[str, tuple[str, str, str]] = {}
        self._dependents: dict[str, set[str]] = defaultdict(set)
        for kind in self.store.resources.served():
            for obj in self.store.iterate(kind.key):
                self._note(kind.key, obj)
        self.store.hooks.append(self._on_commit)
        for uid in tuple(self._place):
            self.enqueue(uid)

    def stop(self) -> None:
        if self._on_commit in self.store.hooks:
            self.store.hooks.remove(self._on_commit)
        super().stop()

    def _note(self, resource: str, obj: Object) -> None:
        metadata = obj["metadata"]
        self._place[metadata["uid"]] = (resource, metadata.get("namespace", ""), metadata["name"])
        for ref in metadata.get("ownerReferences") or ():
            self._dependents[ref["uid"]].add(metadata["uid"])

    def _on_commit(self, event: Event) -> None:
        metadata = event.obj["metadata"]
        uid, refs = metadata["uid"], metadata.get("ownerReferences") or ()
        if event.type == "DELETED":
            self._place.pop(uid, None)
            for ref in refs:
                self._dependents[ref["uid"]].discard(uid)
            for dependent in self._dependents.pop(uid, ()):
                self.enqueue(dependent)
            return
        before = event.previous["metadata"].get("ownerReferences") or () if event.previous else None
        if before != refs:
            self._note(event.resource, event.obj)
            self.enqueue(uid)

    def _find(self, uid: str) -> Object | None:
        place = self._place.get(uid)
        obj = self.store.peek(*place) if place else None
        return obj if obj and obj["metadata"]["uid"] == uid else None

    def reconcile(self, key: Hashable) -> None:
        obj = self._find(str(key))
        refs = obj["metadata"].get("ownerReferences") or () if obj else ()
        if not refs or any(self._find(ref["uid"]) for ref in refs):
            return
        resource, namespace, name = self._place[str(key)]
        try:
            self.store.delete(resource, namespace, name, uid=str(key))
        except ApiError as error:
            if error.code not in (404, 409):
                raise
