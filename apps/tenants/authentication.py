"""Who calls the REST API: a bearer token, a browser's session with its CSRF token, or (for tokens alone) a password.

Each sets ``request.actor``. Every way of saying no is the same 401 with ``code`` ``not_authenticated``; the sentence
says what is wrong with what was sent. Who has to change their password first is told so, with a code of its own:
whoever gave the password knows it, and would else have a token that outlives it.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from django.utils import timezone
from django.utils.translation import gettext as _
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.authentication import SessionAuthentication as DrfSessionAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from apps.core import actors
from apps.core.errors import Forbidden, PortalError
from apps.tenants import passwords, tokens
from apps.tenants.models import ApiToken, User

CHALLENGE = 'Bearer realm="mlportal"'


def address_of(request: Any) -> str | None:
    """Where the request came from, as the server in front says; None on a unix socket without one."""
    return request.META.get("REMOTE_ADDR") or None


def refuse_given_password(user: User) -> None:
    """Raise `Forbidden` while the person's password is one that somebody else gave them, as the pages do."""
    if user.must_change_password:
        raise Forbidden(
            _("The password was given by somebody else and has to be changed first."),
            code="password_change_required",
            next=_("Sign in to the portal with a browser and choose a password of your own; then send this again."),
        )


class BearerAuthentication(BaseAuthentication):
    """``Authorization: Bearer <token>``; any other scheme is refused in words, not ignored."""

    def authenticate(self, request: Request) -> tuple[User, ApiToken] | None:
        header = get_authorization_header(request)
        if not header:
            return None
        scheme, _space, text = header.partition(b" ")
        if scheme.lower() != b"bearer":
            raise AuthenticationFailed(_("Only “Authorization: Bearer …” is accepted here."))
        token = tokens.find(text.strip().decode("latin-1"))
        if token is None:
            raise AuthenticationFailed(_("This token is not known."))
        if token.revoked_at is not None:
            raise AuthenticationFailed(_("This token was revoked."))
        if token.expires_at <= timezone.now():
            raise AuthenticationFailed(_("This token has expired."))
        if not token.user.is_active:
            raise AuthenticationFailed(_("The account of this token is deactivated."))
        refuse_given_password(token.user)
        tokens.note_use(token)
        request.actor = actors.from_user(token.user, token=token, address=address_of(request))  # type: ignore[attr-defined]
        return token.user, token

    def authenticate_header(self, request: Request) -> str:
        """What a 401 asks for."""
        return CHALLENGE


class SessionAuthentication(DrfSessionAuthentication):
    """The browser's session; unsafe methods need the CSRF token."""

    def authenticate(self, request: Request) -> tuple[User, None] | None:
        found = super().authenticate(request)
        if found is None:
            return None
        refuse_given_password(found[0])
        request.actor = actors.from_user(found[0], address=address_of(request))  # type: ignore[attr-defined]
        return found[0], None


class PasswordAuthentication(BaseAuthentication):
    """HTTP Basic, for making the first token and for nothing else. Guessing is slowed by `passwords.sign_in`."""

    def authenticate(self, request: Request) -> tuple[User, None] | None:
        scheme, _space, text = get_authorization_header(request).partition(b" ")
        if scheme.lower() != b"basic":
            return None
        try:
            username, _colon, password = base64.b64decode(text.strip(), validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError) as error:
            raise AuthenticationFailed(_("The Basic credentials cannot be read.")) from error
        address = address_of(request)
        user = passwords.sign_in(request=request._request, username=username, password=password, address=address)
        if user is None:
            raise PortalError(
                _("Name and password do not fit."),
                code="not_authenticated",
                status=401,
                next=_("Both are case-sensitive. An administrator of the portal can give you a new password."),
            )
        refuse_given_password(user)
        request.actor = actors.from_user(user, address=address)  # type: ignore[attr-defined]
        return user, None


class BearerScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """How the OpenAPI document names bearer tokens."""

    target_class = "apps.tenants.authentication.BearerAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer"}


class SessionScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """How it names the browser's session."""

    target_class = "apps.tenants.authentication.SessionAuthentication"
    name = "session"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "apiKey", "in": "cookie", "name": "mlportal-session"}


class PasswordScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """How it names the password that makes the first token."""

    target_class = "apps.tenants.authentication.PasswordAuthentication"
    name = "password"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "basic"}
