"""A unix socket for each host of the Ingress objects: Caddy finds it by the name of the host that is asked for.

So a host comes and goes without a change of Caddy's configuration, and that matters: when its configuration changes,
Caddy closes every idle connection and drops requests that reach it at that moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from localkube.node.services import Services

log = logging.getLogger(__name__)

_HEAD_S: Final = 5.0
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,98}[a-z0-9])?")
"""Caddy dials the name relative to its own folder, and a socket's path has 107 bytes at most."""
_UNAVAILABLE: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\nRetry-After: 2\r\n"
    b"Connection: close\r\nContent-Length: 37\r\n\r\nNothing is ready to answer here yet.\n"
)


def fits(host: str) -> bool:
    """Whether this host can have a socket of its name."""
    return _NAME.fullmatch(host) is not None


@dataclass(frozen=True)
class Backend:
    """A port of a service."""

    namespace: str
    service: str
    port: int | str


class Hosts:
    """The sockets in `folder`, one for each host."""

    def __init__(self, folder: Path, services: Services) -> None:
        self._folder, self._services = folder, services
        self._backends: dict[str, Backend] = {}
        self._servers: dict[str, asyncio.Server] = {}
        self._connections: dict[str, set[asyncio.Task[None]]] = {}

    async def sync(self, wanted: Mapping[str, Backend]) -> None:
        """Listen for these hosts and no others. Connections of a host that goes, or leads elsewhere, are cut."""
        for host in [host for host, backend in self._backends.items() if wanted.get(host) != backend]:
            self._close(host)
        if not self._folder.is_dir():
            self._folder.mkdir(parents=True, mode=0o700)
        for left in self._folder.iterdir():
            if left.name not in wanted and left.name not in self._servers:
                left.unlink()  # of a localkube that was killed
        for host in wanted.keys() - self._servers.keys():
            self._backends[host] = wanted[host]
            self._servers[host] = await self._listen(host)

    def close(self) -> None:
        """Close every socket and every connection."""
        for host in list(self._servers):
            self._close(host)

    def _close(self, host: str) -> None:
        (self._folder / host).unlink(missing_ok=True)
        del self._backends[host]
        self._servers.pop(host).close()
        for task in self._connections.pop(host, set()):
            task.cancel()

    async def _listen(self, host: str) -> asyncio.Server:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            (self._folder / host).unlink(missing_ok=True)
            # By descriptor, because the path of the folder may be too long for a socket's.
            listener.bind(f"/proc/self/fd/{folder}/{host}")
            (self._folder / host).chmod(0o600)
        finally:
            os.close(folder)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            # A task of its own: asyncio complains of a handler that was cancelled.
            work = asyncio.create_task(self._serve(host, reader, writer))
            kept = self._connections.setdefault(host, set())
            kept.add(work)
            work.add_done_callback(kept.discard)
            try:
                await asyncio.wait({work})
            finally:
                writer.close()

        return await asyncio.start_unix_server(serve, sock=listener, backlog=256)

    async def _serve(self, host: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        backend = self._backends[host]
        client = (reader, writer)
        if await self._services.serve(backend.namespace, backend.service, backend.port, client):
            return
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(_HEAD_S):
                await reader.readuntil(b"\r\n\r\n")
                writer.write(_UNAVAILABLE)
                await writer.drain()
