"""Names, labels and the rest of an object's metadata: what is allowed, in the real server's words."""

from __future__ import annotations

import re
from typing import Any, Final

from localkube.resources import Resource
from localkube.status import FieldError, Object

DNS_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL_VALUE: Final = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_LABEL_NAME: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")

SUBDOMAIN_TEXT: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
DNS_LABEL_TEXT: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_LABEL_VALUE_TEXT: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_LABEL_NAME_TEXT: Final = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
Errors = list[FieldError]


def name_errors(field: str, name: str, pattern: re.Pattern[str], text: str, limit: int) -> Errors:
    errors = []
    if len(name) > limit:
        errors.append(FieldError.invalid(field, name, f"must be no more than {limit} characters"))
    if not pattern.fullmatch(name):
        errors.append(FieldError.invalid(field, name, text))
    return errors


def metadata_errors(resource: Resource, metadata: Object) -> Errors:
    name = metadata["name"]
    if resource.key == "namespaces" or resource.key == "services":
        errors = name_errors("metadata.name", name, DNS_LABEL, DNS_LABEL_TEXT, 63)
    else:
        errors = name_errors("metadata.name", name, SUBDOMAIN, SUBDOMAIN_TEXT, 253)
    errors += label_errors("metadata.labels", metadata.get("labels"))
    for key in metadata.get("annotations") or {}:
        errors += label_key_errors("metadata.annotations", key.lower())
    size = sum(len(k.encode()) + len(str(v).encode()) for k, v in (metadata.get("annotations") or {}).items())
    if size > 256 * 1024:
        errors.append(FieldError.too_long("metadata.annotations", 262144))
    for index, finalizer in enumerate(metadata.get("finalizers") or ()):
        if "/" not in finalizer and finalizer not in ("orphan", "foregroundDeletion", "kubernetes"):
            text = "name is neither a standard finalizer name nor is it fully qualified"
            errors.append(FieldError.invalid(f"metadata.finalizers[{index}]", finalizer, text))
    for reference in metadata.get("ownerReferences") or ():
        for name in ("apiVersion", "kind", "name", "uid"):
            if not reference.get(name):
                errors.append(FieldError.invalid(f"metadata.ownerReferences.{name}", "", "must not be empty"))
    return errors


def label_key_errors(field: str, key: str) -> Errors:
    prefix, _, name = key.rpartition("/")
    errors = []
    if prefix and not SUBDOMAIN.fullmatch(prefix):
        errors.append(FieldError.invalid(field, key, f"prefix part {SUBDOMAIN_TEXT}"))
    if len(name) > 63:
        errors.append(FieldError.invalid(field, key, "name part must be no more than 63 bytes"))
    if not _LABEL_NAME.fullmatch(name):
        errors.append(FieldError.invalid(field, key, _LABEL_NAME_TEXT))
    return errors


def label_errors(field: str, labels: Object | None) -> Errors:
    errors = []
    for key, value in (labels or {}).items():
        errors += label_key_errors(field, key)
        if len(value) > 63:
            errors.append(FieldError.invalid(field, value, "must be no more than 63 bytes"))
        if not _LABEL_VALUE.fullmatch(value):
            errors.append(FieldError.invalid(field, value, _LABEL_VALUE_TEXT))
    return errors


def port_errors(field: str, port: Any) -> Errors:
    if isinstance(port, int) and 1 <= port <= 65535:
        return []
    return [FieldError.invalid(field, port, "must be between 1 and 65535, inclusive")]


def term_errors(field: str, terms: list[Object] | None) -> Errors:
    """`matchExpressions`: each term needs its key and an operator, In and NotIn need values, the others none."""
    errors: Errors = []
    for index, term in enumerate(terms or ()):
        where = f"{field}[{index}]"
        if not term.get("key"):
            errors.append(FieldError.required(f"{where}.key"))
        operator, values = term.get("operator", ""), term.get("values") or []
        if operator not in ("In", "NotIn", "Exists", "DoesNotExist"):
            errors.append(FieldError.invalid(f"{where}.operator", operator, "not a valid selector operator"))
        elif operator in ("In", "NotIn") and not values:
            text = "must be specified when `operator` is 'In' or 'NotIn'"
            errors.append(FieldError.required(f"{where}.values", text))
        elif operator in ("Exists", "DoesNotExist") and values:
            text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            errors.append(FieldError.forbidden(f"{where}.values", text))
    return errors
