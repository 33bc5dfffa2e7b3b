"""The forms a client may ask for: the object itself, a Table (what `kubectl get` prints), or its metadata alone."""

from __future__ import annotations

from dataclasses import dataclass

from aiohttp import web

from localkube.columns import columns_of
from localkube.resources import Resource
from localkube.status import ApiError, Object


@dataclass(frozen=True)
class Form:
    """What the Accept header settles on, and how much of each object a Table's row carries."""

    kind: str = "object"
    include: str = "Metadata"

    @classmethod
    def of(cls, request: web.BaseRequest) -> Form:
        """The first acceptable form. Raises ApiError 406 when there is none (protobuf alone)."""
        include = request.query.get("includeObject", "Metadata")
        accept = request.headers.get("Accept", "") or "*/*"
        for offer in accept.split(","):
            media, *parameters = (part.strip() for part in offer.split(";"))
            values = dict(part.split("=", 1) for part in parameters if "=" in part)
            if media not in ("application/json", "*/*", "application/*", "application/yaml", "text/html"):
                continue
            wanted = values.get("as", "")
            if wanted == "Table":
                return cls("table", include)
            if wanted.startswith("PartialObjectMetadata"):
                return cls("metadata", include)
            if not wanted:
                return cls("object", include)
        text = "406: Not Acceptable\n\nAvailable representations: application/json"
        raise ApiError(406, text, details={})

    def watch_object(self, resource: Resource, obj: Object, *, first: bool, bookmark: bool) -> Object:
        """One watch event's object in this form; only the first Table names its columns."""
        if self.kind == "metadata":
            return _metadata_only(obj)
        if self.kind != "table":
            return obj
        if bookmark:
            return _table(resource, [], obj["metadata"]["resourceVersion"], self.include, header=first)
        return _table(resource, [obj], obj["metadata"]["resourceVersion"], self.include, header=first)


def shape(request: web.BaseRequest, resource: Resource, body: Object, *, single: bool) -> Object:
    """An object (single) or a list in the form the request accepts. Raises ApiError 406."""
    form = Form.of(request)
    if form.kind == "object":
        return body
    if form.kind == "metadata":
        if single:
            return _metadata_only(body)
        items = [_metadata_only(obj) for obj in body["items"]]
        return {
            "kind": "PartialObjectMetadataList",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": body["metadata"],
            "items": items,
        }
    objects = [body] if single else body["items"]
    out = _table(resource, objects, body["metadata"]["resourceVersion"] if single else "", form.include, header=True)
    if not single:
        out["metadata"] = body["metadata"]
    return out


def _metadata_only(obj: Object) -> Object:
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


def _table(resource: Resource, objects: list[Object], version: str, include: str, *, header: bool) -> Object:
    columns = columns_of(resource)
    definitions = [
        {"name": c.name, "type": c.type, "format": c.format, "description": "", "priority": c.priority} for c in columns
    ]
    rows = []
    for obj in objects:
        row: Object = {"cells": [column.cell(obj) for column in columns]}
        if include == "Object":
            row["object"] = obj
        elif include != "None":
            row["object"] = _metadata_only(obj)
        rows.append(row)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": version},
        "columnDefinitions": definitions if header else None,
        "rows": rows,
    }
