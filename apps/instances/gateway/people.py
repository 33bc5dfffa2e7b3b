"""Who may use an open port: what a ticket buys, and whether a request has it.

What listens on such a port checks nothing, so the gateway does. A ticket, signed by the portal and good once for a
minute, is sent by POST and becomes a cookie of that one host (failure F40). It names the person, the launch and the
port; whether that person may still is asked of the table at each request, and of no one else.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qs

from django.core import signing
from django.core.cache import cache

from apps.instances.gateway import heads, pages
from apps.instances.gateway.places import Door

COOKIE: Final = b"__Host-mlportal-port"
ENTER: Final = b"/portal/enter"
TICKET_S: Final = 60
#: After this a person opens the port from the portal again.
COOKIE_S: Final = 24 * 3600
#: A form with a ticket is smaller.
MAX_FORM: Final = 8 << 10
REMEMBERED: Final = 10_000
_TICKET, _PASS = "mlportal.port.ticket", "mlportal.port.pass"


@dataclass(frozen=True, slots=True)
class Pass:
    """One person at one port of one launch."""

    instance: str
    launch: int
    port: int
    person: str

    def says(self) -> list[Any]:
        """What is signed."""
        return [self.instance, self.launch, self.port, self.person]


def ticket(wanted: Pass, nonce: str) -> str:
    """What the portal's form posts."""
    return signing.dumps([*wanted.says(), nonce], salt=_TICKET)


class Passes:
    """Reads cookies, each once."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, tuple[float, Pass]] = OrderedDict()

    def of(self, cookie: bytes) -> Pass | None:
        """The pass in this cookie, None for one that the portal did not make or that is too old."""
        known = self._known.get(cookie)
        if known is None:
            try:
                made, said = _unsigned(cookie.decode("ascii"), _PASS, COOKIE_S)
                known = (made + COOKIE_S, Pass(*said))
            except (signing.BadSignature, ValueError, TypeError):
                return None
            self._known[cookie] = known
            if len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
        return known[1] if known[0] > time.time() else None


def _unsigned(text: str, salt: str, age_s: int) -> tuple[float, Any]:
    signer = signing.TimestampSigner(salt=salt)
    said = signer.unsign_object(text, max_age=age_s)
    stamp = text.rsplit(":", 2)[1]
    return float(signing.b62_decode(stamp)), said


def judge(passes: Passes, door: Door, cookie: bytes, method: bytes, fields: list[heads.Field], host: bytes) -> str:
    """The person behind a request to a port that the gateway guards; empty for nobody who may."""
    if from_elsewhere(method, fields, host):
        return ""
    found = passes.of(heads.cookie(cookie, COOKIE))
    launch = door.place.launch
    if found is None or (found.instance, found.launch, found.port) != (
        launch.instance_id.hex,
        launch.number,
        door.port,
    ):
        return ""
    return found.person if door.place.admits(door.port, found.person, time.time()) else ""


def from_elsewhere(method: bytes, fields: list[heads.Field], host: bytes) -> bool:
    """Whether a page of another origin is behind it (failure F41): all instances are one site to a browser. A link that
    is followed opens a page of its own, which the other one cannot read."""
    said = {name.lower(): value for name, value in fields}
    origin = said.get(b"origin")
    if origin is not None and origin not in (b"http://" + host, b"https://" + host):
        return True
    if said.get(b"sec-fetch-site", b"none") in (b"same-origin", b"none"):
        return False
    followed = said.get(b"sec-fetch-mode") == b"navigate" and said.get(b"sec-fetch-dest") == b"document"
    return not (followed and method in (b"GET", b"HEAD"))


def admit(door: Door, body: bytes) -> bytes | pages.Said:
    """The cookie that a posted ticket buys, once; blocks."""
    sent = parse_qs(body.decode("ascii", "replace")).get("ticket", [""])[0]
    try:
        *said, nonce = signing.loads(sent, salt=_TICKET, max_age=TICKET_S)
        wanted = Pass(*said)
    except (signing.BadSignature, ValueError, TypeError):
        return pages.NOT_LET_IN
    launch = door.place.launch
    if (wanted.instance, wanted.launch, wanted.port) != (launch.instance_id.hex, launch.number, door.port):
        return pages.NOT_LET_IN
    if not door.place.admits(door.port, wanted.person, time.time()):
        return pages.NOT_LET_IN
    if not cache.add(f"port-ticket:{nonce}", 1, timeout=2 * TICKET_S):
        return pages.NOT_LET_IN
    made = signing.TimestampSigner(salt=_PASS).sign_object(wanted.says())
    return (
        b"HTTP/1.1 303 See Other\r\nLocation: /\r\nContent-Length: 0\r\nCache-Control: no-store\r\n"
        b"Set-Cookie: %b=%b; Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age=%d\r\nConnection: close\r\n\r\n"
        % (COOKIE, made.encode("ascii"), COOKIE_S)
    )
