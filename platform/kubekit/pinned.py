"""A connection pool that connects to given addresses and to nowhere else, whatever a name resolves to by then.

Whoever owns a name can change where it leads between the check of its address and the connection (failure F47). The
name itself stays for TLS and for the Host header.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence

from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError


def pools(addresses: Sequence[str]) -> dict[str, type[HTTPConnectionPool]]:
    """``pool_classes_by_scheme`` of a pool manager, all of whose hosts are at ``addresses``, tried in their order."""

    class Plain(HTTPConnection):
        def _new_conn(self) -> socket.socket:
            return _connect(self, super()._new_conn, addresses)

    class Secure(HTTPSConnection):
        def _new_conn(self) -> socket.socket:
            return _connect(self, super()._new_conn, addresses)

    class PlainPool(HTTPConnectionPool):
        ConnectionCls = Plain

    class SecurePool(HTTPSConnectionPool):
        ConnectionCls = Secure

    return {"http": PlainPool, "https": SecurePool}


def _connect(
    connection: HTTPConnection, connect: Callable[[], socket.socket], addresses: Sequence[str]
) -> socket.socket:
    """A socket to the first address that takes it. Nothing was sent to those that did not."""
    name = connection._dns_host
    try:
        for last, address in zip([False] * (len(addresses) - 1) + [True], addresses, strict=True):
            connection._dns_host = address
            try:
                return connect()
            except (ConnectTimeoutError, NewConnectionError):
                if last:
                    raise
    finally:
        connection._dns_host = name
    raise AssertionError("there is always a last address")
