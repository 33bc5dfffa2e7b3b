"""Which portal, and as whom: from the environment in CI, else from the file that `login` wrote."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from portalctl.rest import Portal


class NotSignedIn(Exception):
    """There is neither a token in the environment nor a file of an earlier sign-in."""


def file_of(environ: Mapping[str, str]) -> Path:
    """``$XDG_CONFIG_HOME/portalctl.json``."""
    base = environ.get("XDG_CONFIG_HOME") or str(Path(environ.get("HOME", "~")).expanduser() / ".config")
    return Path(base) / "portalctl.json"


def read(environ: Mapping[str, str]) -> Portal:
    """The portal to talk to. Raises ``NotSignedIn``."""
    if environ.get("PORTAL_TOKEN"):
        return Portal(environ.get("PORTAL_URL") or "http://127.0.0.1:8000", environ["PORTAL_TOKEN"])
    try:
        kept = json.loads(file_of(environ).read_text(encoding="utf-8"))
        return Portal(environ.get("PORTAL_URL") or kept["url"], kept["token"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NotSignedIn(
            "You are not signed in. Run: portalctl login ADDRESS   (or set PORTAL_URL and PORTAL_TOKEN)"
        ) from error


def keep(portal: Portal, environ: Mapping[str, str]) -> Path:
    """Write the file with mode 0600, whole or not at all."""
    path = file_of(environ)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump({"url": portal.url, "token": portal.token}, file)
    draft.replace(path)
    return path
