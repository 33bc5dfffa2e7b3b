"""JSON merge patch and strategic merge patch."""

from __future__ import annotations

from typing import Any, Final

from localkube.fieldsets import LIST_KEYS
from localkube.status import ApiError, Object

_PRIMITIVE_MERGE: Final = ("finalizers",)
_REPLACED: Final = ("taints",)


def json_merge(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    out = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        else:
            out[key] = json_merge(out.get(key), value)
    return out


def _merge_key(name: str, items: list[Any]) -> str | None:
    if name == "ports":
        return next((k for k in ("containerPort", "port") if items and all(k in i for i in items)), None)
    keys = LIST_KEYS.get(name)
    return keys[0] if keys and name not in _REPLACED else None


def strategic_merge(target: Any, patch: Any, name: str = "") -> Any:
    """Strategic merge for the built-in kinds: lists merge by their keys, with the $patch directives of kubectl."""
    if not isinstance(patch, dict):
        return patch
    directive = patch.get("$patch")
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    if directive == "delete":
        return {}
    out = dict(target) if isinstance(target, dict) else {}
    if keys := patch.get("$retainKeys"):
        out = {key: value for key, value in out.items() if key in keys}
    for key, value in patch.items():
        if key.startswith("$deleteFromPrimitiveList/"):
            field = key.partition("/")[2]
            out[field] = [item for item in out.get(field) or () if item not in value]
    for key, value in patch.items():
        if key.startswith("$"):
            continue
        if value is None:
            out.pop(key, None)
        elif isinstance(value, list):
            out[key] = _merge_list(key, out.get(key) or [], value)
        else:
            out[key] = strategic_merge(out.get(key), value, key)
    for key, order in patch.items():
        if key.startswith("$setElementOrder/"):
            _reorder(out, key.partition("/")[2], order)
    return out


def _merge_list(name: str, target: list[Any], patch: list[Any]) -> list[Any]:
    if any(isinstance(item, dict) and item.get("$patch") == "replace" and len(item) == 1 for item in patch):
        return [item for item in patch if item != {"$patch": "replace"}]
    if name in _PRIMITIVE_MERGE:
        return [*target, *(item for item in patch if item not in target)]
    key = _merge_key(name, [item for item in [*target, *patch] if isinstance(item, dict)])
    if key is None or not all(isinstance(item, dict) for item in patch):
        return patch
    out = list(target)
    for item in patch:
        if key not in item:
            shown = " ".join(f"{name}:{value}" for name, value in sorted(item.items()))
            raise ApiError(500, f"map: map[{shown}] does not contain declared merge key: {key}")
        index = next((i for i, found in enumerate(out) if found.get(key) == item[key]), None)
        if item.get("$patch") == "delete":
            if index is not None:
                del out[index]
        elif index is None:
            out.append(strategic_merge({}, item))
        else:
            out[index] = strategic_merge(out[index], item)
    return out


def _reorder(out: Object, name: str, order: list[Any]) -> None:
    items = out.get(name)
    if not items:
        return
    key = _merge_key(name, [item for item in items if isinstance(item, dict)])

    def rank(item: Any) -> int:
        wanted = {key: item.get(key)} if key and isinstance(item, dict) else item
        for position, entry in enumerate(order):
            if entry == wanted or (key and isinstance(entry, dict) and entry.get(key) == item.get(key)):
                return position
        return len(order)

    out[name] = sorted(items, key=rank)
