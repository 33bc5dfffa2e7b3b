"""REST handlers for objects: get, list, create, update, patch, delete, and the subresources `status` and `scale`."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import web

from localkube import patches, requests, selectors, status
from localkube.registry import Registry, Write, check_name, same_uid
from localkube.requests import Target
from localkube.resources import Resource
from localkube.status import ApiError, FieldError, Object
from localkube.store import Store, copy
from localkube.watch import serve_watch

Handler = Callable[[web.BaseRequest, Target], Awaitable[web.Response]]

_MERGE: Final = "application/merge-patch+json"
_STRATEGIC: Final = "application/strategic-merge-patch+json"
_APPLY: Final = "application/apply-patch+yaml"


def respond(code: int, body: Object, warnings: list[str] | None = None) -> web.Response:
    """A JSON answer with its Warning headers."""
    response = web.Response(status=code, body=json.dumps(body, separators=(",", ":")), content_type="application/json")
    response.headers["Cache-Control"] = "no-cache, private"
    for warning in dict.fromkeys(warnings or ()):
        escaped = warning.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
        response.headers.add("Warning", f'299 - "{escaped}"')
    return response


class Handlers:
    """Answers requests whose path names a resource."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.store: Store = registry.store

    async def handle(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        """One request, by method and by whether a name and a subresource are given. Raises ApiError."""
        requests.check_accept(request)
        method, named = request.method, target.name is not None
        if not named and method == "GET" and requests.flag(request, "watch"):
            return await serve_watch(self.store, target, request)
        if not named and method == "DELETE":
            raise status.not_implemented("the deletion of a whole collection: delete its objects by name")
        handler: Handler | None
        if target.subresource == "scale":
            handler = self._scale if method in ("GET", "PUT", "PATCH") else None
        elif named:
            of_objects = {"GET": self._get, "PUT": self._update, "PATCH": self._patch}
            of_objects |= {} if target.subresource else {"DELETE": self._delete}
            handler = of_objects.get(method)
        else:
            everywhere = target.resource.namespaced and target.namespace is None
            handler = {"GET": self._list, "POST": None if everywhere else self._create}.get(method)
        if handler is None:
            raise ApiError(405, "the server does not allow this method on the requested resource", details={})
        return await handler(request, target)

    # Reading

    async def _get(self, request: web.BaseRequest, target: Target) -> web.Response:
        assert target.name is not None
        return respond(200, self.store.stored(target.resource.key, target.namespace, target.name))

    async def _list(self, request: web.BaseRequest, target: Target) -> web.Response:
        query, resource = request.query, target.resource
        if query.get("resourceVersionMatch") == "Exact":
            raise status.not_implemented("lists of an earlier moment (resourceVersionMatch=Exact)")
        requests.version_of(request)  # any version will do: the present is not older
        labels, fields = query.get("labelSelector"), query.get("fieldSelector")
        items, current = self.store.list(resource.key, target.namespace, labels=labels, fields=fields)
        metadata: Object = {"resourceVersion": str(current)}
        if token := query.get("continue"):
            begun, after = requests.parse_continue(token)
            items = [obj for obj in items if _key(obj) > after]
            metadata["resourceVersion"] = str(begun)
        limit = requests.number(request, "limit") or 0
        if 0 < limit < len(items):
            metadata["continue"] = requests.continue_token(int(metadata["resourceVersion"]), _key(items[limit - 1]))
            if not labels and not fields:
                metadata["remainingItemCount"] = len(items) - limit
            items = items[:limit]
        body = {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": metadata}
        if not resource.custom:  # as a real server's lists, whose items say neither
            items = [{key: obj[key] for key in obj if key not in ("kind", "apiVersion")} for obj in items]
        return respond(200, body | {"items": items})

    # Writing

    def _write(self, request: web.BaseRequest, target: Target) -> Write:
        return Write(
            manager=requests.manager_of(request),
            dry_run=requests.dry_run(request),
            subresource=target.subresource or "",
        )

    async def _create(self, request: web.BaseRequest, target: Target) -> web.Response:
        obj = await requests.read_object(request, target.resource.kind)
        write = self._write(request, target)
        return respond(201, self.registry.create(target.resource, target.namespace, obj, write), write.warnings)

    async def _update(self, request: web.BaseRequest, target: Target) -> web.Response:
        obj = await requests.read_object(request, target.resource.kind)
        write = self._write(request, target)
        _locate(target, obj)
        return respond(200, self.registry.update(target.resource, obj, write), write.warnings)

    async def _patch(self, request: web.BaseRequest, target: Target) -> web.Response:
        assert target.name is not None
        resource, write = target.resource, self._write(request, target)
        content_type = request.headers.get("Content-Type", "").partition(";")[0].strip()
        if content_type == _APPLY:
            return await self._apply(request, target, write)
        patch = await requests.read_body(request, resource.kind)
        stored = self.store.stored(resource.key, target.namespace, target.name)
        obj = patched(content_type, resource, stored, patch)
        _locate(target, obj)
        same_uid(resource, obj["metadata"], stored)
        return respond(200, self.registry.update(resource, obj, write), write.warnings)

    async def _apply(self, request: web.BaseRequest, target: Target, write: Write) -> web.Response:
        assert target.name is not None
        if not request.query.get("fieldManager"):
            errors = [FieldError.required("fieldManager", "is required for apply patch")]
            raise status.invalid("meta.k8s.io", "PatchOptions", "", errors)
        applied = await requests.read_object(request, target.resource.kind)
        force = requests.flag(request, "force")
        obj, created = self.registry.apply(target.resource, target.namespace, target.name, applied, write, force=force)
        return respond(201 if created else 200, obj, write.warnings)

    async def _delete(self, request: web.BaseRequest, target: Target) -> web.Response:
        assert target.name is not None
        options: Any = await requests.read_body(request, "DeleteOptions") or {}
        if not isinstance(options, dict):
            raise status.bad_request("the delete options are not an object")
        if (grace := requests.number(request, "gracePeriodSeconds")) is not None:
            options["gracePeriodSeconds"] = grace
        if propagation := request.query.get("propagationPolicy"):
            options["propagationPolicy"] = propagation
        if requests.dry_run(request) or options.get("dryRun"):
            raise status.not_implemented("a dry run of a deletion")
        obj = self.registry.delete(target.resource, target.namespace, target.name, options)
        metadata, resource = obj["metadata"], target.resource
        current = self.store.peek(resource.key, target.namespace, target.name)
        gone = current is None or current["metadata"]["uid"] != metadata["uid"]
        if resource.key == "pods" or not gone:
            return respond(200, obj)
        details = {"name": metadata["name"], "group": resource.group, "kind": resource.plural, "uid": metadata["uid"]}
        return respond(200, status.success(**details))

    async def _scale(self, request: web.BaseRequest, target: Target) -> web.Response:
        assert target.name is not None
        stored = self.store.stored(target.resource.key, target.namespace, target.name)
        if request.method == "GET":
            return respond(200, scale_of(stored))
        write = self._write(request, target)
        data = await requests.read_object(request, "Scale")
        if request.method == "PATCH":
            data = patched(request.headers.get("Content-Type", ""), None, scale_of(stored), data)
        replicas = (data.get("spec") or {}).get("replicas", 0)
        if not isinstance(replicas, int) or replicas < 0:
            errors = [FieldError.invalid("spec.replicas", replicas, "must be greater than or equal to 0")]
            raise status.invalid("autoscaling", "Scale", target.name, errors)
        obj = copy(stored)
        obj["spec"]["replicas"] = replicas
        if version := (data.get("metadata") or {}).get("resourceVersion"):
            obj["metadata"]["resourceVersion"] = version
        return respond(200, scale_of(self.registry.update(target.resource, obj, write)), write.warnings)


def _locate(target: Target, obj: Object) -> None:
    """Check a body's identity against the path, and complete it from there. Raises ApiError 400."""
    assert target.name is not None
    kind = obj.setdefault("kind", target.resource.kind)
    obj.setdefault("apiVersion", target.resource.api_version)
    if kind != target.resource.kind:
        raise status.bad_request(f"{kind} cannot be handled as a {target.resource.kind}: unknown conversion")
    metadata = obj.setdefault("metadata", {})
    if not isinstance(metadata, dict):
        raise status.bad_request(f"{kind}.metadata is not an object")
    check_name(metadata, target.name)
    metadata["name"] = target.name
    if target.resource.namespaced:
        if metadata.get("namespace") not in (None, "", target.namespace):
            text = "the namespace of the provided object does not match the namespace sent on the request"
            raise status.bad_request(text)
        metadata["namespace"] = target.namespace


def patched(content_type: str, resource: Resource | None, current: Object, patch: Any) -> Object:
    """The object after a merge or strategic merge patch. Raises ApiError 400, 415 and 501."""
    if content_type == "application/json-patch+json":
        raise status.not_implemented("JSON patches (send a merge patch)")
    if not isinstance(patch, dict):
        text = "json: cannot unmarshal array into Go value of type map[string]interface {}"
        raise status.bad_request(f"error decoding patch: {text}")
    if content_type == _STRATEGIC and (resource is None or not resource.custom):
        return copy(patches.strategic_merge(current, patch))  # type: ignore[no-any-return]
    if content_type == _MERGE:
        return copy(patches.json_merge(current, patch))  # type: ignore[no-any-return]
    raise ApiError(415, "415: Unsupported Media Type", details={})


def scale_of(obj: Object) -> Object:
    """The Scale view of a StatefulSet."""
    metadata, spec = obj["metadata"], obj["spec"]
    keep = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    selector = selectors.to_text(spec.get("selector"))
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: metadata[key] for key in keep if key in metadata},
        "spec": {"replicas": spec["replicas"]} if spec.get("replicas") else {},
        "status": {"replicas": obj.get("status", {}).get("replicas", 0), "selector": selector},
    }


def _key(obj: Object) -> tuple[str, str]:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]
