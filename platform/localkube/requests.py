"""From an HTTP request to what it means: path, query and body, each refused with the real server's words."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web

from localkube import status
from localkube.resources import REFUSED, REFUSED_SUBRESOURCES, Resource, ResourceTable
from localkube.status import ApiError, FieldError, Object

MAX_BODY: Final = 3 * 1024 * 1024
_ACCEPTED: Final = ("application/json", "application/*", "*/*")


@dataclass(frozen=True)
class Target:
    """A resource path taken apart."""

    resource: Resource
    namespace: str | None
    name: str | None
    subresource: str | None


def parse_path(path: str, table: ResourceTable) -> Target | None:
    """The target of /api/v1/… or /apis/GROUP/VERSION/…; None when it is no resource path.

    Raises ApiError 501 for what a real server has and this one refuses, 404 for what neither has.
    """
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    if rest[0] == "watch":
        raise status.not_implemented("the old /watch/ paths (use ?watch=1)")
    namespace = None
    if rest[0] == "namespaces" and len(rest) > 2 and not (len(rest) == 3 and rest[2] in ("status", "finalize")):
        namespace, rest = rest[1], rest[2:]
    plural, name = rest[0], rest[1] if len(rest) > 1 else None
    subresource = "/".join(rest[2:]) or None
    resource = table.find(group, version, plural)
    if resource is None and (group, plural) in REFUSED:
        raise status.not_implemented(REFUSED[group, plural])
    if resource is None or (namespace is not None and not resource.namespaced):
        raise status.page_request_path()
    if subresource and subresource.partition("/")[0] in REFUSED_SUBRESOURCES.get(resource.key, ()):
        raise status.not_implemented(f"the subresource {subresource.partition('/')[0]} of {plural}")
    if subresource and subresource not in resource.subresources:
        raise status.page_request_path()
    return Target(resource, namespace, name, subresource)


def check_accept(request: web.BaseRequest) -> None:
    """Refuse who takes no plain JSON, which is all there is: no Table, no metadata alone. Raises ApiError 406."""
    offers = (request.headers.get("Accept") or "*/*").split(",")
    if not any(offer.partition(";")[0].strip() in _ACCEPTED and ";as=" not in offer for offer in offers):
        text = "406: Not Acceptable\n\nAvailable representations: application/json"
        raise ApiError(406, text, details={})


def flag(request: web.BaseRequest, name: str) -> bool:
    """A boolean of the query: present and not "false" or "0"."""
    value = request.query.get(name)
    return value is not None and value.lower() not in ("false", "0")


def number(request: web.BaseRequest, name: str) -> int | None:
    """A whole number of the query. Raises ApiError 400."""
    text = request.query.get(name)
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise status.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None


def version_of(request: web.BaseRequest) -> int:
    """`resourceVersion` of a read, 0 when absent or empty. Raises ApiError 400."""
    text = request.query.get("resourceVersion") or "0"
    if not text.isdigit():
        parsing = f'strconv.ParseUint: parsing "{text}": invalid syntax'
        raise status.bad_request(f'invalid resource version: resourceVersion: Invalid value: "{text}": {parsing}')
    return int(text)


def dry_run(request: web.BaseRequest) -> bool:
    """Whether `dryRun=All` is asked. Raises ApiError 422 for another value."""
    values = request.query.getall("dryRun", [])
    for value in values:
        if value != "All":
            errors = [FieldError.unsupported("dryRun", [value], ("All",))]
            raise status.invalid("meta.k8s.io", "CreateOptions", "", errors)
    return bool(values)


def manager_of(request: web.BaseRequest) -> str:
    """The field manager: asked for, or the user agent up to its slash as the real server takes it."""
    asked = request.query.get("fieldManager")
    return asked or request.headers.get("User-Agent", "").partition("/")[0] or "unknown"


async def read_object(request: web.BaseRequest, kind: str) -> Object:
    """The object in the body, at most 3 MiB. Raises ApiError 400, 413, 415."""
    found = await read_body(request, kind)
    if not isinstance(found, dict):
        raise status.bad_request(f"the object provided is unrecognized (must be of type {kind}): not an object")
    return found


async def read_body(request: web.BaseRequest, kind: str) -> Any:
    """The decoded body; None when there is none. JSON alone, which is YAML too. Raises ApiError 400, 413, 415."""
    pieces, size = [], 0
    async for piece in request.content.iter_any():
        size += len(piece)
        if size > MAX_BODY:
            raise ApiError(413, "Request entity too large: limit is 3145728")
        pieces.append(piece)
    data, media = b"".join(pieces), request.headers.get("Content-Type", "")
    if not data:
        return None
    if "protobuf" in media or "cbor" in media:
        text = "localkube takes no protobuf, which this command sends: use kubectl apply, or send JSON"
        raise ApiError(415, text)
    try:
        return json.loads(data, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        text = f"couldn't get version/kind; json parse error: {error} ({data[:200].decode(errors='replace')})"
        raise status.bad_request(f"the object provided is unrecognized (must be of type {kind}): {text}") from error


def _no_constant(name: str) -> None:
    raise ValueError(f"invalid character {name!r} looking for beginning of value")


def continue_token(version: int, key: tuple[str, str]) -> str:
    """Where the next page starts: after this key, of a list begun at this version."""
    body = json.dumps({"v": "meta.k8s.io/v1", "rv": version, "start": "/".join(key) + "\0"}, separators=(",", ":"))
    return base64.urlsafe_b64encode(body.encode()).decode().rstrip("=")


def parse_continue(token: str) -> tuple[int, tuple[str, str]]:
    """Version and key of a token. Raises ApiError 400."""
    try:
        body = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        namespace, _, name = body["start"].rstrip("\0").partition("/")
        return int(body["rv"]), (namespace, name)
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error) as error:
        raise status.bad_request(f"invalid continue token: continue key is not valid: {error}") from error
