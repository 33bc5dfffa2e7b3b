"""Checking a name and password, with a brake for whoever guesses."""

from __future__ import annotations

import hashlib

from django.contrib.auth import authenticate
from django.core.cache import cache
from django.http import HttpRequest
from django.utils.translation import gettext as _

from apps.core.errors import PortalError
from apps.tenants.models import User

WINDOW_S = 15 * 60
PER_NAME = 10
PER_ADDRESS = 50


def sign_in(*, request: HttpRequest | None, username: str, password: str, address: str | None) -> User | None:
    """The active user with this name and password, else None.

    Failures are counted per name and per address for a quarter of an hour; after `PER_NAME` or `PER_ADDRESS` of them
    nothing is checked any more. Raises `PortalError` with the code ``too_many_attempts`` and status 429 then.
    """
    counters = [(_key("name", username.lower()), PER_NAME)]
    if address:
        counters.append((_key("address", address), PER_ADDRESS))
    found = cache.get_many([key for key, _most in counters])
    if any(found.get(key, 0) >= most for key, most in counters):
        raise PortalError(
            _("There were too many failed attempts to sign in."),
            code="too_many_attempts",
            status=429,
            next=_("Wait a quarter of an hour and try again, or ask an administrator for a new password."),
        )
    user = authenticate(request, username=username, password=password)
    if isinstance(user, User):
        cache.delete(counters[0][0])
        return user
    for key, _most in counters:
        _count(key)
    return None


def _count(key: str) -> None:
    """One failure more; a counter whose time ends between the two steps begins anew."""
    if cache.add(key, 1, timeout=WINDOW_S):
        return
    try:
        cache.incr(key)
    except ValueError:
        cache.add(key, 1, timeout=WINDOW_S)


def _key(what: str, value: str) -> str:
    """Names may hold anything; cache keys may not."""
    return f"signin:{what}:{hashlib.sha256(value.encode()).hexdigest()[:32]}"
