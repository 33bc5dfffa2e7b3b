"""Garbage collection by owner references: dependents go with their last owner, or are orphaned when asked."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from typing import Final

from localkube.changes import Event
from localkube.controllers.base import Controller
from localkube.status import ApiError, Object
from localkube.store import copy

_FOREGROUND: Final = "foregroundDeletion"
_ORPHAN: Final = "orphan"


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
            self._consider(uid)

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
        uid = metadata["uid"]
        refs = metadata.get("ownerReferences") or ()
        if event.type == "DELETED":
            self._place.pop(uid, None)
            for ref in refs:
                self._dependents[ref["uid"]].discard(uid)
                self.enqueue(ref["uid"])
            for dependent in self._dependents.pop(uid, ()):
                self.enqueue(dependent)
            return
        if event.type == "ADDED" or (event.previous and event.previous["metadata"].get("ownerReferences") != refs):
            self._note(event.resource, event.obj)
        self._consider(uid)

    def _consider(self, uid: str) -> None:
        obj = self._find(uid)
        if obj is None:
            return
        metadata = obj["metadata"]
        waiting = {_FOREGROUND, _ORPHAN} & set(metadata.get("finalizers") or ())
        if (metadata.get("deletionTimestamp") and waiting) or self._lacks_owner(obj):
            self.enqueue(uid)

    def _find(self, uid: str) -> Object | None:
        place = self._place.get(uid)
        obj = self.store.peek(*place) if place else None
        return obj if obj and obj["metadata"]["uid"] == uid else None

    def _lacks_owner(self, obj: Object) -> bool:
        refs = obj["metadata"].get("ownerReferences") or ()
        return bool(refs) and all(self._find(ref["uid"]) is None for ref in refs)

    def reconcile(self, key: Hashable) -> None:
        obj = self._find(str(key))
        if obj is None:
            return
        finalizers = obj["metadata"].get("finalizers") or ()
        if obj["metadata"].get("deletionTimestamp"):
            if _ORPHAN in finalizers:
                self._orphan(obj)
            elif _FOREGROUND in finalizers:
                self._delete_dependents(obj)
        elif self._lacks_owner(obj):
            self._delete(obj)

    def _orphan(self, obj: Object) -> None:
        uid = obj["metadata"]["uid"]
        for dependent_uid in tuple(self._dependents.get(uid, ())):
            dependent = self._find(dependent_uid)
            if dependent:
                changed = copy(dependent)
                kept = [ref for ref in changed["metadata"]["ownerReferences"] if ref["uid"] != uid]
                changed["metadata"]["ownerReferences"] = kept
                self.store.update(self._place[dependent_uid][0], changed)
        self._dependents.pop(uid, None)
        self._drop_finalizer(obj, _ORPHAN)

    def _delete_dependents(self, obj: Object) -> None:
        uid = obj["metadata"]["uid"]
        blocking = 0
        for dependent_uid in tuple(self._dependents.get(uid, ())):
            dependent = self._find(dependent_uid)
            if dependent is None:
                continue
            refs = dependent["metadata"].get("ownerReferences") or ()
            if any(ref["uid"] != uid and self._find(ref["uid"]) is not None for ref in refs):
                continue
            if not dependent["metadata"].get("deletionTimestamp"):
                self._delete(dependent)
            blocks = any(ref["uid"] == uid and ref.get("blockOwnerDeletion") for ref in refs)
            blocking += blocks and self._find(dependent_uid) is not None
        if not blocking:
            self._drop_finalizer(obj, _FOREGROUND)

    def _delete(self, obj: Object) -> None:
        metadata = obj["metadata"]
        resource, namespace, name = self._place[metadata["uid"]]
        try:
            self.store.delete(resource, namespace, name, uid=metadata["uid"])
        except ApiError as error:
            if error.code not in (404, 409):
                raise

    def _drop_finalizer(self, obj: Object, finalizer: str) -> None:
        current = self._find(obj["metadata"]["uid"])
        if current is None:
            return
        changed = copy(current)
        kept = [f for f in changed["metadata"].get("finalizers") or () if f != finalizer]
        changed["metadata"]["finalizers"] = kept
        self.store.update(self._place[obj["metadata"]["uid"]][0], changed)
