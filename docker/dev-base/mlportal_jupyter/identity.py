"""Who is asking: the key in `Authorization: token KEY`, or the cookie that a ticket bought. Nothing else."""

from __future__ import annotations

import os
from typing import Any

from jupyter_server.auth.identity import IdentityProvider, User
from tornado import web
from traitlets import default

from mlportal_jupyter.tickets import COOKIE_NAME, Door, Key

REFUSED = "This instance opens with its own key. Enter it from the portal"


class PortalIdentityProvider(IdentityProvider):
    """Refuses with 403 where Jupyter would show its login page: the portal is the only place to sign in."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.key = Key()
        self.door = Door(self.key, os.environ.get("MLPORTAL_INSTANCE_ID", ""))

    @default("token")
    def _token_default(self) -> str:
        return ""  # Jupyter writes its token into pages and log lines; the key must be in neither

    @property
    def login_available(self) -> bool:
        return False

    @property
    def logout_available(self) -> bool:
        return False

    def get_token(self, handler: web.RequestHandler) -> str | None:
        """From the header alone: an address with a key in it ends up in logs and histories."""
        found = self.auth_header_pat.match(handler.request.headers.get("Authorization", ""))
        return found.group(2).strip() if found else None

    async def get_user(self, handler: web.RequestHandler) -> User | None:  # type: ignore[override]
        """Raises 403 for a handler that needs a user and gets none."""
        token = self.get_token(handler)
        if token is not None and self.key.matches(token):
            handler._token_authenticated = True
            return _user(os.environ.get("MLPORTAL_USER", "owner"))
        if token is None:
            name = self.door.user_of_cookie(handler.get_cookie(COOKIE_NAME) or "")
            if name is not None:
                return _user(name)
        method = getattr(handler, (handler.request.method or "").lower(), None)
        if getattr(method, "__allow_unauthenticated", False):
            return None
        handler.current_user = handler._jupyter_current_user = None
        origin = os.environ.get("MLPORTAL_PORTAL_ORIGIN")
        raise web.HTTPError(403, f"{REFUSED} at {origin}." if origin else f"{REFUSED}.")


def _user(name: str) -> User:
    return User(username=name, name=name, display_name=name, initials=name[:2].upper())
