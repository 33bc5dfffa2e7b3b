"""Every failure kubekit can raise, and how a Kubernetes ``Status`` answer becomes one of them.

The official client's exceptions never leave ``client.py``: callers see `SpecError` (our own input was wrong, nothing
was sent) or a `KubeError` (the cluster refused, or could not be reached). Each carries a stable ``code`` that the
portal translates into a sentence, whether a later try can succeed (``retryable``) and whether the request may have
been carried out although no answer came (``maybe_done``: GET before any repeat, failures F4 and F12).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar


class SpecError(ValueError):
    """A specification, name or quantity that must not reach the cluster.

    ``code`` is stable, ``field`` the attribute at fault, ``message`` one sentence for people.
    """

    def __init__(self, code: str, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.code = code
        self.field = field
        self.message = message


class CredentialError(ValueError):
    """A kubeconfig that is refused; ``code`` is stable and ``message`` says what to give instead."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(frozen=True, kw_only=True)
class FieldCause:
    """One entry of ``Status.details.causes``: which field the server refused and why."""

    field: str
    reason: str
    message: str


class KubeError(Exception):
    """A request to a cluster failed.

    ``status`` is the HTTP status (0 when no answer came), ``reason`` the server's machine word (``NotFound``),
    ``message`` the server's own text, ``details`` the raw ``Status.details``.
    """

    code: ClassVar[str] = "kube_error"
    retryable: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        reason: str = "",
        details: Mapping[str, Any] | None = None,
        maybe_done: bool = False,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.reason = reason
        self.details: Mapping[str, Any] = details or {}
        self.maybe_done = maybe_done


class BadRequest(KubeError):
    """400: the request itself is malformed; repeating it cannot help."""

    code = "bad_request"


class Unauthorized(KubeError):
    """401: the credentials are not (or no longer) accepted."""

    code = "unauthorized"


class Forbidden(KubeError):
    """403: access control or an admission plugin said no."""

    code = "forbidden"


class PermissionDenied(Forbidden):
    """403 because the account may not do this at all (RBAC); ``verb`` and ``resource`` as ``kubectl`` names them."""

    code = "permission_denied"

    def __init__(self, message: str, *, verb: str, resource: str, **rest: Any) -> None:
        super().__init__(message, **rest)
        self.verb = verb
        self.resource = resource


class PodSecurityRefused(Forbidden):
    """403 from Pod Security admission: the namespace's level forbids something in the pod."""

    code = "pod_security"


class NamespaceTerminating(Forbidden):
    """403 because the namespace is being deleted: nothing new can be made in it."""

    code = "namespace_terminating"


class QuotaExceeded(Forbidden):
    """403 from ResourceQuota admission, with the figures parsed out of the server's sentence.

    The mappings go from resource name (``requests.cpu``) to the quantity as the server wrote it.
    """

    code = "quota_exceeded"

    def __init__(
        self,
        message: str,
        *,
        quota: str,
        requested: Mapping[str, str],
        used: Mapping[str, str],
        limited: Mapping[str, str],
        status: int = 403,
        reason: str = "Forbidden",
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message, status=status, reason=reason, details=details)
        self.quota = quota
        self.requested = requested
        self.used = used
        self.limited = limited


class NotFound(KubeError):
    """404. Of a pod this means *unknown*, never *failed* (failure F7)."""

    code = "not_found"


class NotImplementedByCluster(KubeError):
    """405 or 501: this cluster does not offer the operation (the embedded one refuses what it does not do)."""

    code = "not_supported"


class AlreadyExists(KubeError):
    """409 on create. GET it and compare the attempt label before deciding whose it is (failure F4)."""

    code = "already_exists"


class Conflict(KubeError):
    """409: a precondition (UID, resourceVersion) or another field manager stands against the change."""

    code = "conflict"


class Gone(KubeError):
    """410: the resourceVersion is too old; list again."""

    code = "gone"
    retryable = True


class Invalid(KubeError):
    """422: the server validated the object and refused; ``causes`` says which fields."""

    code = "invalid"

    @property
    def causes(self) -> tuple[FieldCause, ...]:
        """The refused fields in the server's order; empty when it named none."""
        return tuple(
            FieldCause(field=c.get("field", ""), reason=c.get("reason", ""), message=c.get("message", ""))
            for c in self.details.get("causes") or ()
        )


class TooManyRequests(KubeError):
    """429: the server sheds load, or a disruption budget forbids the eviction. Wait ``retry_after_s``."""

    code = "too_many_requests"
    retryable = True

    def __init__(self, message: str, *, retry_after_s: float = 1.0, **rest: Any) -> None:
        super().__init__(message, **rest)
        self.retry_after_s = retry_after_s


class ServerTimeout(KubeError):
    """504, or a 5xx that says the server ran out of time: a write may have happened."""

    code = "server_timeout"
    retryable = True


class ServerError(KubeError):
    """Any other 5xx."""

    code = "server_error"
    retryable = True


class Unreachable(KubeError):
    """No answer: refused, reset, timed out, TLS failure. ``maybe_done`` is true once the request was on its way."""

    code = "unreachable"
    retryable = True


class TlsFailure(Unreachable):
    """The server's certificate is not the one this CA vouches for (or ours was refused): nothing was sent."""

    code = "tls_failure"
    retryable = False


class BadAnswer(KubeError):
    """The server answered with something that is not JSON, or not an object: a proxy in between, usually."""

    code = "bad_answer"
    retryable = True


_QUOTA = re.compile(
    r"exceeded quota: (?P<quota>[^,]+), requested: (?P<requested>.+?), used: (?P<used>.+?), limited: (?P<limited>.+)$"
)
_DENIED = re.compile(r' cannot (?P<verb>[a-z]+) resource "(?P<resource>[^"]+)" in API group "(?P<group>[^"]*)"')
#: The pattern is quadratic at worst; the server's own texts are a few hundred characters.
_LONGEST_QUOTA_TEXT = 4000
_READ_METHODS = frozenset({"GET", "HEAD"})


def _figures(text: str) -> dict[str, str]:
    """``requests.cpu=1,pods=1`` -> mapping; this is how ResourceQuota admission prints resource lists."""
    return dict(part.split("=", 1) for part in text.strip().split(",") if "=" in part)


def quota_from_message(message: str) -> QuotaExceeded | None:
    """Parse the text of ResourceQuota admission wherever it turns up (a Status, an event's message), else None."""
    found = _QUOTA.search(message[:_LONGEST_QUOTA_TEXT].strip())
    if found is None:
        return None
    return QuotaExceeded(
        message,
        quota=found["quota"].strip(),
        requested=_figures(found["requested"]),
        used=_figures(found["used"]),
        limited=_figures(found["limited"]),
    )


def error_from_status(
    body: Mapping[str, Any], *, http_status: int, method: str = "GET", retry_after_s: float | None = None
) -> KubeError:
    """The one translation from a ``Status`` object (or the shards of one) to an error.

    ``method`` decides ``maybe_done``: only a write that met a 5xx may have taken effect.
    """
    status = int(body.get("code") or http_status)
    reason = str(body.get("reason") or "")
    message = str(body.get("message") or f"the server answered {status} without a message")
    details = body.get("details") or {}
    rest: dict[str, Any] = {"status": status, "reason": reason, "details": details}
    wrote = method.upper() not in _READ_METHODS
    if status == 401:
        return Unauthorized(message, **rest)
    if status == 403:
        return _forbidden(message, details, rest)
    if status == 404:
        return NotFound(message, **rest)
    if status in (405, 501):
        return NotImplementedByCluster(message, **rest)
    if status == 409:
        return AlreadyExists(message, **rest) if reason == "AlreadyExists" else Conflict(message, **rest)
    if status == 410:
        return Gone(message, **rest)
    if status == 422:
        return Invalid(message, **rest)
    if status == 429 or reason == "TooManyRequests":
        seconds = retry_after_s if retry_after_s is not None else details.get("retryAfterSeconds")
        return TooManyRequests(message, retry_after_s=float(seconds or 1.0), **rest)
    if status == 504 or reason in ("Timeout", "ServerTimeout"):
        return ServerTimeout(message, maybe_done=wrote, **rest)
    if status >= 500:
        return ServerError(message, maybe_done=wrote, **rest)
    return BadRequest(message, **rest)


def _forbidden(message: str, details: Mapping[str, Any], rest: dict[str, Any]) -> Forbidden:
    quota = quota_from_message(message)
    if quota is not None:
        return QuotaExceeded(
            message, quota=quota.quota, requested=quota.requested, used=quota.used, limited=quota.limited, **rest
        )
    causes = {str(cause.get("reason")) for cause in details.get("causes") or ()}
    if "NamespaceTerminating" in causes or "because it is being terminated" in message:
        return NamespaceTerminating(message, **rest)
    if "violates PodSecurity" in message:
        return PodSecurityRefused(message, **rest)
    denied = _DENIED.search(message)
    if denied is not None:
        plural, slash, subresource = denied["resource"].partition("/")
        name = f"{plural}.{denied['group']}" if denied["group"] else plural
        return PermissionDenied(message, verb=denied["verb"], resource=f"{name}{slash}{subresource}", **rest)
    return Forbidden(message, **rest)
