"""The objects: in memory for speed, in sqlite so that kill -9 loses nothing that was acknowledged.

Everything is synchronous and belongs to the event loop's thread: between two awaits nobody else writes, so
get-change-update needs no retry there. `get`, `create`, `update` and `delete` return private copies. `list`, callbacks
and watches hand out the stored objects themselves for speed: never change those.
"""

from __future__ import annotations

import json
import logging
import os
import random
import sqlite3
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from localkube import status
from localkube.changes import Event, Watch
from localkube.resources import Resource, ResourceTable
from localkube.selectors import matcher
from localkube.status import ApiError, Object

log = logging.getLogger(__name__)

Callback = Callable[[str, Object], None]

_FORMAT: Final = 1
"""Of the file; raise it with every change that an older localkube would misread."""

_NAME_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_NEVER_EMPTY: Final = ("labels", "annotations", "finalizers", "ownerReferences")
_SYSTEM_METADATA: Final = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")


def copy(value: Any) -> Any:
    """A deep copy of a JSON tree; several times faster than copy.deepcopy."""
    if isinstance(value, dict):
        return {key: copy(item) for key, item in value.items()}
    if isinstance(value, list):
        return [copy(item) for item in value]
    return value


def now() -> str:
    """The present as `metav1.Time`: UTC, whole seconds."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _without(metadata: Object, *names: str) -> Object:
    return {key: value for key, value in metadata.items() if key not in names}


class Store:
    """All objects of the cluster, with one resourceVersion counter over all kinds."""

    def __init__(self, path: Path | None, *, resources: ResourceTable | None = None, history: int = 3_000) -> None:
        """Open `path` (made if missing; None keeps nothing on disk). Raises ApiError 503 if another process has it."""
        self.resources = resources or ResourceTable()
        self._objects: dict[str, dict[tuple[str, str], Object]] = {}
        self._callbacks: dict[str, list[Callback]] = {}
        self._watches: dict[str, list[Watch]] = {}
        self._history: deque[Event] = deque(maxlen=history)
        self._pending: deque[Event] = deque()
        self._dispatching = False
        self.hooks: list[Callable[[Event], None]] = []
        """Called inside each commit, before any callback: for books that must be right at the next line of code."""
        self._db = self._open(path)
        self._load()

    def _open(self, path: Path | None) -> sqlite3.Connection:
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)
            # SQLite gives its journal the mode of the file: it holds secrets as well.
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        db = sqlite3.connect(path or ":memory:", isolation_level=None, timeout=1.0)
        try:
            db.execute("PRAGMA locking_mode=EXCLUSIVE")
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=NORMAL")
            version = db.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, _FORMAT):
                db.close()
                text = f"the store {path} has format {version}, and this localkube reads {_FORMAT}"
                raise ApiError(503, f"{text}: use the version that wrote it, or move the file away to begin anew")
            db.execute(f"PRAGMA user_version={_FORMAT}")
            db.execute(
                "CREATE TABLE IF NOT EXISTS objects (resource TEXT, namespace TEXT, name TEXT, body TEXT,"
                " PRIMARY KEY (resource, namespace, name)) WITHOUT ROWID"
            )
            db.execute("CREATE TABLE IF NOT EXISTS counter (id INTEGER PRIMARY KEY, version INTEGER)")
            db.execute("INSERT OR IGNORE INTO counter VALUES (1, 0)")
        except sqlite3.DatabaseError as error:
            db.close()
            hint = "; another localkube may hold it" if "locked" in str(error) else ""
            raise ApiError(503, f"cannot open the store {path}: {error}{hint}") from error
        return db

    def _load(self) -> None:
        self._version: int = self._db.execute("SELECT version FROM counter").fetchone()[0]
        self._oldest = self._version
        for resource, namespace, name, body in self._db.execute("SELECT resource, namespace, name, body FROM objects"):
            self._objects.setdefault(resource, {})[(namespace, name)] = json.loads(body)
        for crd in self._objects.get("customresourcedefinitions", {}).values():
            self.resources.set_custom(crd)

    def close(self) -> None:
        self._db.close()

    @property
    def version(self) -> int:
        """The resourceVersion of the latest commit."""
        return self._version

    # Reading

    def peek(self, resource: str, namespace: str | None, name: str) -> Object | None:
        """The stored object itself (never change it) or None."""
        return self._objects.get(resource, {}).get((namespace or "", name))

    def get(self, resource: str, namespace: str | None, name: str) -> Object:
        """A private copy. Raises ApiError 404."""
        return copy(self.stored(resource, namespace, name))  # type: ignore[no-any-return]

    def stored(self, resource: str, namespace: str | None, name: str) -> Object:
        """The stored object itself (never change it). Raises ApiError 404."""
        obj = self.peek(resource, namespace, name)
        if obj is None:
            kind = self.resources[resource]
            raise status.not_found(kind.group, kind.plural, name)
        return obj

    def iterate(self, resource: str, namespace: str | None = None) -> Iterator[Object]:
        """The stored objects of a kind (never change them), in no particular order."""
        objects = self._objects.get(resource, {})
        return (obj for key, obj in tuple(objects.items()) if not namespace or key[0] == namespace)

    def list(
        self, resource: str, namespace: str | None = None, *, labels: str | None = None, fields: str | None = None
    ) -> tuple[list[Object], int]:
        """Stored objects (never change them) by namespace and name, and the version the list is of."""
        matches = matcher(resource, labels, fields)
        objects = self._objects.get(resource, {})
        keys = sorted(key for key in objects if not namespace or key[0] == namespace)
        return [objects[key] for key in keys if not matches or matches(objects[key])], self._version

    # Writing

    def create(self, resource: str, obj: Object) -> Object:
        """Store a new object; fills uid, creationTimestamp, name from generateName. Raises ApiError 404, 409, 422."""
        kind = self.resources[resource]
        obj = copy(obj)
        self.prepare(kind, obj)
        return self.insert(kind, obj)

    def insert(self, kind: Resource, obj: Object, *, dry_run: bool = False) -> Object:
        """Store what `prepare` has filled in; the store owns `obj` from then on. Raises ApiError 404 and 409."""
        metadata = obj["metadata"]
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        if (there := self.peek(kind.key, namespace, name)) is not None:
            leaving = "deletionTimestamp" in there["metadata"]
            raise status.already_exists(kind.group, kind.plural, name, leaving=leaving)
        if kind.namespaced and self.peek("namespaces", None, namespace) is None:
            raise status.not_found("", "namespaces", namespace)
        if not dry_run:
            self._commit("ADDED", kind.key, obj, None)
        return copy(obj)  # type: ignore[no-any-return]

    def give_name(self, metadata: Object) -> None:
        """Complete generateName to a name, if there is none yet."""
        if not metadata.get("name") and metadata.get("generateName"):
            suffix = "".join(random.choices(_NAME_LETTERS, k=5))  # noqa: S311 - a name, no secret
            metadata["name"] = metadata["generateName"][:58] + suffix

    def prepare(self, kind: Resource, obj: Object) -> Object:
        """Fill in what the server sets at creation, without storing; returns the metadata. A dry run ends here."""
        obj.setdefault("apiVersion", kind.api_version)
        obj.setdefault("kind", kind.kind)
        metadata: Object = obj.setdefault("metadata", {})
        self.give_name(metadata)
        if not metadata.get("name"):
            error = status.FieldError.required("metadata.name", "name or generateName is required")
            raise status.invalid(kind.group, kind.kind, "", [error])
        if kind.namespaced:
            metadata["namespace"] = metadata.get("namespace") or "default"
        else:
            metadata.pop("namespace", None)
        for name in ("resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"):
            metadata.pop(name, None)
        metadata["uid"] = str(uuid.uuid4())
        metadata["creationTimestamp"] = now()
        if kind.generation:
            metadata["generation"] = 1
        return metadata

    def update(self, resource: str, obj: Object, *, subresource: str | None = None) -> Object:
        """Replace an object, or with subresource="status" its status alone (everything else is kept then).

        A resourceVersion or uid in the metadata is a precondition. An update that changes nothing keeps the
        resourceVersion and announces nothing. Removing the last finalizer of an object that is being deleted removes
        it. Raises ApiError 404 and 409.
        """
        kind = self.resources[resource]
        metadata = obj["metadata"]
        stored = self.stored(resource, metadata.get("namespace"), metadata["name"])
        return self.replace(kind, stored, self.merge(kind, stored, obj, subresource))

    def replace(self, kind: Resource, stored: Object, merged: Object, *, dry_run: bool = False) -> Object:
        """Store what `merge` made of an update; the store owns `merged` from then on."""
        if dry_run or merged == stored:
            return copy(merged)  # type: ignore[no-any-return]
        meta = merged["metadata"]
        removable = not meta.get("finalizers") and not meta.get("deletionGracePeriodSeconds")
        if kind.key == "namespaces" and merged.get("spec", {}).get("finalizers"):
            removable = False
        gone = meta.get("deletionTimestamp") and removable
        self._commit("DELETED" if gone else "MODIFIED", kind.key, merged, stored)
        return copy(merged)  # type: ignore[no-any-return]

    def merge(self, kind: Resource, stored: Object, obj: Object, subresource: str | None) -> Object:
        """What an update would store, after its preconditions. Raises ApiError 409."""
        metadata, old_metadata = obj["metadata"], stored["metadata"]
        name = old_metadata["name"]
        if metadata.get("resourceVersion") not in (None, "", "0", old_metadata["resourceVersion"]):
            raise status.modified(kind.group, kind.plural, name)
        if metadata.get("uid") not in (None, "", old_metadata["uid"]):
            raise status.conflict(kind.group, kind.plural, name, _uid_text(metadata["uid"], old_metadata["uid"]))
        if subresource == "status":
            return copy(stored) | {"status": copy(obj.get("status", {}))}  # type: ignore[no-any-return]
        merged: Object = copy(obj)
        meta = merged["metadata"] = {
            key: value for key, value in merged["metadata"].items() if value or key not in _NEVER_EMPTY
        }
        meta["resourceVersion"] = old_metadata["resourceVersion"]
        for field_name in _SYSTEM_METADATA:
            meta.pop(field_name, None)
            if field_name in old_metadata:
                meta[field_name] = old_metadata[field_name]
        if kind.has_status and subresource is None and kind.key != "customresourcedefinitions":
            merged.pop("status", None)
            if "status" in stored:
                merged["status"] = copy(stored["status"])
        if kind.generation and _body(merged) != _body(stored):
            meta["generation"] = old_metadata.get("generation", 1) + 1
        return merged

    def delete(
        self,
        resource: str,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_period_s: int | None = None,
    ) -> Object:
        """Delete, or mark as being deleted: a running pod for its grace period, anything while it has finalizers.

        The node ends a marked pod and calls again with grace_period_s=0. Returns the last state; `peek` tells whether
        it is gone. Raises ApiError 404, 409.
        """
        kind = self.resources[resource]
        stored = self.stored(resource, namespace, name)
        _check_preconditions(kind, stored, uid, resource_version)
        obj: Object = copy(stored)
        metadata = obj["metadata"]
        grace = _grace(kind, stored, grace_period_s)
        kept = metadata.get("finalizers") or (resource == "namespaces" and stored.get("spec", {}).get("finalizers"))
        gone = not grace and not kept
        until = datetime.now(UTC) + timedelta(seconds=grace)
        fresh = not metadata.get("deletionTimestamp")
        if fresh or grace < metadata.get("deletionGracePeriodSeconds", 0):
            metadata["deletionTimestamp"] = until.strftime("%Y-%m-%dT%H:%M:%SZ")
            metadata["deletionGracePeriodSeconds"] = grace
        if fresh and kind.generation:
            metadata["generation"] = metadata.get("generation", 1) + 1
        if gone:
            self._commit("DELETED", resource, obj, stored)
            return copy(obj)  # type: ignore[no-any-return]
        if resource == "namespaces":
            obj.setdefault("status", {})["phase"] = "Terminating"
        if obj != stored:
            self._commit("MODIFIED", resource, obj, stored)
        return copy(obj)  # type: ignore[no-any-return]

    def _commit(self, event_type: str, resource: str, obj: Object, previous: Object | None) -> None:
        """Write to disk, then to memory, then tell: a full disk leaves memory as it was. Sets resourceVersion."""
        version = self._version + 1
        metadata = obj["metadata"]
        old_version = metadata.get("resourceVersion")
        metadata["resourceVersion"] = str(version)
        key = (metadata.get("namespace", ""), metadata["name"])
        body = json.dumps(obj, separators=(",", ":"))
        try:
            self._db.execute("BEGIN")
            if event_type == "DELETED":
                self._db.execute("DELETE FROM objects WHERE resource=? AND namespace=? AND name=?", (resource, *key))
            else:
                self._db.execute("INSERT OR REPLACE INTO objects VALUES (?,?,?,?)", (resource, *key, body))
            self._db.execute("UPDATE counter SET version=?", (version,))
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            metadata["resourceVersion"] = old_version
            raise ApiError(500, f"Internal error occurred: the store cannot write: {error}") from error
        self._version = version
        if event_type == "DELETED":
            self._objects[resource].pop(key, None)
        else:
            self._objects.setdefault(resource, {})[key] = obj
        if resource == "customresourcedefinitions":
            if event_type == "DELETED":
                self.resources.drop_custom(obj)
            else:
                self.resources.set_custom(obj)
        self._announce(Event(event_type, resource, obj, previous, version))

    def _announce(self, event: Event) -> None:
        if len(self._history) == self._history.maxlen:
            self._oldest = self._history[0].version
        self._history.append(event)
        for watch in self._watches.get(event.resource, ()):
            watch.push(event)
        self._pending.append(event)
        for hook in self.hooks:
            hook(event)
        if self._dispatching:
            return
        # A callback may write; its event waits here, so every callback sees all events in the order of commits.
        self._dispatching = True
        try:
            while self._pending:
                current = self._pending.popleft()
                for callback in (*self._callbacks.get(current.resource, ()), *self._callbacks.get("*", ())):
                    try:
                        callback(current.type, current.obj)
                    except Exception:  # one listener's fault must neither fail the commit nor deafen the others
                        log.exception("a listener failed on %s of %s", current.type, current.resource)
        finally:
            self._dispatching = False

    # Listening

    def subscribe(self, resource: str, callback: Callback) -> Callable[[], None]:
        """Call `callback(type, obj)` after each commit ("*": of any kind). Returns the function that ends it.

        The object is the stored one: never change it. A callback may write to the store.
        """
        callbacks = self._callbacks.setdefault(resource, [])
        callbacks.append(callback)
        return lambda: callbacks.remove(callback)

    def watch_since(self, resource: str, version: int) -> Watch:
        """Events of a resource after `version`. Raises ApiError 410 when the history no longer reaches that far."""
        if version < self._oldest:
            raise status.gone(version, self._oldest)
        past = deque(e for e in self._history if e.version > version and e.resource == resource)
        watch = Watch(resource, past)
        self._watches.setdefault(resource, []).append(watch)
        return watch

    def unwatch(self, watch: Watch) -> None:
        """End a watch."""
        self._watches[watch.resource].remove(watch)


def _body(obj: Object) -> Object:
    return _without(obj, "metadata", "status", "apiVersion", "kind")


def _uid_text(wanted: str, found: str) -> str:
    return f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}"


def _check_preconditions(kind: Resource, stored: Object, uid: str | None, version: str | None) -> None:
    metadata = stored["metadata"]
    why = ""
    if uid and uid != metadata["uid"]:
        why = (
            f"the UID in the precondition ({uid}) does not match the UID in record ({metadata['uid']}). "
            "The object might have been deleted and then recreated"
        )
    elif version and version != metadata["resourceVersion"]:
        why = (
            f"the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record "
            f"({metadata['resourceVersion']}). The object might have been modified"
        )
    if why:
        # Here, unlike elsewhere, the real server names the kind and not the resource.
        raise status.conflict(kind.group, kind.kind, metadata["name"], why)


def _grace(kind: Resource, stored: Object, wanted: int | None) -> int:
    """Seconds a deletion waits: pods only, none for a pod that no node holds or that has ended."""
    if kind.key != "pods":
        return 0
    spec = stored.get("spec", {})
    if not spec.get("nodeName") or stored.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        return 0
    if wanted is not None:
        return max(0, wanted)
    previous = stored["metadata"].get("deletionGracePeriodSeconds")
    return int(previous if previous is not None else spec.get("terminationGracePeriodSeconds", 30))
