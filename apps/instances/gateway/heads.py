"""Heads of HTTP/1.1 messages: which fields go on, which are the gateway's own. Pure.

A head is never passed on as it came: it is taken apart by llhttp and written anew, with one way of saying how long the
body is, so that no two readers along the way can understand it differently.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import IntEnum
from typing import Final

MAX_HEAD: Final = 64 << 10
MAX_FIELDS: Final = 100
#: Names kept in mind; browsers send a few dozen.
REMEMBERED: Final = 1000

Field = tuple[bytes, bytes]


class Fate(IntEnum):
    """What becomes of a field."""

    KEEP = 0
    DROP = 1
    READ = 2
    """The gateway itself looks at it."""


#: RFC 9110 7.6.1: they speak of one connection alone. `Expect` is answered here.
_HOP = {
    *(b"connection", b"keep-alive", b"proxy-connection", b"proxy-authenticate", b"proxy-authorization"),
    *(b"te", b"trailer", b"transfer-encoding", b"upgrade", b"expect", b"http2-settings"),
}
_READ_OF_REQUEST = {b"host", b"cookie", b"connection", b"upgrade", b"content-length", b"expect", b"x-forwarded-for"}
_READ_OF_REQUEST |= {b"transfer-encoding"}
_READ_OF_RESPONSE = {b"connection", b"content-length", b"transfer-encoding", b"upgrade"}
#: What proxies say of the person behind a request. Nobody here says it, so whoever sends it makes it up (failure F39).
_IDENTITY = re.compile(
    rb"x-forwarded-.*|forwarded|x-real-ip|x-client-ip|x-cluster-client-ip|true-client-ip|x-original-.*|x-rewrite-url"
    rb"|(x-)?remote-.*|x-auth-.*|x-authenticated-.*|x-user.*|x-email|x-groups?|x-webauth-.*|x-jwt-.*|x-id-token|x-access-token"
    rb"|x-ssl-client.*|ssl-client.*|x-client-cert.*|client-cert.*|kubeflow-.*|x-goog-.*|x-amzn-oidc-.*|x-ms-.*"
    rb"|cf-access-.*|x-pomerium-.*|x-vouch-.*|oidc-.*|impersonate-.*|mlportal-.*|x-mlportal-.*"
)
_fates: tuple[dict[bytes, Fate], dict[bytes, Fate]] = ({}, {})


def fate(name: bytes, *, of_response: bool = False) -> Fate:
    """What becomes of a field of this name."""
    known = _fates[of_response]
    found = known.get(name)
    if found is None:
        found = _judged(name.lower(), of_response=of_response)
        if len(known) < REMEMBERED:
            known[name] = found
    return found


def _judged(name: bytes, *, of_response: bool) -> Fate:
    if name in (_READ_OF_RESPONSE if of_response else _READ_OF_REQUEST):
        return Fate.READ
    if name in _HOP:
        return Fate.DROP
    # With an underscore it would be the same name to a CGI program (`Remote_User`).
    if not of_response and (b"_" in name or _IDENTITY.fullmatch(name)):
        return Fate.DROP
    return Fate.KEEP


def without_cookies(value: bytes, names: Iterable[bytes]) -> bytes:
    """The field `Cookie` without those named."""
    if not any(name in value for name in names):
        return value
    kept = [part for part in value.split(b";") if part.split(b"=", 1)[0].strip() not in names]
    return b";".join(kept).strip()


def cookie(value: bytes, name: bytes) -> bytes:
    """The value of a cookie, empty when it is not there."""
    for part in value.split(b";"):
        found, _equals, said = part.strip().partition(b"=")
        if found == name:
            return said
    return b""


def connection_options(value: bytes) -> set[bytes]:
    """What a field `Connection` lists, in small letters."""
    return {option.strip().lower() for option in value.split(b",")}


def without(fields: list[Field], options: set[bytes]) -> list[Field]:
    """The fields without those that `Connection` names as its own."""
    if options <= {b"keep-alive", b"close", b"upgrade", b""}:
        return fields
    return [field for field in fields if field[0].lower() not in options]
