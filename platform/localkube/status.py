"""Status bodies: every refusal leaves localkube as the `Status` object that a real API server would send.

Texts follow k8s.io/apimachinery `pkg/api/errors/errors.go`, because clients and people match on them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

Object = dict[str, Any]

_REASONS: Final = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    409: "Conflict",
    410: "Expired",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    500: "InternalError",
    501: "NotImplemented",
    503: "ServiceUnavailable",
    504: "Timeout",
}


class ApiError(Exception):
    """A refusal with its HTTP code and its `Status` body. Raised by the store, admission and validation alike."""

    def __init__(self, code: int, message: str, *, reason: str | None = None, details: Object | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.reason = reason or _REASONS.get(code, "Unknown")
        self.details = details

    @property
    def body(self) -> Object:
        """The `Status` object to send, or to put into an ERROR event of a watch."""
        status: Object = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
        }
        if self.details:
            status["details"] = self.details
        status["code"] = self.code
        return status


@dataclass(frozen=True)
class FieldError:
    """One cause of a 422: where, which kind of fault, and the text after the field's name."""

    field: str
    reason: str
    text: str

    @classmethod
    def required(cls, field: str, text: str = "") -> FieldError:
        return cls(field, "FieldValueRequired", "Required value" + (f": {text}" if text else ""))

    @classmethod
    def invalid(cls, field: str, value: Any, text: str) -> FieldError:
        shown = quoted(value) if isinstance(value, str) else _go_json(value)
        return cls(field, "FieldValueInvalid", f"Invalid value: {shown}: {text}")

    @classmethod
    def forbidden(cls, field: str, text: str) -> FieldError:
        return cls(field, "FieldValueForbidden", f"Forbidden: {text}")

    @classmethod
    def unsupported(cls, field: str, value: Any, supported: Iterable[str]) -> FieldError:
        names = ", ".join(quoted(name) for name in supported)
        shown = quoted(value) if isinstance(value, str) else _go_json(value)
        return cls(field, "FieldValueNotSupported", f"Unsupported value: {shown}: supported values: {names}")

    @classmethod
    def duplicate(cls, field: str, value: Any) -> FieldError:
        return cls(field, "FieldValueDuplicate", f"Duplicate value: {quoted(value)}")

    @classmethod
    def missing(cls, field: str, value: Any) -> FieldError:
        return cls(field, "FieldValueNotFound", f"Not found: {quoted(value)}")

    @classmethod
    def too_long(cls, field: str, limit: int) -> FieldError:
        return cls(field, "FieldValueTooLong", f"Too long: may not be more than {limit} bytes")


def quoted(text: str) -> str:
    """Text as Go's %q prints it, near enough: quotes and control characters escaped."""
    return json.dumps(text, ensure_ascii=False)


def _go_json(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, (int, float)):
        return str(value)
    return json.dumps(value, separators=(",", ":"))


def _details(name: str, group: str, kind: str) -> Object:
    details: Object = {}
    if name:
        details["name"] = name
    if group:
        details["group"] = group
    details["kind"] = kind
    return details


def _qualified(group: str, plural: str) -> str:
    return f"{plural}.{group}" if group else plural


def not_found(group: str, plural: str, name: str) -> ApiError:
    text = f"{_qualified(group, plural)} {quoted(name)} not found"
    return ApiError(404, text, details=_details(name, group, plural))


def already_exists(group: str, plural: str, name: str, *, leaving: bool = False) -> ApiError:
    text = f"{_qualified(group, plural)} {quoted(name)} already exists"
    if leaving:
        text = f"object is being deleted: {text}"
    return ApiError(409, text, reason="AlreadyExists", details=_details(name, group, plural))


def conflict(group: str, plural: str, name: str, why: str) -> ApiError:
    text = f"Operation cannot be fulfilled on {_qualified(group, plural)} {quoted(name)}: {why}"
    return ApiError(409, text, details=_details(name, group, plural))


def modified(group: str, plural: str, name: str) -> ApiError:
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(group, plural, name, why)


def forbidden(group: str, plural: str, name: str, why: str) -> ApiError:
    text = f"{_qualified(group, plural)} {quoted(name)} is forbidden: {why}"
    return ApiError(403, text, details=_details(name, group, plural))


def bad_request(why: str) -> ApiError:
    return ApiError(400, why)


def unauthorized() -> ApiError:
    return ApiError(401, "Unauthorized")


def not_implemented(what: str) -> ApiError:
    """Refusal of something that a real cluster has and localkube does not: clear text instead of a silent success."""
    return ApiError(501, f"localkube does not implement {what}")


def gone(requested: int, oldest: int) -> ApiError:
    """Too old a resourceVersion; in a watch it goes out as an ERROR event inside HTTP 200."""
    return ApiError(410, f"too old resource version: {requested} ({oldest})")


def page_request_path() -> ApiError:
    """The body of a path that no handler serves."""
    return ApiError(404, "the server could not find the requested resource", details={})


def invalid(group: str, kind: str, name: str, errors: list[FieldError]) -> ApiError:
    """422 with the aggregate text: one error bare, several in brackets, as `field.ErrorList.ToAggregate` prints."""
    texts = list(dict.fromkeys(f"{error.field}: {error.text}" for error in errors))
    joined = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    qualified = f"{kind}.{group}" if group else kind
    details = _details(name, group, kind)
    details["causes"] = [{"reason": e.reason, "message": e.text, "field": e.field} for e in errors]
    return ApiError(422, f"{qualified} {quoted(name)} is invalid: {joined}", details=details)


def success(*, name: str = "", group: str = "", kind: str = "", uid: str = "") -> Object:
    """The answer to a DELETE that removed the object at once."""
    details = _details(name, group, kind)
    if uid:
        details["uid"] = uid
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
