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


def _count_errors(spec: Object, *names: str) -> Errors:
    text = "must be greater than or equal to 0"
    return [FieldError.invalid(f"spec.{name}", spec[name], text) for name in names if spec.get(name, 0) < 0]


def _stateful_set(obj: Object) -> Errors:
    spec = obj["spec"]
    errors = _count_errors(spec, "replicas")
    if any((spec["updateStrategy"].get("rollingUpdate") or {}).values()):
        raise status.not_implemented("a partition or another setting of a StatefulSet's rolling update")
    selector = spec.get("selector")
    if not selector:
        errors.append(FieldError.required("spec.selector"))
    labels = spec["template"]["metadata"].get("labels")
    errors += term_errors("spec.selector.matchExpressions", (selector or {}).get("matchExpressions"))
    wanted = (selector or {}).get("matchLabels") or {}
    if not selector or any((labels or {}).get(key) != value for key, value in wanted.items()):
        text = "`selector` does not match template `labels`"
        errors.append(FieldError.invalid("spec.template.metadata.labels", labels, text))
    errors += label_errors("spec.template.metadata.labels", labels)
    return errors + pod_spec_errors("spec.template.spec", spec["template"]["spec"], ("Always",))


def _job(obj: Object) -> Errors:
    spec = obj["spec"]
    if "completions" not in spec:
        raise status.not_implemented("jobs of parallelism without completions")
    errors = _count_errors(spec, "parallelism", "completions", "backoffLimit", "activeDeadlineSeconds")
    return errors + pod_spec_errors("spec.template.spec", spec["template"]["spec"], ("Never", "OnFailure"))


def _service(obj: Object) -> Errors:
    spec = obj["spec"]
    errors = label_errors("spec.selector", spec.get("selector"))
    if spec["type"] != "ClusterIP":
        raise status.not_implemented(f"services of type {spec['type']}")
    if not spec.get("ports") and spec.get("clusterIP") != "None":
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
    if not obj["spec"].get("rules"):
        errors.append(FieldError.invalid("spec", None, "either `defaultBackend` or `rules` must be specified"))
    for index, rule in enumerate(obj["spec"].get("rules") or ()):
        where = f"spec.rules[{index}]"
        if rule.get("host"):
            errors += name_errors(f"{where}.host", rule["host"].removeprefix("*."), SUBDOMAIN, SUBDOMAIN_TEXT, 253)
        for number, path in enumerate((rule.get("http") or {}).get("paths") or ()):
            spot = f"{where}.http.paths[{number}]"
            kind, service = path.get("pathType"), path.get("backend", {}).get("service", {})
            if kind not in ("Exact", "Prefix", "ImplementationSpecific"):
                supported = ("Exact", "ImplementationSpecific", "Prefix")
                errors.append(FieldError.unsupported(f"{spot}.pathType", kind or "", supported))
            elif not path.get("path", "").startswith("/"):
                errors.append(FieldError.invalid(f"{spot}.path", path.get("path", ""), "must be an absolute path"))
            if not service.get("name") or not (service["port"].get("name") or service["port"].get("number")):
                errors.append(FieldError.required(f"{spot}.backend", "port name or number is required"))
    return errors


def _claim(obj: Object) -> Errors:
    spec = obj["spec"]
    errors: Errors = []
    if not spec.get("accessModes"):
        errors.append(FieldError.required("spec.accessModes", "at least 1 access mode is required"))
    supported = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
    wrong = [mode for mode in spec.get("accessModes") or () if mode not in supported]
    errors += [FieldError.unsupported("spec.accessModes", mode, supported) for mode in wrong]
    amount = (spec["resources"].get("requests") or {}).get("storage")
    if amount is None:
        errors.append(FieldError.required("spec.resources[storage]"))
    elif parse(amount) <= ZERO:
        errors.append(FieldError.invalid("spec.resources[storage]", amount, "must be greater than zero"))
    return errors


def _quota(obj: Object) -> Errors:
    negative = [(name, amount) for name, amount in obj["spec"].get("hard", {}).items() if parse(amount) < ZERO]
    text = "must be greater than or equal to 0"
    return [FieldError.invalid(f"spec.hard[{name}]", amount, text) for name, amount in sorted(negative)]


def _limit_range(obj: Object) -> Errors:
    for item in obj["spec"]["limits"]:
        if item.get("type") != "Container" or item.get("maxLimitRequestRatio"):
            raise status.not_implemented("limits but those of containers, and maxLimitRequestRatio")
    return []


def _keyed_data(obj: Object) -> Errors:
    errors: Errors = []
    text = (
        "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or "
        "'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
    )
    total = 0
    for section in ("data", "binaryData"):
        for key, value in (obj.get(section) or {}).items():
            total += len(value)
            if not re.fullmatch(r"[-._a-zA-Z0-9]+", key):
                errors.append(FieldError.invalid(f"{section}[{key}]", key, text))
    if total > 1024 * 1024 * (4 / 3 if obj["kind"] == "Secret" else 1):
        errors.append(FieldError.too_long("[]", 1048576))
    return errors


def _secret(obj: Object) -> Errors:
    for value in (obj.get("data") or {}).values():
        try:
            base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            text = 'Secret in version "v1" cannot be handled as a Secret: illegal base64 data at input byte 0'
            raise status.bad_request(text) from None
    return _keyed_data(obj)


def _priority_class(obj: Object) -> Errors:
    if not isinstance(obj.get("value"), int):
        return [FieldError.required("value")]
    return []


def _storage_class(obj: Object) -> Errors:
    if obj.get("reclaimPolicy") != "Delete":
        raise status.not_implemented("storage classes that keep a volume after its claim (reclaimPolicy)")
    return []


def _definition(obj: Object) -> Errors:
    spec = obj.get("spec") or {}
    names = spec.get("names") or {}
    errors = [
        FieldError.required(f"spec.{name}") for name in ("group", "names", "scope", "versions") if not spec.get(name)
    ]
    errors += [FieldError.required(f"spec.names.{name}") for name in ("plural", "kind") if not names.get(name)]
    if not errors and obj["metadata"].get("name") != f"{names['plural']}.{spec['group']}":
        text = 'must be spec.names.plural+"."+spec.group'
        errors.append(FieldError.invalid("metadata.name", obj["metadata"].get("name", ""), text))
    if len(spec.get("versions", ())) > 1:
        raise status.not_implemented("custom resources of several versions")
    return errors + [
        FieldError.required("spec.versions[0].name") for v in spec.get("versions", ()) if not v.get("name")
    ]


_CREATE: Final[dict[str, Callable[[Object], Errors]]] = {
    "pods": _pod,
    "statefulsets": _stateful_set,
    "jobs": _job,
    "services": _service,
    "ingresses": _ingress,
    "persistentvolumeclaims": _claim,
    "resourcequotas": _quota,
    "limitranges": _limit_range,
    "configmaps": _keyed_data,
    "secrets": _secret,
    "customresourcedefinitions": _definition,
    "priorityclasses": _priority_class,
    "storageclasses": _storage_class,
}


def check(resource: Resource, obj: Object) -> None:
    """Refuse an object that cannot be stored, after its defaults. Raises ApiError 422 (400 for undecodable fields)."""
    metadata = obj["metadata"]
    if not metadata.get("name"):
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
