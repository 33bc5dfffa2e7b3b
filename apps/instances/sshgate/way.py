"""The way to an instance's sshd: straight to the pod's address inside its cluster, else through the API server."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import AsyncExitStack
from typing import Protocol
from uuid import UUID

from apps.core.control import in_thread
from apps.instances import podways
from apps.instances.sshgate.doors import Door
from kubekit.build.instance import SSH_PORT
from kubekit.errors import KubeError, NotFound
from kubekit.tunnel import Tunnel

log = logging.getLogger(__name__)
PIECE = 64 << 10


class Conduit(Protocol):
    """Bytes to an instance and back."""

    async def read(self) -> bytes:
        """The next bytes, b"" at the end. Raises ``KubeError`` or ``OSError``."""

    async def write(self, data: bytes) -> None:
        """Send, and wait while the other side takes no more. Raises ``KubeError`` or ``OSError``."""

    async def close(self) -> None:
        """Let go."""


class Direct:
    """A TCP connection to the pod."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def read(self) -> bytes:
        return await self._reader.read(PIECE)

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def close(self) -> None:
        self._writer.close()


class Forwarded:
    """A port-forward, with what has to be closed after it. The first bytes were read already: sshd speaks first."""

    def __init__(self, tunnel: Tunnel, first: bytes, held: AsyncExitStack) -> None:
        self._tunnel, self._first, self._held = tunnel, first, held

    async def read(self) -> bytes:
        if self._first:
            first, self._first = self._first, b""
            return first
        return await self._tunnel.read()

    async def write(self, data: bytes) -> None:
        await self._tunnel.write(data)

    async def close(self) -> None:
        await self._held.aclose()


class Ways:
    """Opens conduits, with one connection pool for each cluster."""

    def __init__(self) -> None:
        self._pools = podways.Pools()
        self._around: dict[UUID, float] = {}

    async def close(self) -> None:
        """Close every pool."""
        await self._pools.close()

    async def to(self, door: Door) -> Conduit:
        """A conduit to the instance's sshd. Raises ``KubeError``: ``NotFound`` when nothing listens there."""
        if not door.inside or time.monotonic() <= self._around.get(door.cluster.pk, 0.0):
            return await self._forwarded(door)
        try:
            return await self._direct(door)
        except (OSError, TimeoutError) as error:
            why = error
        # Some networks swallow what a policy forbids, others refuse it, as a pod does in which nothing listens. Only
        # where the API server gets through, the address was to blame.
        found = await self._forwarded(door)
        self._around[door.cluster.pk] = time.monotonic() + podways.AROUND_S
        log.info("%s is not reached at its address (%s); through the API server", door.pod, why)
        return found

    async def _direct(self, door: Door) -> Conduit:
        address = await in_thread(podways.address, door.cluster, door.namespace, door.pod, door.launch)
        async with asyncio.timeout(podways.DIAL_S):
            return Direct(*await asyncio.open_connection(address, SSH_PORT, limit=4 * PIECE))

    async def _forwarded(self, door: Door) -> Conduit:
        streams = await self._pools.of(door.cluster)
        async with AsyncExitStack() as stack:
            tunnel = await stack.enter_async_context(streams.port_forward(door.namespace, door.pod, SSH_PORT))
            async with asyncio.timeout(30):
                first = await tunnel.read()
            if not first:
                raise NotFound("nothing listens on this port of the pod")
            return Forwarded(tunnel, first, stack.pop_all())


def why_not(error: Exception) -> str:
    """What to say to the person whom this error stood in the way of. In English: it goes into a terminal."""
    if isinstance(error, NotFound):
        return "SSH is not running in this instance; its page and its log say why. Restart it if it is an old one."
    if isinstance(error, KubeError):
        return f"the cluster does not let us through to the instance now ({error.message[:200]}). Try again."
    return "the instance does not answer now. Try again."
