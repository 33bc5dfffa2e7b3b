"""What there is: /version, /api, /apis and the small OpenAPI that keeps `kubectl apply` going."""

from __future__ import annotations

from typing import Final

from localkube import status
from localkube.resources import VERBS, Resource, ResourceTable
from localkube.status import Object

GIT_VERSION: Final = "v1.36.0+localkube"
VERSION: Final[Object] = {
    "major": "1",
    "minor": "36",
    "gitVersion": GIT_VERSION,
    "gitTreeState": "clean",
    "platform": "linux/amd64",
    **dict.fromkeys(("gitCommit", "buildDate", "goVersion", "compiler"), ""),
}

_SUBRESOURCE_VERBS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "status": ("", ("get", "patch", "update")),
    "scale": ("Scale", ("get", "patch", "update")),
    "log": ("", ("get",)),
    "exec": ("PodExecOptions", ("create", "get")),
    "portforward": ("PodPortForwardOptions", ("create", "get")),
}
_REVIEWS: Final = {("authorization.k8s.io", "v1"): ("selfsubjectaccessreviews", "SelfSubjectAccessReview")}


def _group_versions(table: ResourceTable) -> dict[str, list[str]]:
    served = {(resource.group, resource.version): None for resource in table} | dict.fromkeys(_REVIEWS)
    groups: dict[str, list[str]] = {}
    for group, version in served:
        if group:
            groups.setdefault(group, []).append(version)
    return groups


def _group(name: str, versions: list[str]) -> Object:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def _entries(resource: Resource) -> list[Object]:
    main: Object = {
        "name": resource.plural,
        "singularName": resource.singular or resource.kind.lower(),
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(VERBS),
    }
    if resource.short_names:
        main["shortNames"] = list(resource.short_names)
    if resource.categories:
        main["categories"] = list(resource.categories)
    out = [main]
    for name in resource.subresources:
        kind, verbs = _SUBRESOURCE_VERBS[name]
        entry = {
            "name": f"{resource.plural}/{name}",
            "singularName": "",
            "namespaced": resource.namespaced,
            "kind": kind or resource.kind,
            "verbs": list(verbs),
        }
        if kind == "Scale":
            entry |= {"group": "autoscaling", "version": "v1"}
        out.append(entry)
    return out


def _resources(table: ResourceTable, group: str, version: str) -> Object:
    entries = [e for r in table if (r.group, r.version) == (group, version) for e in _entries(r)]
    if (group, version) in _REVIEWS:
        plural, kind = _REVIEWS[group, version]
        entries.append(
            {"name": plural, "singularName": kind.lower(), "namespaced": False, "kind": kind, "verbs": ["create"]}
        )
    if not entries:
        raise status.page_request_path()
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}" if group else version,
        "resources": sorted(entries, key=lambda e: str(e["name"])),
    }


def answer(path: str, table: ResourceTable, address: str) -> Object | None:
    """The discovery document at a path, or None when the path is none of them. Raises ApiError 404."""
    parts = path.strip("/").split("/")
    match parts:
        case ["version"]:
            return VERSION
        case ["api"]:
            clients = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": clients}
        case ["apis"]:
            groups = [_group(name, versions) for name, versions in sorted(_group_versions(table).items())]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        case ["api", version]:
            return _resources(table, "", version)
        case ["apis", group]:
            versions = _group_versions(table).get(group)
            if not versions:
                raise status.page_request_path()
            return {"kind": "APIGroup", "apiVersion": "v1"} | _group(group, versions)
        case ["apis", group, version]:
            return _resources(table, group, version)
        case ["openapi", "v3"]:
            names = ["api/v1"] + [f"apis/{g}/{v}" for g, versions in _group_versions(table).items() for v in versions]
            return {"paths": {name: {"serverRelativeURL": f"/openapi/v3/{name}"} for name in names}}
        case ["openapi", "v3", "api", version]:
            return _openapi(table, "", version)
        case ["openapi", "v3", "apis", group, version]:
            return _openapi(table, group, version)
    return None


def _openapi(table: ResourceTable, group: str, version: str) -> Object:
    """What `kubectl apply` looks for: that each kind's patch takes `fieldValidation`. The schemas are open."""
    paths: Object = {}
    root = f"/apis/{group}/{version}" if group else f"/api/{version}"
    names = ("dryRun", "fieldManager", "fieldValidation", "force")
    query = [{"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}} for name in names]
    for resource in table:
        if (resource.group, resource.version) == (group, version):
            middle = "/namespaces/{namespace}" if resource.namespaced else ""
            paths[f"{root}{middle}/{resource.plural}/{{name}}"] = {
                "patch": {
                    "responses": {"200": {"description": "OK"}},
                    "parameters": query,
                    "x-kubernetes-action": "patch",
                    "x-kubernetes-group-version-kind": {"group": group, "version": version, "kind": resource.kind},
                }
            }
    if not paths:
        raise status.page_request_path()
    return {"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": GIT_VERSION}, "paths": paths}
