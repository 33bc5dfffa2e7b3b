"""Puts ``request.actor`` on every request of a signed-in person."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from django.utils.functional import SimpleLazyObject

from apps.core import actors


def actor_middleware(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Sessions only; the API's token authentication sets its own actor."""

    def handle(request: HttpRequest) -> HttpResponse:
        def find() -> object:
            if not request.user.is_authenticated:
                return None
            return actors.from_user(request.user, address=request.META.get("REMOTE_ADDR") or None)

        request.actor = SimpleLazyObject(find)  # type: ignore[attr-defined]
        return get_response(request)

    return handle
