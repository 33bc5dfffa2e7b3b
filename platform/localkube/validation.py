"""What makes an object invalid (422), with the real server's texts.

Covers names, labels and the fields that localkube acts on; a real server checks more.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from typing import Final

from localkube import status
from localkube.naming import (
    SUBDOMAIN,
    SUBDOMAIN_TEXT,
    Errors,
    label_errors,
    metadata_errors,
    name_errors,
    port_errors,
    term_errors,
)
from localkube.podrules import pod_spec_errors
from localkube.quantity import ZERO, parse
from localkube.resources import Resource
from localkube.status import FieldError, Object


def _pod(obj: Object) -> Errors:
    return pod_spec_errors("spec", obj.get("spec", {}))


def _stateful_set(obj: Object) -> Errors:
    spec = obj["spec"]
    errors: Errors = []
    replicas = spec.get("replicas", 1)
    if not isinstance(replicas, int) or replicas < 0:
        errors.append(FieldError.invalid("spec.replicas", replicas, "must be greater than or equal to 0"))
    selector = spec.get("selector")
    if not selector:
        errors.append(FieldError.required("spec.selector"))
    template = spec.get("template", {})
    labels = template.get("metadata", {}).get("labels")
    errors += term_errors("spec.selector.matchExpressions", (selector or {}).get("matchExpressions"))
    wanted = (selector or {}).get("matchLabels") or {}
    if not selector or any((labels or {}).get(key) != value for key, value in wanted.items()):
        text = "`selector` does not match template `labels`"
        errors.append(FieldError.invalid("spec.template.metadata.labels", labels, text))
    errors += label_errors("spec.template.metadata.labels", labels)
    claims = {claim["metadata"]["name"] for claim in spec.get("volumeClaimTemplates") or ()}
    pod_spec = template.get("spec", {})
    named = {volume.get("name") for volume in pod_spec.get("volumes") or ()}
    extra = [{"name": name, "emptyDir": {}} for name in sorted(claims - named)]
    checked = pod_spec | {"volumes": [*(pod_spec.get("volumes") or ()), *extra]}
    return errors + pod_spec_errors("spec.template.spec", checked, ("Always",))


def _job(obj: Object) -> Errors:
    spec = obj["spec"]
    errors: Errors = []
    for name in ("parallelism", "completions", "backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished"):
        value = spec.get(name)
        if value is not None and (not isinstance(value, int) or value < 0):
            errors.append(FieldError.invalid(f"spec.{name}", value, "must be greater than or equal to 0"))
    return errors + pod_spec_errors("spec.template.spec", spec["template"]["spec"], ("Never", "OnFailure"))


def _service(obj: Object) -> Errors:
    spec = obj["spec"]
    errors: Errors = []
    if not spec.get("ports") and spec.get("clusterIP") != "None" and spec.get("type") != "ExternalName":
        errors.append(FieldError.required("spec.ports"))
    many = len(spec.get("ports") or ()) > 1
    for index, port in enumerate(spec.get("ports") or ()):
        where = f"spec.ports[{index}]"
        if many and not port.get("name"):
            errors.append(FieldError.required(f"{where}.name"))
        errors += port_errors(f"{where}.port", port.get("port"))
        if not isinstance(port.get("targetPort"), str):
            errors += port_errors(f"{where}.targetPort", port.get("targetPort"))
    return errors


def _ingress(obj: Object) -> Errors:
    errors: Errors = []
    spec = obj.get("spec") or {}
    if not spec.get("rules") and not spec.get("defaultBackend"):
        text = "either `defaultBackend` or `rules` must be specified"
        errors.append(FieldError.invalid("spec", None, text))
    for index, rule in enumerate(spec.get("rules") or ()):
        where = f"spec.rules[{index}]"
        if rule.get("host"):
            errors += name_errors(f"{where}.host", rule["host"].removeprefix("*."), SUBDOMAIN, SUBDOMAIN_TEXT, 253)
        for number, path in enumerate((rule.get("http") or {}).get("paths") or ()):
            spot = f"{where}.http.paths[{number}]"
            kind = path.get("pathType")
            if not kind:
                errors.append(FieldError.required(f"{spot}.pathType", "pathType must be specified"))
                continue
            if kind not in ("Exact", "Prefix", "ImplementationSpecific"):
                supported = ("Exact", "ImplementationSpecific", "Prefix")
                errors.append(FieldError.unsupported(f"{spot}.pathType", kind, supported))
            elif kind != "ImplementationSpecific" and not path.get("path", "").startswith("/"):
                errors.append(FieldError.invalid(f"{spot}.path", path.get("path", ""), "must be an absolute path"))
            service = path.get("backend", {}).get("service", {})
            if service and not (service.get("port", {}).get("name") or service.get("port", {}).get("number")):
                errors.append(FieldError.required(f"{spot}.backend", "port name or number is required"))
    return errors


def _claim(obj: Object) -> Errors:
    spec = obj["spec"]
    errors: Errors = []
    modes = spec.get("accessModes")
    if not modes:
        errors.append(FieldError.required("spec.accessModes", "at least 1 access mode is required"))
    supported = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
    errors += [
        FieldError.unsupported("spec.accessModes", mode, supported) for mode in modes or () if mode not in supported
    ]
    amount = (spec.get("resources", {}).get("requests") or {}).get("storage")
    if amount is None:
        errors.append(FieldError.required("spec.resources[storage]"))
    elif parse(amount) <= ZERO:
        errors.append(FieldError.invalid("spec.resources[storage]", amount, "must be greater than zero"))
    return errors


_QUOTA_NAMES: Final = frozenset(
    (
        "cpu",
        "memory",
        "ephemeral-storage",
        "pods",
        "services",
        "services.nodeports",
        "services.loadbalancers",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "replicationcontrollers",
        "resourcequotas",
    )
)


def _quota(obj: Object) -> Errors:
    errors: Errors = []
    scopes = (obj["spec"].get("scopeSelector") or {}).get("matchExpressions")
    errors += term_errors("spec.scopeSelector.matchExpressions", scopes, key="scopeName")
    for name, amount in sorted((obj["spec"].get("hard") or {}).items()):
        where = f"spec.hard[{name}]"
        if parse(amount) < ZERO:
            errors.append(FieldError.invalid(where, amount, "must be greater than or equal to 0"))
        if name not in _QUOTA_NAMES and "/" not in name and not name.startswith(("requests.", "limits.")):
            for text in (
                "must be a standard resource type or fully qualified",
                "must be a standard resource for quota",
            ):
                errors.append(FieldError.invalid(where, name, text))
    return errors


def _keyed_data(obj: Object) -> Errors:
    errors: Errors = []
    total = 0
    for section in ("data", "binaryData"):
        for key, value in (obj.get(section) or {}).items():
            total += len(value)
            if not re.fullmatch(r"[-._a-zA-Z0-9]+", key):
                text = (
                    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or "
                    "'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
                )
                errors.append(FieldError.invalid(f"{section}[{key}]", key, text))
    if total > 1024 * 1024 * (4 / 3 if obj["kind"] == "Secret" else 1):
        errors.append(FieldError.too_long("[]", 1048576))
    return errors


def _secret(obj: Object) -> Errors:
    errors = _keyed_data(obj)
    for value in (obj.get("data") or {}).values():
        try:
            base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            text = 'Secret in version "v1" cannot be handled as a Secret: illegal base64 data at input byte 0'
            raise status.bad_request(text) from None
    return errors


def _priority_class(obj: Object) -> Errors:
    if obj.get("value", 0) > 1_000_000_000 and not obj["metadata"]["name"].startswith("system-"):
        text = "maximum allowed value of a user defined priority is 1000000000"
        return [FieldError.forbidden("value", text)]
    return []


def _node(obj: Object) -> Errors:
    errors: Errors = []
    effects = ("NoSchedule", "PreferNoSchedule", "NoExecute")
    for index, taint in enumerate((obj.get("spec") or {}).get("taints") or ()):
        where = f"spec.taints[{index}]"
        if not taint.get("key"):
            errors.append(FieldError.required(f"{where}.key"))
        if taint.get("effect") not in effects:
            errors.append(FieldError.unsupported(f"{where}.effect", taint.get("effect", ""), effects))
    return errors


def _volume(obj: Object) -> Errors:
    spec = obj.get("spec") or {}
    errors = [FieldError.required(f"spec.{name}") for name in ("accessModes", "capacity") if not spec.get(name)]
    if reference := spec.get("claimRef"):
        missing = [name for name in ("namespace", "name") if not reference.get(name)]
        errors += [FieldError.required(f"spec.claimRef.{name}") for name in missing]
    return errors


def _definition(obj: Object) -> Errors:
    spec = obj.get("spec") or {}
    errors: Errors = []
    for name in ("group", "names", "scope", "versions"):
        if not spec.get(name):
            errors.append(FieldError.required(f"spec.{name}"))
    for index, version in enumerate(spec.get("versions") or ()):
        if not version.get("name"):
            errors.append(FieldError.required(f"spec.versions[{index}].name"))
    for name in ("plural", "kind"):
        if not (spec.get("names") or {}).get(name):
            errors.append(FieldError.required(f"spec.names.{name}"))
    if not errors and obj["metadata"].get("name") != f"{spec['names'].get('plural')}.{spec['group']}":
        text = 'must be spec.names.plural+"."+spec.group'
        errors.append(FieldError.invalid("metadata.name", obj["metadata"].get("name", ""), text))
    return errors


_CREATE: Final[dict[str, Callable[[Object], Errors]]] = {
    "pods": _pod,
    "statefulsets": _stateful_set,
    "jobs": _job,
    "services": _service,
    "ingresses": _ingress,
    "persistentvolumeclaims": _claim,
    "resourcequotas": _quota,
    "configmaps": _keyed_data,
    "secrets": _secret,
    "customresourcedefinitions": _definition,
    "priorityclasses": _priority_class,
    "nodes": _node,
    "persistentvolumes": _volume,
}


def check(resource: Resource, obj: Object) -> None:
    """Refuse an object that cannot be stored, after its defaults. Raises ApiError 422 (400 for undecodable fields)."""
    metadata = obj["metadata"]
    if not metadata.get("name") and not metadata.get("generateName"):
        errors = [FieldError.required("metadata.name", "name or generateName is required")]
    else:
        try:
            errors = metadata_errors(resource, metadata)
            if rule := _CREATE.get(resource.key):
                errors += rule(obj)
        except (AttributeError, TypeError, KeyError, ValueError) as error:
            text = f"cannot be handled as a {resource.kind}: a field has the wrong type ({error})"
            raise status.bad_request(f'{resource.kind} in version "{resource.version}" {text}') from error
    if errors:
        raise status.invalid(resource.group, resource.kind, metadata.get("name", ""), errors)
