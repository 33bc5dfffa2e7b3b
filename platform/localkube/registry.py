"""Writes as a client sees them: defaults, admission, validation, managed fields, then the store.

The controllers write through here as well, so a pod of a StatefulSet meets the same quota as one of a person.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from localkube import defaults, immutable, managed, schema, status, validation
from localkube.addresses import ServiceAddresses
from localkube.admission import Admission
from localkube.resources import Resource
from localkube.status import ApiError, Object
from localkube.store import Store, copy

PodCheck = Callable[[Object], tuple[list[str], list[str]]]

_TEMPLATED = ("statefulsets", "jobs")


@dataclass
class Write:
    """How one write is meant, and the warnings it gathers for the client."""

    manager: str | None = None
    dry_run: bool = False
    subresource: str = ""
    warnings: list[str] = field(default_factory=list)


INTERNAL = Write()
"""A write of localkube itself: no managed fields, nobody to warn."""


class Registry:
    """Creates, updates and deletes objects of every kind. All methods raise ApiError with the refusal to send."""

    def __init__(self, store: Store, check_pod: PodCheck) -> None:
        self.store = store
        self.admission = Admission(store)
        self._check_pod = check_pod
        self._addresses = ServiceAddresses(store)

    def create(self, resource: Resource, namespace: str | None, obj: Object, write: Write = INTERNAL) -> Object:
        """Store a new object and return it as stored."""
        obj = copy(obj)
        metadata = self._identity(resource, namespace, obj)
        schema.check(resource, obj)
        if write is not INTERNAL and resource.key == "persistentvolumes":
            raise status.not_implemented("volumes made by hand: each claim gets one of its own")
        if metadata.get("resourceVersion"):
            raise ApiError(500, "resourceVersion should not be set on objects to be created")
        if write is not INTERNAL:
            metadata.pop("uid", None)
        if resource.has_status and not resource.custom and resource.key != "nodes":
            obj.pop("status", None)
        self._pod_fields(resource, obj, write)
        self.store.give_name(metadata)
        defaults.apply(resource.key, obj)
        self.admission.mutate(resource, obj)
        validation.check(resource, obj)
        self.admission.validate(resource, obj)
        self.store.prepare(resource, obj)
        if resource.key == "jobs":
            defaults.job_selector(obj)
        if resource.key == "services":
            self._addresses.assign(obj)
        if write.manager and "managedFields" not in metadata:
            managed.track_update(None, obj, manager=write.manager)
        return self.store.insert(resource, obj, dry_run=write.dry_run)

    def update(
        self, resource: Resource, obj: Object, write: Write = INTERNAL, *, managed_fields: bool = True
    ) -> Object:
        """Replace an object (or, by `write.subresource`, its status) and return it as stored.

        managed_fields=False keeps the managedFields that `obj` brings: server-side apply has worked them out.
        """
        stored = self.store.stored(resource.key, obj["metadata"].get("namespace"), obj["metadata"]["name"])
        obj = copy(obj)
        schema.check(resource, obj)
        whole = write.subresource in ("", "scale")
        if whole:
            defaults.apply(resource.key, obj)
        if whole and managed_fields:
            obj["metadata"].pop("managedFields", None)
        merged = self.store.merge(resource, stored, obj, None if whole else write.subresource)
        if whole:
            self._pod_fields(resource, merged, write, old=stored)
            immutable.check(resource, stored, merged)
            self.admission.update(resource, merged, stored)
            if managed_fields and write.manager:
                managed.track_update(stored, merged, manager=write.manager, subresource=write.subresource)
            elif managed_fields and "managedFields" in stored["metadata"]:
                merged["metadata"]["managedFields"] = stored["metadata"]["managedFields"]
        return self.store.replace(resource, stored, merged, dry_run=write.dry_run)

    def apply(
        self, resource: Resource, namespace: str | None, name: str, applied: Object, write: Write, *, force: bool
    ) -> tuple[Object, bool]:
        """Server-side apply; returns the object and whether it was created."""
        if "apiVersion" not in applied or "kind" not in applied:
            group, _, version = applied.get("apiVersion", "").rpartition("/")
            raise status.bad_request(f"invalid object type: {group}/{version}, Kind={applied.get('kind', '')}")
        metadata = self._identity(resource, namespace, applied)
        schema.check(resource, applied)
        check_name(metadata, name)
        metadata["name"] = name
        assert write.manager is not None
        live = self.store.peek(resource.key, namespace, name)
        wanted_uid = metadata.get("uid")
        if live is None and wanted_uid:
            text = f"uid mismatch: the provided object specified uid {wanted_uid}, and no existing object was found"
            raise status.conflict(resource.group, resource.plural, name, text)
        if live is not None:
            same_uid(resource, metadata, live)
        result = managed.apply(live, applied, manager=write.manager, force=force, subresource=write.subresource)
        if live is None:
            result["metadata"].pop("resourceVersion", None)
            return self.create(resource, namespace, result, write), True
        if write.subresource == "status":
            result["status"] = applied.get("status", {})
        return self.update(resource, result, write, managed_fields=False), False

    def delete(self, resource: Resource, namespace: str | None, name: str, options: Object) -> Object:
        """Delete by `metav1.DeleteOptions`; returns the object's last state."""
        self.admission.delete(resource, name)
        preconditions = options.get("preconditions") or {}
        propagation = options.get("propagationPolicy")
        if propagation not in (None, "Background"):
            raise status.not_implemented(f"propagationPolicy {propagation}: dependents go in the background")
        if options.get("orphanDependents"):
            raise status.not_implemented("orphanDependents: dependents go in the background")
        if resource.key == "customresourcedefinitions":
            self._empty_custom(self.store.stored(resource.key, None, name))
        return self.store.delete(
            resource.key,
            namespace,
            name,
            uid=preconditions.get("uid"),
            resource_version=preconditions.get("resourceVersion"),
            grace_period_s=options.get("gracePeriodSeconds"),
        )

    def _empty_custom(self, definition: Object) -> None:
        """Delete the objects of a custom kind before the kind itself: nobody could name them afterwards."""
        key = f"{definition['spec']['names']['plural']}.{definition['spec']['group']}"
        for obj in tuple(self.store.iterate(key)):
            metadata = obj["metadata"]
            if metadata.get("finalizers"):
                metadata = self.store.update(key, obj | {"metadata": metadata | {"finalizers": []}})["metadata"]
            if self.store.peek(key, metadata.get("namespace"), metadata["name"]) is not None:
                self.store.delete(key, metadata.get("namespace"), metadata["name"])

    def _identity(self, resource: Resource, namespace: str | None, obj: Object) -> Object:
        kind, version = obj.setdefault("kind", resource.kind), obj.setdefault("apiVersion", resource.api_version)
        if (kind, version) != (resource.kind, resource.api_version):
            raise _wrong_kind(resource, kind, version)
        metadata: Object = obj.setdefault("metadata", {})
        if not isinstance(metadata, dict):
            raise status.bad_request(f"{kind}.metadata is not an object")
        given = metadata.get("namespace")
        if resource.namespaced and given and namespace and given != namespace:
            raise status.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        if resource.namespaced:
            metadata["namespace"] = namespace or given or "default"
        else:
            metadata.pop("namespace", None)
        return metadata

    def _pod_fields(self, resource: Resource, obj: Object, write: Write, old: Object | None = None) -> None:
        """Ask the node about the fields of a pod or template that a client sent."""
        if write is INTERNAL or resource.key not in ("pods", *_TEMPLATED):
            return
        pod = obj
        if resource.key in _TEMPLATED:
            template = (obj.get("spec") or {}).get("template") or {}
            pod = {"metadata": template.get("metadata") or {}, "spec": template.get("spec") or {}}
            if old and old["spec"].get("template") == template:
                return
        elif old and old.get("spec") == obj.get("spec"):
            return
        warnings, refusals = self._check_pod(pod)
        if refusals:
            raise ApiError(501, f"localkube cannot run this pod: {'; '.join(refusals)}")
        write.warnings += warnings


def check_name(metadata: Object, name: str) -> None:
    """Refuse a body whose name is not the URL's. Raises ApiError 400."""
    given = metadata.get("name")
    if given and given != name:
        raise status.bad_request(f"the name of the object ({given}) does not match the name on the URL ({name})")


def same_uid(resource: Resource, metadata: Object, stored: Object) -> None:
    """Refuse a patch that is meant for another object of the name. Raises ApiError 422, as a real server does."""
    if (uid := metadata.get("uid")) not in (None, "", stored["metadata"]["uid"]):
        error = status.FieldError.invalid("metadata.uid", uid, "field is immutable")
        raise status.invalid(resource.group, resource.kind, stored["metadata"]["name"], [error])


def _wrong_kind(resource: Resource, kind: str, version: str) -> ApiError:
    if kind == resource.kind:
        text = f"the API version in the data ({version}) does not match the expected API version"
        return status.bad_request(f"{text} ({resource.api_version})")
    group, _, short = version.rpartition("/")
    text = f'{kind} in version "{short}" cannot be handled as a {resource.kind}'
    wanted = f"{resource.group.partition('.')[0] or 'core'}.{resource.kind}"
    return status.bad_request(f"{text}: converting ({group or short}.{kind}) to ({wanted}): unknown conversion")
