"""What opens an instance: the launch's key, the portal's one-time tickets, and the cookie that a ticket buys.

Only the standard library, so that it can be tested, and read, without Jupyter.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import hmac
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TICKET_LIFE_S = 60
CLOCK_SKEW_S = 5
COOKIE_NAME = "__Host-mlportal"
COOKIE_LIFE_S = 7 * 24 * 3600
_COOKIE_PURPOSE = b"mlportal cookie\0"
"""Keeps a cookie's signature apart from a ticket's, which is made with the bare key."""
_LONGEST = 4096


def encode(data: bytes) -> str:
    """base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decode(text: str) -> bytes:
    """The inverse of encode; padding is accepted. Raises ValueError for anything else."""
    stripped = text.rstrip("=")
    try:
        return base64.b64decode(stripped + "=" * (-len(stripped) % 4), altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError("not base64url") from error


class Key:
    """The launch's key, read again when its file changes: the portal may rotate it while kernels go on.

    It comes with the pod as a mounted Secret, which the node may bring up to date a minute after the portal changed it.
    A key that the portal wrote into the running pod (`live`) therefore counts before the mounted one.
    """

    def __init__(self, path: Path | None = None, live: Path | None = None) -> None:
        folder = live or Path(os.environ.get("MLPORTAL_LIVE", "/run/mlportal"))
        mounted = path or Path(os.environ.get("MLPORTAL_SECRETS", "/etc/mlportal")) / "key"
        self._paths = (folder / "key", mounted)
        self._closed = folder / "closed"
        self._shut = False
        self._seen: tuple[Path, int, int] | None = None
        self._value = b""

    def close(self) -> None:
        """From now on nothing opens, not even what holds the right key: the pod was told to end.

        The file tells it to the other entrances.
        """
        self._shut = True
        with contextlib.suppress(OSError):
            self._closed.touch()

    def value(self) -> bytes:
        """The key's bytes; empty when there is none or it is closed, and then nothing opens."""
        if self._shut or self._closed.exists():
            return b""
        for path in self._paths:
            try:
                found = path.stat()
            except FileNotFoundError:
                continue
            except OSError:
                break
            seen = (path, found.st_ino, found.st_mtime_ns)
            if seen != self._seen:
                try:
                    self._value, self._seen = path.read_bytes().strip(), seen
                except OSError:
                    break
            return self._value
        self._seen, self._value = None, b""
        return self._value

    def matches(self, given: str) -> bool:
        """Whether this is the key, compared in constant time."""
        key = self.value()
        return bool(key) and hmac.compare_digest(key, given.encode(errors="surrogateescape"))

    def sign(self, text: str, purpose: bytes = b"") -> str:
        """base64url(HMAC-SHA256(key, purpose + text))."""
        return encode(hmac.new(self.value(), purpose + text.encode(), hashlib.sha256).digest())

    def opened(self, signed: str, purpose: bytes = b"") -> dict[str, Any] | None:
        """The JSON object of `BODY.SIGNATURE` when the signature is this key's."""
        body, dot, signature = signed.partition(".")
        if not dot or len(signed) > _LONGEST or not self.value():
            return None
        try:
            given = decode(signature)
            wanted = hmac.new(self.value(), purpose + body.encode(), hashlib.sha256).digest()
            if not hmac.compare_digest(wanted, given):
                return None
            content = json.loads(decode(body))
        except (ValueError, RecursionError):
            return None
        return content if isinstance(content, dict) else None


class Door:
    """Accepts each ticket of this instance once, and gives and checks cookies."""

    def __init__(self, key: Key, instance: str, clock: Callable[[], float] = time.time) -> None:
        self._key, self._instance, self._clock = key, instance, clock
        self._used: dict[str, float] = {}

    def enter(self, ticket: str) -> str | None:
        """The user's name of a good ticket, which is thereby used up; None otherwise."""
        content = self._key.opened(ticket)
        if content is None:
            return None
        user, expires, nonce = content.get("u"), content.get("exp"), content.get("n")
        now = self._clock()
        if not isinstance(user, str) or not user or not isinstance(nonce, str) or not nonce:
            return None
        if isinstance(expires, bool) or not isinstance(expires, (int, float)):
            return None
        if not now < expires <= now + TICKET_LIFE_S + CLOCK_SKEW_S:
            return None
        if not self._instance or content.get("i") != self._instance:
            return None
        self._used = {n: until for n, until in self._used.items() if until > now}
        if nonce in self._used:
            return None
        self._used[nonce] = float(expires)
        return user

    def cookie(self, user: str) -> str:
        """A cookie's value for a user; dead as soon as the key changes."""
        content = {"u": user, "i": self._instance, "exp": int(self._clock()) + COOKIE_LIFE_S}
        body = encode(json.dumps(content, separators=(",", ":")).encode())
        return f"{body}.{self._key.sign(body, _COOKIE_PURPOSE)}"

    def user_of_cookie(self, value: str) -> str | None:
        """Whose cookie it is; None for a forged, foreign, or expired one."""
        content = self._key.opened(value, _COOKIE_PURPOSE)
        if content is None or content.get("i") != self._instance:
            return None
        expires, user = content.get("exp"), content.get("u")
        if not isinstance(expires, int) or expires <= self._clock() or not isinstance(user, str):
            return None
        return user


def safe_next(wanted: str | None) -> str:
    """Where to go after entering: a path on this host, /lab for anything that is not plainly one."""
    if not wanted or not wanted.startswith("/") or wanted.startswith(("//", "/\\")):
        return "/lab"
    if "\\" in wanted or any(ord(letter) < 33 or ord(letter) == 127 for letter in wanted):
        return "/lab"
    return wanted
