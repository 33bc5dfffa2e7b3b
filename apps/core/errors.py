"""Errors that reach people: a stable code, what happened, and what to do next.

The code is the contract (scripts match on it); the sentences are translated. The API renders them as
``application/problem+json`` (RFC 9457), pages beside the field or in the banner.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext_lazy as _

Text = Any  # str or a lazy translation


class PortalError(Exception):
    """An expected failure with a code, an HTTP status, a sentence and the next step."""

    status = 400
    code = "invalid"
    title: Text = _("The request cannot be carried out")

    def __init__(
        self,
        detail: Text,
        *,
        code: str | None = None,
        next: Text = "",  # noqa: A002 - the field's name in the API
        errors: Mapping[str, Text] | None = None,
        status: int | None = None,
        data: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(str(detail))
        self.detail = detail
        self.next = next
        self.errors = dict(errors or {})
        self.data = dict(data or {})
        self.code = code or type(self).code
        self.status = status or type(self).status

    def as_problem(self) -> dict[str, Any]:
        """The body of RFC 9457 with our extensions ``code``, ``next`` and ``errors`` (JSON pointers)."""
        body: dict[str, Any] = {
            "type": f"urn:mlportal:error:{self.code}",
            "title": str(self.title),
            "status": self.status,
            "code": self.code,
            "detail": str(self.detail),
            "next": str(self.next),
        }
        if self.errors:
            body["errors"] = [
                {"pointer": "/" + field.replace(".", "/"), "detail": str(text)} for field, text in self.errors.items()
            ]
        if self.data:
            body["data"] = self.data
        return body


class Invalid(PortalError):
    """The input is wrong; ``errors`` says which fields."""

    status = 422
    code = "invalid"
    title = _("Some of the input is not valid")


class NotFound(PortalError):
    """There is no such thing, or the actor may not know of it (404 rather than 403)."""

    status = 404
    code = "not_found"
    title = _("Not found")

    def __init__(self, detail: Text = "", **kwargs: Any) -> None:
        detail = detail or _("There is nothing here under this name.")
        kwargs.setdefault("next", _("Check the address, or ask its owner to share it with you."))
        super().__init__(detail, **kwargs)


class Forbidden(PortalError):
    """The actor sees the object but may not do this to it."""

    status = 403
    code = "forbidden"
    title = _("Not allowed")


class Conflict(PortalError):
    """The object is not in a state that allows this now."""

    status = 409
    code = "conflict"
    title = _("Not possible in the present state")


class OverQuota(PortalError):
    """The queue has no room; ``data`` holds asked, used and limit."""

    status = 409
    code = "over_quota"
    title = _("The queue has no room for this")


class Unavailable(PortalError):
    """Something the portal needs does not answer now."""

    status = 503
    code = "unavailable"
    title = _("Temporarily not available")
