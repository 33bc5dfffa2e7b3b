"""managedFields: who set which field by apply or by update, and server-side apply on top of it."""

from __future__ import annotations

from dataclasses import dataclass

from localkube.fieldsets import FieldSet, Path, decode, encode, leaves, merge, remove, show
from localkube.status import ApiError, Object, bad_request
from localkube.store import copy, now


@dataclass
class Entry:
    """One line of managedFields."""

    manager: str
    operation: str
    api_version: str
    time: str
    fields: FieldSet
    subresource: str = ""

    def same(self, manager: str, operation: str, subresource: str) -> bool:
        return (self.manager, self.operation, self.subresource) == (manager, operation, subresource)

    @property
    def title(self) -> str:
        """How a conflict names the owner."""
        text = f'"{self.manager}"'
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        return text if self.operation == "Apply" else f"{text} using {self.api_version}"


def _read(obj: Object | None) -> list[Entry]:
    return [
        Entry(
            raw.get("manager", ""),
            raw.get("operation", ""),
            raw.get("apiVersion", ""),
            raw.get("time", ""),
            decode(raw.get("fieldsV1") or {}),
            raw.get("subresource", ""),
        )
        for raw in ((obj or {}).get("metadata") or {}).get("managedFields") or ()
    ]


def _write(obj: Object, entries: list[Entry]) -> None:
    kept = [entry for entry in entries if entry.fields]
    if not kept:
        obj["metadata"].pop("managedFields", None)
        return
    out = []
    for entry in sorted(kept, key=lambda e: (e.operation != "Apply", e.time, e.manager)):
        raw = {
            "manager": entry.manager,
            "operation": entry.operation,
            "apiVersion": entry.api_version,
            "time": entry.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": encode(entry.fields),
        }
        out.append(raw | ({"subresource": entry.subresource} if entry.subresource else {}))
    obj["metadata"]["managedFields"] = out


def track_update(old: Object | None, new: Object, *, manager: str, subresource: str = "") -> None:
    """Note in `new` that `manager` set whatever differs from `old`; others lose those fields."""
    entries = _read(old)
    before, after = leaves(old) if old else {}, leaves(new)
    changed = {path for path, value in after.items() if path not in before or before[path] != value}
    touched = changed | (before.keys() - after.keys())
    if subresource == "scale":
        changed = {path for path in changed if after[path] != 0}  # a Scale of no replicas leaves them out
    if not touched:
        _write(new, entries)
        return
    for entry in entries:
        entry.fields -= touched
    own = next((entry for entry in entries if entry.same(manager, "Update", subresource)), None)
    if own is None:
        own = Entry(manager, "Update", new["apiVersion"], "", set(), subresource)
        entries.append(own)
    if changed:
        own.fields |= changed
        own.time = now()
    _write(new, entries)


def _conflicts(found: list[tuple[Entry, list[Path]]]) -> ApiError:
    count = sum(len(paths) for _, paths in found)
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {entry.title}", "field": show(path)}
        for entry, paths in found
        for path in paths
    ]
    if count == 1:
        text = f"Apply failed with 1 conflict: conflict with {found[0][0].title}: {show(found[0][1][0])}"
    else:
        lines = []
        for entry, paths in found:
            lines.append(f"conflicts with {entry.title}:")
            lines += [f"- {show(path)}" for path in paths]
        text = f"Apply failed with {count} conflicts: " + "\n".join(lines)
    return ApiError(409, text, details={"causes": causes})


def apply(live: Object | None, applied: Object, *, manager: str, force: bool, subresource: str = "") -> Object:
    """The object that a server-side apply leaves, with its managedFields. Raises ApiError 409 for a conflict.

    Fields that this manager applied before and leaves out now are removed, unless somebody else set them too.
    """
    if (applied.get("metadata") or {}).get("managedFields"):
        raise bad_request("metadata.managedFields must be nil")
    wanted = leaves(applied)
    names = set(wanted)
    if live is None:
        created: Object = copy(applied)
        _write(created, [Entry(manager, "Apply", applied["apiVersion"], now(), names, subresource)])
        return created
    entries = _read(live)
    present = leaves(live)
    own = next((entry for entry in entries if entry.same(manager, "Apply", subresource)), None)
    others = [entry for entry in entries if entry is not own]
    found = []
    for entry in others:
        paths = [p for p in wanted if p in entry.fields and p[-1] != "." and present.get(p) != wanted[p]]
        if paths:
            found.append((entry, paths))
    if found and not force:
        raise _conflicts(sorted(found, key=lambda pair: pair[0].manager))
    for entry, paths in found:
        entry.fields -= set(paths)
    kept = names.union(*(entry.fields for entry in others))
    parents = {path[:length] for path in kept for length in range(1, len(path))}
    dropped = set()
    for path in (own.fields if own else set()) - kept:
        target = path[:-1] if path[-1] == "." else path
        if target not in parents:
            dropped.add(path)
    merged = merge(remove(live, dropped) if dropped else live, {k: v for k, v in applied.items() if k != "status"})
    result: Object = copy(merged)
    if own is None:
        own = Entry(manager, "Apply", applied["apiVersion"], now(), names, subresource)
        entries.append(own)
    elif own.fields != names:
        own.fields, own.time = names, now()
    _write(result, entries)
    return result
