"""Field sets and server-side apply: who owns which field, the structured merge, and its conflicts.

The rules are those of sigs.k8s.io/structured-merge-diff. Lists are known by their names alone, in custom resources too
(their schemas are not read); a list that is not named here is atomic.
"""

from __future__ import annotations

import json
from typing import Any, Final

from localkube.status import Object

Element = str
Path = tuple[Element, ...]
FieldSet = set[Path]
Leaves = dict[Path, Any]

LIST_KEYS: Final[dict[str, tuple[str, ...]]] = {
    "containers": ("name",),
    "env": ("name",),
    "volumes": ("name",),
    "volumeMounts": ("mountPath",),
    "imagePullSecrets": ("name",),
    "conditions": ("type",),
    "ownerReferences": ("uid",),
    "taints": ("key", "effect"),
}
"""Lists merged by key. `ports` depends on where it stands: see `_list_keys`."""

SET_LISTS: Final = ("finalizers", "accessModes")
ATOMIC_MAPS: Final = ("selector", "nodeSelector", "fieldRef", "claimRef", "involvedObject", "podSelector")
_PORT_KEYS: Final = {"containerPort": ("containerPort", "protocol"), "port": ("port", "protocol")}
_SYSTEM: Final = (
    "uid resourceVersion creationTimestamp generation deletionTimestamp deletionGracePeriodSeconds managedFields name "
    "namespace selfLink generateName"
)
"""Of the metadata: what only the server sets, and what names the object."""


def _list_keys(name: str, items: list[Any]) -> tuple[str, ...] | None:
    if not all(isinstance(item, dict) for item in items):
        return None
    if name == "ports":
        return next((k for field, k in _PORT_KEYS.items() if items and all(field in item for item in items)), None)
    keys = LIST_KEYS.get(name)
    return keys if keys and all(key in item for item in items for key in keys if key != "protocol") else None


def item_key(item: Object, keys: tuple[str, ...]) -> Element:
    """A list item's path element, such as `k:{"name":"main"}`."""
    values = {key: item.get(key, "TCP" if key == "protocol" else None) for key in sorted(keys)}
    return "k:" + json.dumps(values, separators=(",", ":"))


def _value_key(value: Any) -> Element:
    return "v:" + json.dumps(value, separators=(",", ":"))


def _is_map(name: str, value: Any) -> bool:
    return isinstance(value, dict) and name not in ATOMIC_MAPS


def _children(name: str, value: Any) -> dict[Element, Any] | None:
    """The addressable parts of a value, or None when it is one leaf. Keyed by path element."""
    if _is_map(name, value):
        return {f"f:{key}": item for key, item in value.items()}
    if isinstance(value, list):
        if name in SET_LISTS:
            return {_value_key(item): item for item in value}
        keys = _list_keys(name, value)
        if keys:
            return {item_key(item, keys): item for item in value}
    return None


def _name(element: Element) -> str:
    return element[2:] if element.startswith("f:") else ""


def _walk(value: Any, name: str, path: Path, out: Leaves) -> None:
    children = _children(name, value)
    if not children or path[-1].startswith("v:"):
        out[path] = value
        return
    if path[-1].startswith("k:"):
        out[(*path, ".")] = True
    for element, item in children.items():
        _walk(item, _name(element), (*path, element), out)


def leaves(obj: Object) -> Leaves:
    """The leaves that a manifest sets and their values, without the status and what only the server sets."""
    out: Leaves = {}
    for key, value in obj.items():
        if key in ("apiVersion", "kind", "status"):
            continue
        if key == "metadata":
            for name, item in value.items():
                if name not in _SYSTEM.split() and item is not None:
                    _walk(item, name, ("f:metadata", f"f:{name}"), out)
        elif value is not None:
            _walk(value, key, (f"f:{key}",), out)
    return out


_MISSING: Final = object()


def encode(fields: FieldSet) -> Object:
    """FieldsV1: the nested form stored in managedFields."""
    root: Object = {}
    for path in sorted(fields):
        node = root
        for element in path:
            node = node.setdefault(element, {})
    return root


def decode(encoded: Object) -> FieldSet:
    """The paths of a FieldsV1."""
    out: FieldSet = set()

    def visit(node: Object, path: Path) -> None:
        if not node and path:
            out.add(path)
        for element, child in node.items():
            visit(child, (*path, element))

    visit(encoded, ())
    return out


def show(path: Path) -> str:
    """A path as conflict texts print it: `.spec.template.spec.containers[name="main"].image`."""
    text = ""
    for element in path:
        if element.startswith("f:"):
            text += "." + element[2:]
        elif element.startswith("k:"):
            pairs = json.loads(element[2:])
            text += "[" + ",".join(f"{key}={json.dumps(value)}" for key, value in pairs.items()) + "]"
        elif element.startswith("v:"):
            text += f"[={element[2:]}]"
    return text


def merge(live: Any, applied: Any, name: str = "") -> Any:
    """The applied configuration laid over the live object, lists by their keys."""
    if _is_map(name, live) and _is_map(name, applied):
        merged = dict(live)
        for key, value in applied.items():
            merged[key] = merge(live[key], value, key) if key in live else value
        return merged
    if isinstance(live, list) and isinstance(applied, list):
        if name in SET_LISTS:
            return [*live, *(item for item in applied if item not in live)]
        keys = _list_keys(name, [*live, *applied])
        if keys:
            items = {item_key(item, keys): item for item in live}
            wanted = {item_key(item, keys): item for item in applied}
            # Items that the configuration names come in its order, the others after them.
            ordered = {key: merge(items[key], item) if key in items else item for key, item in wanted.items()}
            return [*ordered.values(), *(item for key, item in items.items() if key not in ordered)]
    return applied


def remove(value: Any, paths: FieldSet) -> Any:
    """A copy of an object without the given paths; maps and keyed lists left empty by it go as well."""
    out = _remove(value, paths, "")
    return {} if out is _MISSING else out


def _remove(value: Any, paths: FieldSet, name: str) -> Any:
    if () in paths or (".",) in paths:
        return _MISSING
    by_element: dict[Element, FieldSet] = {}
    for path in paths:
        by_element.setdefault(path[0], set()).add(path[1:])
    if isinstance(value, dict):
        out = {}
        for key, item in value.items():
            below = by_element.get(f"f:{key}")
            kept = _remove(item, below, key) if below else item
            if kept is not _MISSING:
                out[key] = kept
        return out if out or not value else _MISSING
    children = _children(name, value) if isinstance(value, list) else None
    if children is None:
        return value
    items = []
    for element, item in children.items():
        below = by_element.get(element)
        kept = _remove(item, below, "") if below else item
        if kept is not _MISSING:
            items.append(kept)
    return items or _MISSING
