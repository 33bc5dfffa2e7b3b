"""Who is asking: the key in `Authorization: token KEY`, or the cookie that a ticket bought. Nothing else."""

from __future__ import annotations

import os
import weakref
from typing import Any

from jupyter_server.auth.identity import IdentityProvider, User
from tornado import web
from tornado.websocket import WebSocketHandler
from traitlets import default

from mlportal_jupyter.guesses import Guesses
from mlportal_jupyter.origins import from_elsewhere, without
from mlportal_jupyter.tickets import COOKIE_NAME, Door, Key

TOO_MANY = 429
TOLD = 100
"""Addresses of which the log said that they guess; then it begins anew, so that the list has an end."""
REFUSED = "This instance opens with its own key. Enter it from the portal"


class PortalIdentityProvider(IdentityProvider):
    """Refuses with 403 where Jupyter would show its login page: the portal is the only place to sign in."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.key = Key()
        self.door = Door(self.key, os.environ.get("MLPORTAL_INSTANCE_ID", ""))
        self.guesses = Guesses()
        self._sockets: weakref.WeakSet[WebSocketHandler] = weakref.WeakSet()
        self._opened_with = self.key.value()
        self._told: set[str] = set()

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
        user = self._known(handler)
        if user is not None:
            self._keep_to_ourselves(handler)
            if isinstance(handler, WebSocketHandler):
                self._sockets.add(handler)
            return user
        method = getattr(handler, (handler.request.method or "").lower(), None)
        if getattr(method, "__allow_unauthenticated", False):
            return None  # a good ticket must pass, whatever dead cookie comes with it
        if self.get_token(handler) is not None or (
            handler.get_cookie(COOKIE_NAME) and not self._from_elsewhere(handler)
        ):
            self.count_wrong(handler)
        handler.current_user = handler._jupyter_current_user = None
        origin = os.environ.get("MLPORTAL_PORTAL_ORIGIN")
        raise web.HTTPError(403, f"{REFUSED} at {origin}." if origin else f"{REFUSED}.")

    def _known(self, handler: web.RequestHandler) -> User | None:
        token = self.get_token(handler)
        if token is None:
            if self._from_elsewhere(handler):
                return None
            name = self.door.user_of_cookie(handler.get_cookie(COOKIE_NAME) or "")
            return _user(name) if name is not None else None
        if not self.key.matches(token):
            return None
        handler._token_authenticated = True  # type: ignore[attr-defined]  # Jupyter asks for no XSRF token then
        return _user(os.environ.get("MLPORTAL_USER", "owner"))

    @staticmethod
    def _from_elsewhere(handler: web.RequestHandler) -> bool:
        request, own = handler.request, os.environ.get("MLPORTAL_HOST", "")
        return from_elsewhere(request.method or "", request.headers, {request.host, own or request.host})

    @staticmethod
    def _keep_to_ourselves(handler: web.RequestHandler) -> None:
        """Whoever entered is known by now. What they entered with is not handed on to programs behind this server."""
        headers = handler.request.headers
        headers.pop("Authorization", None)
        if "Cookie" in headers:
            rest = without(headers["Cookie"], COOKIE_NAME)
            headers.pop("Cookie")
            if rest:
                headers["Cookie"] = rest

    def count_wrong(self, handler: web.RequestHandler) -> None:
        """A wrong key, cookie or ticket came. Answers 429 by itself (``web.Finish``) when this address sent too many.

        The address is the connection's and what the nearest proxy says of the one behind it. Both are only counted
        by, so that it does no harm when somebody makes the second one up.
        """
        behind = handler.request.headers.get("X-Forwarded-For", "").rpartition(",")[2].strip()
        address = f"{handler.request.remote_ip} {behind}"[:100]
        wait_s = self.guesses.wrong(address)
        if not wait_s:
            return
        if address not in self._told:
            if len(self._told) >= TOLD:
                self._told.clear()
            self._told.add(address)
            self.log.warning("Too many wrong keys from %s: no more of them are logged", address)
        handler.set_status(TOO_MANY)
        handler.set_header("Content-Type", "text/plain; charset=utf-8")
        handler.set_header("Retry-After", str(int(wait_s) + 1))
        raise web.Finish(f"Too many wrong keys. {REFUSED}.\n")

    def close_old_sockets(self) -> None:
        """Whoever entered with a key that is dead now loses the connection; kernels and terminals go on without it."""
        present = self.key.value()
        if present == self._opened_with:
            return
        self._opened_with = present
        for handler in list(self._sockets):
            if handler.ws_connection is not None:
                handler.close(4403, "the key of this instance has changed")
        self._sockets.clear()


def _user(name: str) -> User:
    return User(username=name, name=name, display_name=name, initials=name[:2].upper())
