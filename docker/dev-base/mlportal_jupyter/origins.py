"""Whose page sent a request. A cookie counts only for the instance's own pages.

All instances are one site to a browser, so SameSite does not keep a page in one of them from sending another one's
cookie along: as an image, a form, a fetch, a web socket, a frame. Jupyter checks that for its own API; programs that
are reached through it (VS Code, whatever listens on a port) are covered only here.

Only the standard library, as in `tickets`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

READS = ("GET", "HEAD")
OWN = ("same-origin", "none")
"""`none`: the person typed the address or opened a bookmark."""


def from_elsewhere(method: str, headers: Mapping[str, str], hosts: Collection[str]) -> bool:
    """Whether another origin's page is behind this request; `hosts` are the names (with port) of the own one.

    A link that is followed is no such thing: it opens a page of its own, which the other one cannot read.
    """
    origin = headers.get("Origin")
    if origin is not None and origin not in {f"{scheme}://{host}" for scheme in ("http", "https") for host in hosts}:
        return True
    if headers.get("Sec-Fetch-Site", "none") in OWN:
        return False
    followed = headers.get("Sec-Fetch-Mode") == "navigate" and headers.get("Sec-Fetch-Dest") == "document"
    return not (followed and method in READS)


def without(cookies: str, name: str) -> str:
    """A Cookie header without one cookie."""
    kept = (part.strip() for part in cookies.split(";"))
    return "; ".join(part for part in kept if part and part.partition("=")[0].strip() != name)
