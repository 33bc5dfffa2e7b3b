"""The one way to addresses that users give (webhooks, registries): resolve once, check, pin, no redirects.

Public addresses are reachable; internal ones only when the administrator's ``PORTAL_EGRESS_ALLOW`` names
the host or the network (F47). Every refusal says which rule it hit, never what the address answered.
"""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import socket
import ssl
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from django.conf import settings

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
MAX_ANSWER_BYTES = 64 * 1024
#: Well within the lease of a delivery, which another worker would take up.
TOTAL_S = 30.0


class EgressRefused(Exception):
    """The address may not be reached; ``code`` says which rule."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class EgressFailed(Exception):
    """The address may be reached but did not answer properly."""


@dataclass(frozen=True)
class Answer:
    """Status and the first 64 KiB of the body."""

    status: int
    body: bytes


@dataclass(frozen=True)
class Target:
    """A checked address: connect to ``address``, speak to ``host``. ``addresses`` are all that the name leads to."""

    scheme: str
    host: str
    port: int
    path: str
    address: str
    addresses: tuple[str, ...]


def is_public(address: Address) -> bool:
    """True for globally routable unicast addresses, looking through IPv4 mapped, 6to4 and NAT64 forms."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and address in ipaddress.ip_network("64:ff9b::/96"):
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(inner)
        if address.teredo is not None:
            return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def is_allowed(host: str, address: Address, allow: Sequence[str]) -> bool:
    """Pure rule: public, or named by the allow-list (host name, address or network)."""
    if is_public(address):
        return True
    for entry in allow:
        if entry.lower() == host.lower():
            return True
        try:
            network = ipaddress.ip_network(entry, strict=False)
        except ValueError:
            continue
        if address.version == network.version and address in network:
            return True
    return False


def parse(url: str) -> SplitResult:
    """The parts of an address that may be asked for as far as its text says. Raises ``EgressRefused``."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise EgressRefused("url_invalid", f"This is not a URL: {error}.") from error
    if any(character.isspace() or not character.isprintable() for character in url):
        raise EgressRefused("url_invalid", "This is not a URL: it has a space in it.")
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise EgressRefused("url_scheme", "Only http:// and https:// addresses with a host name are allowed.")
    if parts.username is not None or parts.password is not None:
        raise EgressRefused("url_credentials", "The address must not contain a user name or password.")
    return parts


def check(url: str, *, allow: Sequence[str] | None = None) -> Target:
    """Parse, resolve once and check every address. Raises ``EgressRefused`` or ``EgressFailed``."""
    allow = settings.PORTAL_EGRESS_ALLOW if allow is None else allow
    parts = parse(url)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise EgressFailed(f"The host {host} could not be resolved.") from error
    addresses = [str(entry[4][0]).split("%")[0] for entry in found]
    for text in addresses:
        if not is_allowed(host, ipaddress.ip_address(text), allow):
            raise EgressRefused(
                "address_internal",
                f"The host {host} is an internal address. An administrator can allow it in PORTAL_EGRESS_ALLOW.",
            )
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(
        scheme=parts.scheme, host=host, port=port, path=path, address=addresses[0], addresses=tuple(addresses)
    )


class _PinnedConnection(http.client.HTTPConnection):
    """Connects to the checked address and nowhere else; the host name stays for Host and TLS."""

    def __init__(self, target: Target, timeout_s: float) -> None:
        super().__init__(target.host, target.port, timeout=timeout_s)
        self._target = target
        self._wire: socket.socket | None = None

    def connect(self) -> None:
        self.sock = self._wire = socket.create_connection((self._target.address, self._target.port), self.timeout)
        if self._target.scheme == "https":
            context = ssl.create_default_context()
            wrapped = context.wrap_socket(self.sock, server_hostname=self._target.host, do_handshake_on_connect=False)
            self.sock = self._wire = wrapped
            wrapped.do_handshake()

    def cut(self) -> None:
        """End whatever is being read or written; it fails there. From any thread."""
        if self._wire is not None:
            with contextlib.suppress(OSError):
                self._wire.shutdown(socket.SHUT_RDWR)


def post(
    url: str, *, body: bytes, headers: Mapping[str, str], timeout_s: float = 10, total_s: float = TOTAL_S
) -> Answer:
    """POST to a user-given address. Redirects are not followed: they come back as their status.

    ``timeout_s`` bounds each silence, ``total_s`` the whole: a receiver that sends a byte now and then holds nobody.
    """
    target = check(url)
    connection = _PinnedConnection(target, timeout_s)
    watchdog = threading.Timer(total_s, connection.cut)
    watchdog.daemon = True
    watchdog.start()
    try:
        connection.request("POST", target.path, body=body, headers=dict(headers))
        response = connection.getresponse()
        return Answer(status=response.status, body=response.read(MAX_ANSWER_BYTES))
    except (OSError, http.client.HTTPException) as error:
        raise EgressFailed(f"{target.host}:{target.port} did not answer: {error}") from error
    finally:
        watchdog.cancel()
        connection.close()
