"""The gateway itself, in a thread of the test: with its table, its ways and a port."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from apps.instances.gateway import serving


@contextmanager
def running() -> Iterator[int]:
    """Serve for the length of a block; the port on loopback."""
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listener:
        port: int = listener.getsockname()[1]
        begun = threading.Event()
        held: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

        async def run() -> None:
            stop = asyncio.Event()
            held.append((asyncio.get_running_loop(), stop))
            begun.set()
            await serving.serve(listener.dup(), stop, stays=False)

        thread = threading.Thread(target=lambda: asyncio.run(run()))
        thread.start()
        begun.wait()
        loop, stop = held[0]
        try:
            yield port
        finally:
            loop.call_soon_threadsafe(stop.set)
            thread.join(60)
