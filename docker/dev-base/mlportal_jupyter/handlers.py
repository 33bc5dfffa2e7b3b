"""The two addresses of the portal on an instance's own host."""

from __future__ import annotations

import json
from typing import Any

from jupyter_server.auth.decorator import allow_unauthenticated
from jupyter_server.base.handlers import JupyterHandler
from tornado import web

from mlportal_jupyter.tickets import COOKIE_LIFE_S, COOKIE_NAME, safe_next


class ReadyHandler(JupyterHandler):
    """GET /portal/ready: 200 once the server answers. Needs no key and tells nothing."""

    @allow_unauthenticated
    def get(self) -> None:
        self.set_header("Content-Type", "application/json")
        self.set_header("Cache-Control", "no-store")
        self.finish(json.dumps({"ready": True}))


class EnterHandler(JupyterHandler):
    """POST /portal/enter with a form field `ticket`: sets the cookie and goes on to `next`, or answers 403."""

    def check_xsrf_cookie(self) -> None:
        """The form comes from the portal, another site; the ticket is what proves it."""

    @allow_unauthenticated
    def post(self) -> None:
        provider: Any = self.identity_provider
        user = provider.door.enter(self.get_body_argument("ticket", ""))
        if user is None:
            provider.count_wrong(self)
            raise web.HTTPError(403, "This ticket is spent, expired or not for this instance. Open it from the portal.")
        self.set_cookie(
            COOKIE_NAME,
            provider.door.cookie(user),
            path="/",
            secure=True,
            httponly=True,
            samesite="Lax",
            max_age=COOKIE_LIFE_S,
        )
        self.set_header("Cache-Control", "no-store")
        self.redirect(safe_next(self.get_body_argument("next", None)), status=303)

    @allow_unauthenticated
    def get(self) -> None:
        self.redirect("/lab", status=303)
