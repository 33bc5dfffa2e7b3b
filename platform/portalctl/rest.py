"""One REST client: an address, a token, and errors in the portal's own words."""

from __future__ import annotations

import base64
import http.client
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

TIMEOUT_S = 30.0
PATIENCE_S = 120.0
"""How long a command that waits for something goes on asking a portal that is away (a restart, say)."""
ASK_AGAIN_S = 1.0


class Refused(Exception):
    """The portal answered with an error; ``code`` is its stable code."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        self.status = status
        self.code = str(problem.get("code", f"http_{status}"))
        said = str(problem.get("detail") or problem.get("title") or f"The portal answered {status}.")
        lines = [said]
        for entry in problem.get("errors", []):
            field = entry["pointer"].strip("/")
            lines.append(f"  in {field}" if entry["detail"] == said else f"  {field}: {entry['detail']}")
        if problem.get("next"):
            lines.append(str(problem["next"]))
        super().__init__("\n".join(lines))


class Unreachable(Exception):
    """The portal did not answer, or what answered is no portal."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        """A token must not travel to another address."""


@dataclass(frozen=True)
class Answer:
    """Body and headers of a success."""

    body: bytes
    headers: Mapping[str, str]

    @property
    def json(self) -> Any:
        """The body, parsed; None when empty. Raises ``Unreachable`` when it is no JSON."""
        try:
            return json.loads(self.body) if self.body else None
        except ValueError as error:
            raise Unreachable("What answers there is no portal; give the address that its pages have.") from error


@dataclass(frozen=True)
class Portal:
    """The portal at ``url``, as whoever owns ``token``."""

    url: str
    token: str = ""

    def call(
        self, method: str, path: str, body: Any = None, *, key: str = "", basic: tuple[str, str] | None = None
    ) -> Answer:
        """One request below ``/api/v1/``. Raises ``Refused`` or ``Unreachable``."""
        headers = {"Accept": "application/json"}
        if basic:
            headers["Authorization"] = "Basic " + base64.b64encode(":".join(basic).encode()).decode()
        elif self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        if body is not None:
            headers["Content-Type"] = "application/json"
        if key:
            headers["Idempotency-Key"] = key
        data = None if body is None else json.dumps(body).encode()
        address = f"{self.url.rstrip('/')}/api/v1/{path}"
        if not address.startswith(("http://", "https://")):
            raise Unreachable(f"{self.url!r} is not an address; give http://… or https://…")
        request = urllib.request.Request(address, method=method, headers=headers, data=data)  # noqa: S310 - checked
        opener = urllib.request.build_opener(_NoRedirect)
        try:
            with opener.open(request, timeout=TIMEOUT_S) as response:
                return Answer(response.read(), {name.lower(): value for name, value in response.headers.items()})
        except urllib.error.HTTPError as error:
            problem = _problem(error)
            if "code" not in problem:
                raise Unreachable(_no_portal(self.url, error.code)) from error
            raise Refused(error.code, problem) from error
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise Unreachable(f"The portal at {self.url} does not answer: {reason}") from error

    def patiently(self, path: str) -> Answer:
        """A GET that outlasts a portal that is away for up to ``PATIENCE_S``."""
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                return self.call("GET", path)
            except Unreachable:
                if time.monotonic() > until:
                    raise
            except Refused as error:
                if error.status != HTTPStatus.SERVICE_UNAVAILABLE or time.monotonic() > until:
                    raise
            time.sleep(ASK_AGAIN_S)

    def items(self, path: str, *, patient: bool = False, **filters: str | None) -> Iterator[dict[str, Any]]:
        """All rows of a list, page by page."""
        query = {name: value for name, value in filters.items() if value}
        while True:
            address = f"{path}?{urllib.parse.urlencode(query)}"
            page = (self.patiently(address) if patient else self.call("GET", address)).json
            yield from page["items"]
            if not page["next"]:
                return
            query["cursor"] = page["next"]


def _no_portal(url: str, status: int) -> str:
    if status in {HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT}:
        return f"The portal at {url} is starting or away ({status}). Try again in a few seconds."
    return f"What answers at {url} is no portal ({status}); give the address that its pages have."


def _problem(error: urllib.error.HTTPError) -> Mapping[str, Any]:
    try:
        found = json.loads(error.read(64 * 1024))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
