"""The entrance as a process: serves until it is told to stop, or until nobody has been there for a while."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from pathlib import Path

import asyncssh

from apps.core.control import sleep
from apps.instances.sshgate import server

log = logging.getLogger(__name__)

#: A process that was started by a connection ends when there has been none for this long.
LEAVES_AFTER_S = 300.0


def run(listener: socket.socket, *, host_key: Path, stays: bool) -> None:
    """Serve on the listening socket. Raises OSError when the host key cannot be read."""
    key = asyncssh.import_private_key(host_key.read_text(encoding="ascii"))
    logging.getLogger("asyncssh").setLevel(logging.ERROR)
    asyncio.run(_serve(listener, key, stays=stays))


async def _serve(listener: socket.socket, key: asyncssh.SSHKey, *, stays: bool) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    gate = server.Gate()
    acceptor = await server.listen(gate, listener, key)
    watching = asyncio.create_task(gate.watch(stop))
    while not await sleep(stop, 1.0 if not stays else 60.0):
        if not stays and gate.quiet_s > LEAVES_AFTER_S:
            stop.set()
    acceptor.close()
    await gate.close()
    await watching
