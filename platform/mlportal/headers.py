"""Response headers that Django does not set itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.conf import settings
from django.http import HttpRequest, HttpResponseBase

Handler = Callable[[HttpRequest], HttpResponseBase] | Callable[[HttpRequest], Awaitable[HttpResponseBase]]


class ContentSecurityPolicy:
    """Adds settings.CONTENT_SECURITY_POLICY and Permissions-Policy to every response that has none."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Handler) -> None:
        self.get_response = get_response
        self.is_async = iscoroutinefunction(get_response)
        if self.is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        if self.is_async:
            return self._call_async(request)
        return _stamp(self.get_response(request))  # type: ignore[arg-type]

    async def _call_async(self, request: HttpRequest) -> HttpResponseBase:
        return _stamp(await self.get_response(request))  # type: ignore[misc]


def _stamp(response: HttpResponseBase) -> HttpResponseBase:
    response.headers.setdefault("Content-Security-Policy", settings.CONTENT_SECURITY_POLICY)
    response.headers.setdefault("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()")
    return response


def content_security_policy(*, apps_domain: str, port: int) -> str:
    """The policy of the portal's pages: everything from the portal itself.

    Forms may also be posted to the hosts of instances, which is how a ticket gets there.
    """
    rules = {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "img-src": "'self' data:",
        "font-src": "'self'",
        "connect-src": "'self'",
        "manifest-src": "'self'",
        "form-action": f"'self' http://*.{apps_domain}:{port} https://*.{apps_domain}:*",
        "frame-ancestors": "'none'",
        "base-uri": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())
