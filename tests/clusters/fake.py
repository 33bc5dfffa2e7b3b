"""A cluster in memory for tests of reconcilers: the client's methods, no server. What it does is what a server does
to the few fields that the portal reads; localkube and real clusters are tested elsewhere."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from kubekit.errors import Conflict, KubeError, NotFound, Unreachable

Obj = dict[str, Any]
Key = tuple[str, str | None, str]


class FakeCluster:
    """Objects by (kind, namespace, name). ``refuse`` maps a kind to the error that its writes meet; ``away`` makes
    every request fail as if nobody answered. ``calls`` records verb and kind in order."""

    def __init__(self) -> None:
        self.objects: dict[Key, Obj] = {}
        self.refuse: dict[str, KubeError] = {}
        self.away = False
        self.minor = "36"
        self.calls: list[tuple[str, str]] = []
        self.finalizers: set[str] = set()
        self._count = itertools.count(1)

    def version(self) -> Obj:
        self._meet("version", "", write=False)
        return {"major": "1", "minor": self.minor, "gitVersion": f"v1.{self.minor}.1"}

    def apply(self, obj: Mapping[str, Any], *, dry_run: bool = False, force: bool = True) -> Obj:
        kind, namespace, name = obj["kind"], obj["metadata"].get("namespace"), obj["metadata"]["name"]
        self._meet("apply", kind)
        if namespace is not None and ("Namespace", None, namespace) not in self.objects:
            raise NotFound(f'namespaces "{namespace}" not found', status=404)
        stored = self.objects.get((kind, namespace, name))
        made = copy.deepcopy(dict(obj))
        made["metadata"]["uid"] = stored["metadata"]["uid"] if stored else f"uid-{next(self._count)}"
        made["metadata"]["resourceVersion"] = str(next(self._count))
        if kind == "PersistentVolumeClaim":
            made["status"] = stored["status"] if stored else {"phase": "Pending"}
        self.objects[kind, namespace, name] = made
        return copy.deepcopy(made)

    def get(self, kind: str, namespace: str | None, name: str) -> Obj:
        self._meet("get", kind, write=False)
        try:
            return copy.deepcopy(self.objects[kind, namespace, name])
        except KeyError:
            raise NotFound(f"{kind} {name} not found", status=404) from None

    def list(
        self, kind: str, namespace: str | None = None, *, labels: Mapping[str, str] | None = None, **_: Any
    ) -> Iterator[Obj]:
        self._meet("list", kind, write=False)
        found = [obj for (k, n, _name), obj in self.objects.items() if k == kind and namespace in (None, n)]
        wanted = (labels or {}).items()
        return iter(
            [copy.deepcopy(obj) for obj in found if wanted <= (obj.get("metadata", {}).get("labels") or {}).items()]
        )

    def delete(self, kind: str, namespace: str | None, name: str, *, uid: str | None = None, **_: Any) -> Obj:
        self._meet("delete", kind)
        obj = self.objects.get((kind, namespace, name))
        if obj is None:
            raise NotFound(f"{kind} {name} not found", status=404)
        if uid is not None and obj["metadata"]["uid"] != uid:
            raise Conflict("the UID in the precondition does not match", status=409)
        if kind in self.finalizers:
            obj["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            return copy.deepcopy(obj)
        del self.objects[kind, namespace, name]
        return {"kind": "Status", "status": "Success"}

    def one(self, kind: str) -> Obj:
        """The only object of a kind, as stored (to change it the way controllers do)."""
        found = [obj for (k, _namespace, _name), obj in self.objects.items() if k == kind]
        assert len(found) == 1, found
        return found[0]

    def kinds(self) -> list[str]:
        """The kinds of what is stored, sorted."""
        return sorted(kind for kind, _namespace, _name in self.objects)

    def _meet(self, verb: str, kind: str, *, write: bool = True) -> None:
        self.calls.append((verb, kind))
        if self.away:
            raise Unreachable("http://cluster does not answer: refused")
        if write and kind in self.refuse:
            raise self.refuse[kind]
