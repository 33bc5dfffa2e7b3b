"""The way to an instance: a TCP connection to its pod inside its cluster, else a port-forward that looks like one."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import AsyncExitStack
from uuid import UUID

from apps.clusters.models import Cluster
from apps.core.control import in_thread
from apps.instances import podways
from apps.instances.gateway import sockets
from apps.instances.gateway.places import Launch
from apps.instances.gateway.upstreams import Upstream
from kubekit.errors import KubeError
from kubekit.tunnel import Tunnel

log = logging.getLogger(__name__)
#: What may wait to be sent into a tunnel before its sender is held back, and how little lets it go on.
HIGH, LOW = 256 << 10, 64 << 10


class Ways:
    """Connects, and remembers where pods are."""

    def __init__(self) -> None:
        self.clusters: dict[UUID, tuple[Cluster, bool]] = {}
        self._pools = podways.Pools()
        self._addresses: dict[UUID, tuple[Launch, str]] = {}
        self._around: dict[UUID, float] = {}

    def forget(self, instance_id: UUID) -> None:
        """The launch is over."""
        self._addresses.pop(instance_id, None)

    async def close(self) -> None:
        """Close every pool."""
        await self._pools.close()

    async def to(self, upstream: Upstream) -> None:
        """Connect it to its port of its pod. Raises ``KubeError`` or ``OSError``."""
        launch = upstream.door.place.launch
        cluster, inside = self.clusters[launch.cluster_id]
        if inside and time.monotonic() > self._around.get(cluster.pk, 0.0):
            try:
                await self._direct(upstream, cluster, launch)
            except ConnectionRefusedError:
                # Nothing listens, or a network policy refuses in the pod's place: the API server's way tells which.
                self.forget(launch.instance_id)
            except (OSError, TimeoutError) as error:
                self.forget(launch.instance_id)
                self._around[cluster.pk] = time.monotonic() + podways.AROUND_S
                log.info("%s is not reached at its address (%s); through the API server", launch.pod, error)
            else:
                return
        streams = await self._pools.of(cluster)
        async with AsyncExitStack() as stack:
            forwarded = streams.port_forward(launch.namespace, launch.pod, upstream.door.port)
            tunnel = await stack.enter_async_context(forwarded)
            Tunnelled(tunnel, stack.pop_all(), upstream)

    async def _direct(self, upstream: Upstream, cluster: Cluster, launch: Launch) -> None:
        known = self._addresses.get(launch.instance_id)
        if known is None or (known[0].number, known[0].pod_uid) != (launch.number, launch.pod_uid):
            address = await in_thread(podways.address, cluster, launch.namespace, launch.pod, launch.number)
            known = self._addresses[launch.instance_id] = (launch, address)
        async with asyncio.timeout(podways.DIAL_S):
            made, _ = await asyncio.get_running_loop().create_connection(lambda: upstream, known[1], upstream.door.port)
        sockets.keep_alive(made.get_extra_info("socket"))


class Tunnelled(asyncio.Transport):
    """A port-forward in the form of a TCP connection, with the same back-pressure."""

    def __init__(self, tunnel: Tunnel, held: AsyncExitStack, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._tunnel, self._held, self._protocol = tunnel, held, protocol
        self._out = bytearray()
        self._wake, self._reads = asyncio.Event(), asyncio.Event()
        self._reads.set()
        self._closing = self._full = False
        self._task = asyncio.get_running_loop().create_task(self._run())
        protocol.connection_made(self)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send it, as soon as the tunnel takes it."""
        if self._closing:
            return
        self._out += data
        self._wake.set()
        if len(self._out) > HIGH and not self._full:
            self._full = True
            self._protocol.pause_writing()

    def is_closing(self) -> bool:
        """Whether it takes no more."""
        return self._closing

    def pause_reading(self) -> None:
        """Let what comes wait on the other side."""
        self._reads.clear()

    def resume_reading(self) -> None:
        """Read on."""
        self._reads.set()

    def close(self) -> None:
        """End it once everything was sent."""
        self._closing = True
        self._wake.set()

    def abort(self) -> None:
        """End it now."""
        self._closing = True
        self._out.clear()
        self._task.cancel()

    async def _run(self) -> None:
        error: Exception | None = None
        reader = asyncio.ensure_future(self._read())
        writer = asyncio.ensure_future(self._write())
        try:
            done, _ = await asyncio.wait({reader, writer}, return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                error = error or one.exception()  # type: ignore[assignment]
        except asyncio.CancelledError:
            pass  # aborted
        finally:
            self._closing = True
            reader.cancel()
            writer.cancel()
            await asyncio.gather(reader, writer, return_exceptions=True)
            await self._held.aclose()
            if error is not None and not isinstance(error, (KubeError, OSError)):
                log.error("a port-forward broke off", exc_info=error)
            self._protocol.connection_lost(error)

    async def _read(self) -> None:
        while data := await self._tunnel.read():
            await self._reads.wait()
            self._protocol.data_received(data)

    async def _write(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._out:
                data = bytes(self._out)
                self._out.clear()
                await self._tunnel.write(data)
            if self._full:
                self._full = False
                self._protocol.resume_writing()
            if self._closing:
                return
