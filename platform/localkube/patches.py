"""JSON patch, JSON merge patch and strategic merge patch."""

from __future__ import annotations

from typing import Any, Final

from localkube.fieldsets import LIST_KEYS
from localkube.status import ApiError, Object, bad_request
from localkube.store import copy

_PRIMITIVE_MERGE: Final = ("finalizers",)
_REPLACED: Final = ("taints", "readinessGates")


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


def _pointer(path: str) -> list[str]:
    if not path:
        return []
    if not path.startswith("/"):
        raise bad_request(f"invalid JSON pointer: {path}")
    return [part.replace("~1", "/").replace("~0", "~") for part in path[1:].split("/")]


def _rejected() -> ApiError:
    return ApiError(422, "the server rejected our request due to an error in our request", details={})


def _step(node: Any, part: str) -> Any:
    try:
        return node[int(part)] if isinstance(node, list) else node[part]
    except (KeyError, IndexError, ValueError, TypeError) as error:
        raise _rejected() from error


def _at(document: Any, parts: list[str]) -> Any:
    for part in parts:
        document = _step(document, part)
    return document


def _add(document: Any, parts: list[str], value: Any) -> Any:
    if not parts:
        return value
    parent = _at(document, parts[:-1])
    if isinstance(parent, list):
        try:
            parent.insert(len(parent) if parts[-1] == "-" else int(parts[-1]), value)
        except ValueError as error:
            raise _rejected() from error
    elif isinstance(parent, dict):
        parent[parts[-1]] = value
    else:
        raise _rejected()
    return document


def _remove(document: Any, parts: list[str]) -> None:
    parent = _at(document, parts[:-1])
    _step(parent, parts[-1])
    del parent[int(parts[-1]) if isinstance(parent, list) else parts[-1]]


def json_patch(document: Object, operations: Any) -> Object:
    """RFC 6902. Raises ApiError 422 for an operation that does not apply, as the real server does."""
    if not isinstance(operations, list):
        text = "json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"
        raise bad_request(f"error decoding patch: {text}")
    out: Any = copy(document)
    for operation in operations:
        kind, parts = operation.get("op"), _pointer(operation.get("path", ""))
        match kind:
            case "add":
                out = _add(out, parts, copy(operation.get("value")))
            case "replace":
                _at(out, parts)
                if parts and isinstance(_at(out, parts[:-1]), list):
                    _at(out, parts[:-1])[int(parts[-1])] = copy(operation.get("value"))
                else:
                    out = _add(out, parts, copy(operation.get("value")))
            case "remove":
                _remove(out, parts)
            case "test":
                if _at(out, parts) != operation.get("value"):
                    raise _rejected()
            case "move" | "copy":
                source = _pointer(operation.get("from", ""))
                value = copy(_at(out, source))
                if kind == "move":
                    _remove(out, source)
                out = _add(out, parts, value)
            case _:
                raise bad_request(f"Unexpected kind: {kind}")
    return out  # type: ignore[no-any-return]


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
