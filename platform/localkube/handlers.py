"""REST handlers for objects: get, list, create, update, patch, delete, and the subresources that are plain objects."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import web

from localkube import patches, requests, selectors, status, table
from localkube.registry import Registry, Write, check_name
from localkube.requests import Target
from localkube.resources import Resource
from localkube.status import ApiError, FieldError, Object
from localkube.store import Store, copy, now
from localkube.watch import serve_watch

Handler = Callable[[web.BaseRequest, Target], Awaitable[web.Response]]

_MERGE: Final = "application/merge-patch+json"
_STRATEGIC: Final = "application/strategic-merge-patch+json"
_JSON_PATCH: Final = "application/json-patch+json"
_APPLY: Final = ("application/apply-patch+yaml", "application/apply-patch+cbor")


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
        method, named = request.method, target.name is not None
        handler: Handler | None
        if not named:
            if method == "GET" and requests.flag(request, "watch"):
                return await serve_watch(self.store, target, request)
            handler = {"GET": self._list, "POST": self._create, "DELETE": self._delete_collection}.get(method)
        elif target.subresource:
            handler = self._subresource(target, method)
        else:
            handler = {
                "GET": self._get,
                "PUT": self._update,
                "PATCH": self._patch,
                "DELETE": self._delete,
            }.get(method)
        if handler is None or (
            target.resource.namespaced and method == "POST" and target.namespace is None and not named
        ):
            raise ApiError(405, "the server does not allow this method on the requested resource", details={})
        return await handler(request, target)

    def _subresource(self, target: Target, method: str) -> Handler | None:
        match target.subresource, method:
            case "status", "GET":
                return self._get
            case "status", "PUT":
                return self._update
            case "status", "PATCH":
                return self._patch
            case "scale", "GET" | "PUT" | "PATCH":
                return self._scale
            case "finalize", "PUT":
                return self._finalize
            case "binding", "POST":
                return self._bind
            case "eviction", "POST":
                return self._evict
        return None

    # Reading

    async def _get(self, request: web.BaseRequest, target: Target) -> web.Response:
        assert target.name is not None
        wanted = requests.version_of(request) or 0
        if wanted > self.store.version:
            raise too_large(wanted, self.store.version)
        obj = self.store.stored(target.resource.key, target.namespace, target.name)
        return respond(200, table.shape(request, target.resource, present(target.resource, obj), single=True))

    async def _list(self, request: web.BaseRequest, target: Target) -> web.Response:
        query = request.query
        self._check_list_version(request)
        items, current = self.store.list(
            target.resource.key,
            target.namespace,
            labels=query.get("labelSelector"),
            fields=query.get("fieldSelector"),
        )
        metadata: Object = {"resourceVersion": str(current)}
        if token := query.get("continue"):
            begun, after = requests.parse_continue(token)
            items = [obj for obj in items if _key(obj) > after]
            metadata["resourceVersion"] = str(begun)
        limit = requests.number(request, "limit") or 0
        if 0 < limit < len(items):
            metadata["continue"] = requests.continue_token(int(metadata["resourceVersion"]), _key(items[limit - 1]))
            if not query.get("labelSelector") and not query.get("fieldSelector"):
                metadata["remainingItemCount"] = len(items) - limit
            items = items[:limit]
        body = {
            "kind": f"{target.resource.kind}List",
            "apiVersion": target.resource.api_version,
            "metadata": metadata,
            "items": [present(target.resource, obj) for obj in items],
        }
        return respond(200, table.shape(request, target.resource, body, single=False))

    def _check_list_version(self, request: web.BaseRequest) -> None:
        """Refuse what asks for another moment than the present. Raises ApiError 410, 422 and 504."""
        version, match = requests.version_of(request), request.query.get("resourceVersionMatch")
        if match and version is None and not request.query.get("continue"):
            text = "resourceVersionMatch is forbidden unless resourceVersion is provided"
            raise requests.list_options_error("resourceVersionMatch", text)
        if match not in (None, "", "Exact", "NotOlderThan"):
            errors = [FieldError.unsupported("resourceVersionMatch", match, ("Exact", "NotOlderThan", ""))]
            raise status.invalid("meta.k8s.io", "ListOptions", "", errors)
        if version and version > self.store.version:
            raise too_large(version, self.store.version)
        if match == "Exact" and version is not None and version < self.store.version:
            raise ApiError(410, "The resourceVersion for the provided list is too old.")

    # Writing

    def _write(self, request: web.BaseRequest, target: Target, body: Object | None = None) -> Write:
        return Write(
            manager=requests.manager_of(request),
            dry_run=requests.dry_run(request, body),
            subresource=target.subresource or "",
            field_validation=request.query.get("fieldValidation", "Warn"),
        )

    async def _create(self, request: web.BaseRequest, target: Target) -> web.Response:
        obj = await requests.read_object(request, target.resource.kind)
        write = self._write(request, target)
        created = self.registry.create(target.resource, target.namespace, obj, write)
        return respond(201, table.shape(request, target.resource, created, single=True), write.warnings)

    async def _update(self, request: web.BaseRequest, target: Target) -> web.Response:
        assert target.name is not None
        obj = await requests.read_object(request, target.resource.kind)
        write = self._write(request, target)
        self._locate(target, obj)
        updated = self.registry.update(target.resource, obj, write)
        return respond(200, table.shape(request, target.resource, updated, single=True), write.warnings)

    def _locate(self, target: Target, obj: Object) -> None:
        """Check a body's identity against the path, and complete it from there."""
        assert target.name is not None
        kind = obj.setdefault("kind", target.resource.kind)
        obj.setdefault("apiVersion", target.resource.api_version)
        if kind != target.resource.kind:
            raise status.bad_request(f"{kind} cannot be handled as a {target.resource.kind}: unknown conversion")
        metadata = obj.setdefault("metadata", {})
        check_name(metadata, target.name)
        metadata["name"] = target.name
        if target.resource.namespaced:
            if metadata.get("namespace") not in (None, "", target.namespace):
                text = "the namespace of the provided object does not match the namespace sent on the request"
                raise status.bad_request(text)
            metadata["namespace"] = target.namespace

    async def _patch(self, request: web.BaseRequest, target: Target) -> web.Response:
        assert target.name is not None
        resource, write = target.resource, self._write(request, target)
        content_type = request.headers.get("Content-Type", "").partition(";")[0].strip()
        if content_type in _APPLY:
            return await self._apply(request, target, write)
        patch = requests.decode(await requests.read_body(request), resource.kind, content_type)
        stored = self.store.stored(resource.key, target.namespace, target.name)
        obj = patched(content_type, resource, present(resource, stored), patch)
        self._locate(target, obj)
        updated = self.registry.update(resource, obj, write)
        return respond(200, table.shape(request, resource, updated, single=True), write.warnings)

    async def _apply(self, request: web.BaseRequest, target: Target, write: Write) -> web.Response:
        assert target.name is not None
        if not request.query.get("fieldManager"):
            errors = [FieldError.required("fieldManager", "is required for apply patch")]
            raise status.invalid("meta.k8s.io", "PatchOptions", "", errors)
        data = await requests.read_body(request)
        applied = requests.decode(data, target.resource.kind, _APPLY[0])
        if not isinstance(applied, dict):
            raise status.bad_request("error decoding YAML: not an object")
        obj, created = self.registry.apply(
            target.resource,
            target.namespace,
            target.name,
            applied,
            write,
            force=requests.flag(request, "force"),
        )
        shaped = table.shape(request, target.resource, obj, single=True)
        return respond(201 if created else 200, shaped, write.warnings)

    async def _delete(self, request: web.BaseRequest, target: Target) -> web.Response:
        assert target.name is not None
        options = await self._delete_options(request)
        dry_run = requests.dry_run(request, options)
        obj = self.registry.delete(target.resource, target.namespace, target.name, options, dry_run=dry_run)
        metadata, resource = obj["metadata"], target.resource
        current = self.store.peek(resource.key, target.namespace, target.name)
        gone = current is None or current["metadata"]["uid"] != metadata["uid"]
        if resource.key == "pods" or not gone or dry_run:
            return respond(200, obj)
        details = {"name": metadata["name"], "group": resource.group, "kind": resource.plural, "uid": metadata["uid"]}
        return respond(200, status.success(**details))

    async def _delete_options(self, request: web.BaseRequest) -> Object:
        data = await requests.read_body(request)
        options: Any = requests.decode(data, "DeleteOptions", request.headers.get("Content-Type", "")) if data else {}
        if not isinstance(options, dict):
            raise status.bad_request("the delete options are not an object")
        if (grace := requests.number(request, "gracePeriodSeconds")) is not None:
            options["gracePeriodSeconds"] = grace
        if propagation := request.query.get("propagationPolicy"):
            options["propagationPolicy"] = propagation
        return options

    async def _delete_collection(self, request: web.BaseRequest, target: Target) -> web.Response:
        options = await self._delete_options(request)
        items, version = self.store.list(
            target.resource.key,
            target.namespace,
            labels=request.query.get("labelSelector"),
            fields=request.query.get("fieldSelector"),
        )
        dry_run = requests.dry_run(request, options)
        deleted = []
        for obj in tuple(items):
            metadata = obj["metadata"]
            try:
                deleted.append(
                    self.registry.delete(
                        target.resource, metadata.get("namespace"), metadata["name"], options, dry_run=dry_run
                    )
                )
            except ApiError as error:
                if error.code != 404:
                    raise
        body = {
            "kind": f"{target.resource.kind}List",
            "apiVersion": target.resource.api_version,
            "metadata": {"resourceVersion": str(version)},
            "items": deleted,
        }
        return respond(200, body)

    # Subresources that are objects of their own

    async def _scale(self, request: web.BaseRequest, target: Target) -> web.Response:
        assert target.name is not None
        stored = self.store.stored(target.resource.key, target.namespace, target.name)
        if request.method == "GET":
            return respond(200, scale_of(stored))
        write = self._write(request, target)
        content_type = request.headers.get("Content-Type", "").partition(";")[0].strip()
        data = requests.decode(await requests.read_body(request), "Scale", content_type)
        if request.method == "PATCH":
            data = patched(content_type, None, scale_of(stored), data)
        replicas = (data.get("spec") or {}).get("replicas", 0)
        if not isinstance(replicas, int) or replicas < 0:
            errors = [FieldError.invalid("spec.replicas", replicas, "must be greater than or equal to 0")]
            raise status.invalid("autoscaling", "Scale", target.name, errors)
        obj = copy(stored)
        obj["spec"]["replicas"] = replicas
        if version := (data.get("metadata") or {}).get("resourceVersion"):
            obj["metadata"]["resourceVersion"] = version
        return respond(200, scale_of(self.registry.update(target.resource, obj, write)), write.warnings)

    async def _finalize(self, request: web.BaseRequest, target: Target) -> web.Response:
        obj = await requests.read_object(request, "Namespace")
        self._locate(target, obj)
        return respond(200, self.registry.update(target.resource, obj, self._write(request, target)))

    async def _bind(self, request: web.BaseRequest, target: Target) -> web.Response:
        assert target.name is not None
        binding = await requests.read_object(request, "Binding")
        node = (binding.get("target") or {}).get("name")
        if not node:
            raise status.invalid("", "Binding", target.name, [FieldError.required("target.name")])
        bind(self.store, target.namespace or "", target.name, node)
        return respond(201, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})

    async def _evict(self, request: web.BaseRequest, target: Target) -> web.Response:
        assert target.name is not None
        eviction = await requests.read_object(request, "Eviction")
        options = eviction.get("deleteOptions") or {}
        dry_run = requests.dry_run(request, options)
        self.registry.delete(target.resource, target.namespace, target.name, options, dry_run=dry_run)
        return respond(201, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})


def bind(store: Store, namespace: str, name: str, node: str) -> None:
    """Give a pod to a node, once. Raises ApiError 404 and 409."""
    pod = store.get("pods", namespace, name)
    if pod["spec"].get("nodeName"):
        raise status.conflict(
            "", "pods/binding", name, f'pod {name} is already assigned to node "{pod["spec"]["nodeName"]}"'
        )
    pod["spec"]["nodeName"] = node
    conditions = pod["status"].setdefault("conditions", [])
    conditions[:] = [c for c in conditions if c["type"] != "PodScheduled"]
    conditions.append({"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now()})
    stored = store.stored("pods", namespace, name)
    store.replace(store.resources["pods"], stored, pod)


def patched(content_type: str, resource: Resource | None, current: Object, patch: Any) -> Object:
    """The object after a patch of one of the three kinds. Raises ApiError 415 and what the patch raises."""
    if content_type == _JSON_PATCH:
        return patches.json_patch(current, patch)
    if not isinstance(patch, dict):
        raise status.bad_request(
            "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"
        )
    if content_type == _STRATEGIC and (resource is None or not resource.custom):
        return copy(patches.strategic_merge(current, patch))  # type: ignore[no-any-return]
    if content_type == _MERGE:
        return copy(patches.json_merge(current, patch))  # type: ignore[no-any-return]
    raise ApiError(415, "415: Unsupported Media Type", details={})


def present(resource: Resource, obj: Object) -> Object:
    """An object under the version of the path: custom kinds may be served as several."""
    if resource.custom and obj["apiVersion"] != resource.api_version:
        return obj | {"apiVersion": resource.api_version}
    return obj


def scale_of(obj: Object) -> Object:
    """The Scale view of a StatefulSet or of a custom resource."""
    metadata, spec = obj["metadata"], obj.get("spec", {})
    selector = selectors.to_text(spec.get("selector"))
    keep = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: metadata[key] for key in keep if key in metadata},
        "spec": {"replicas": spec["replicas"]} if spec.get("replicas") else {},
        "status": {"replicas": obj.get("status", {}).get("replicas", 0), "selector": selector},
    }


def too_large(wanted: int, current: int) -> ApiError:
    """A resourceVersion from the future: the client kept it over a reset of the store."""
    text = f"Timeout: Too large resource version: {wanted}, current: {current}"
    details = {"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]}
    return ApiError(504, text, details=details | {"retryAfterSeconds": 1})


def _key(obj: Object) -> tuple[str, str]:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]
