"""Fields that may not change after creation (422), with the real server's texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from localkube import status, validation
from localkube.naming import Errors
from localkube.quantity import parse
from localkube.resources import Resource
from localkube.status import FieldError, Object

_STS_TEXT: Final = (
    "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', "
    "'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
)
_POD_TEXT: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_CLAIM_TEXT: Final = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
)


def _except(spec: Object, *names: str) -> Object:
    return {key: value for key, value in spec.items() if key not in names}


def _pod_update(old: Object, new: Object) -> Errors:
    def frozen(spec: Object) -> Object:
        fixed = _except(spec, "activeDeadlineSeconds", "tolerations", "containers")
        fixed["containers"] = [_except(container, "image") for container in spec["containers"]]
        return fixed

    kept = all(toleration in new["spec"].get("tolerations", []) for toleration in old["spec"].get("tolerations", []))
    if frozen(old["spec"]) != frozen(new["spec"]) or not kept:
        return [FieldError.forbidden("spec", _POD_TEXT)]
    return []


def _stateful_set_update(old: Object, new: Object) -> Errors:
    mutable = ("replicas", "template", "updateStrategy", "revisionHistoryLimit")
    if _except(old["spec"], *mutable) != _except(new["spec"], *mutable):
        return [FieldError.forbidden("spec", _STS_TEXT)]
    return []


def _job_update(old: Object, new: Object) -> Errors:
    return [
        FieldError.invalid(f"spec.{name}", new["spec"].get(name), "field is immutable")
        for name in ("completions", "selector", "template")
        if old["spec"].get(name) != new["spec"].get(name)
    ]


def _claim_update(old: Object, new: Object) -> Errors:
    bound = old.get("status", {}).get("phase") == "Bound"
    free: tuple[str, ...] = ("resources",) if bound else ()
    free += () if old["spec"].get("volumeName") else ("volumeName",)
    if _except(old["spec"], *free) != _except(new["spec"], *free):
        return [FieldError.forbidden("spec", _CLAIM_TEXT)]
    capacity = parse(old.get("status", {}).get("capacity", {}).get("storage", "0"))
    if parse(new["spec"]["resources"]["requests"]["storage"]) < capacity:
        text = "field can not be less than status.capacity"
        return [FieldError.forbidden("spec.resources.requests.storage", text)]
    return []


def _service_update(old: Object, new: Object) -> Errors:
    address = new["spec"].get("clusterIP")
    if old["spec"].get("clusterIP") not in (None, address):
        return [FieldError.invalid("spec.clusterIPs[0]", [address], "may not change once set")]
    return []


def _priority_update(old: Object, new: Object) -> Errors:
    if old["value"] == new.get("value"):
        return []
    return [FieldError.forbidden("value", "may not be changed in an update.")]


def _data_update(old: Object, new: Object) -> Errors:
    if not old.get("immutable"):
        return []
    changed = [section for section in ("immutable", "data", "binaryData") if old.get(section) != new.get(section)]
    return [FieldError.forbidden(name, "field is immutable when `immutable` is set") for name in changed]


_UPDATE: Final[dict[str, Callable[[Object, Object], Errors]]] = {
    "pods": _pod_update,
    "statefulsets": _stateful_set_update,
    "jobs": _job_update,
    "persistentvolumeclaims": _claim_update,
    "services": _service_update,
    "priorityclasses": _priority_update,
    "configmaps": _data_update,
    "secrets": _data_update,
}


def check(resource: Resource, old: Object, new: Object) -> None:
    """Refuse a change of immutable fields, together with everything `check` refuses. Raises ApiError 422."""
    errors: Errors = []
    try:
        validation.check(resource, new)
    except status.ApiError as error:
        if error.code != 422 or not error.details:
            raise
        errors = [FieldError(c["field"], c["reason"], c["message"]) for c in error.details["causes"]]
    if rule := _UPDATE.get(resource.key):
        errors += rule(old, new)
    if old["metadata"].get("deletionTimestamp"):
        added = sorted(set(new["metadata"].get("finalizers") or ()) - set(old["metadata"].get("finalizers") or ()))
        if added:
            listed = ", ".join(f'"{name}"' for name in added)
            text = "no new finalizers can be added if the object is being deleted, found new finalizers "
            errors.append(FieldError.forbidden("metadata.finalizers", f"{text}[]string{{{listed}}}"))
    if errors:
        raise status.invalid(resource.group, resource.kind, new["metadata"].get("name", ""), errors)
