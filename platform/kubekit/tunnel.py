"""The two ends of a ``v4.channel.k8s.io`` WebSocket: a command's streams, and a tunnel to a port of a pod."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp

from kubekit.errors import KubeError, NotFound, Unreachable, error_from_status

_STDIN, _STDOUT, _STDERR, _ERROR, _RESIZE = range(5)
_BINARY = aiohttp.WSMsgType.BINARY
_TEXT = aiohttp.WSMsgType.TEXT
_PIECE = 32 << 10


async def _frame(socket: aiohttp.ClientWebSocketResponse) -> tuple[int, bytes] | None:
    """The next (channel, data), or None at the end. Raises `Unreachable` when the connection broke."""
    while True:
        message = await socket.receive()
        if message.type is _BINARY or message.type is _TEXT:
            data = message.data.encode() if message.type is _TEXT else message.data
            if data:
                return data[0], data[1:]
            continue
        if message.type is aiohttp.WSMsgType.ERROR:
            raise Unreachable(f"the stream broke off: {socket.exception()}", maybe_done=True)
        return None


class ExecSession:
    """A running command. Read `output` (or call `finish`), write to its standard input, then ask for `exit_code`."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._exit_code: int | None = None

    async def write(self, data: bytes) -> None:
        """Send bytes to the command's standard input."""
        for start in range(0, len(data), _PIECE):
            await self._socket.send_bytes(bytes((_STDIN,)) + data[start : start + _PIECE])

    async def resize(self, *, columns: int, rows: int) -> None:
        """Tell a terminal (``tty=True``) its size in characters."""
        await self._socket.send_bytes(bytes((_RESIZE,)) + json.dumps({"Width": columns, "Height": rows}).encode())

    async def output(self) -> AsyncIterator[tuple[str, bytes]]:
        """Pieces of ("stdout" | "stderr", bytes) until the command ends."""
        while (frame := await _frame(self._socket)) is not None:
            channel, data = frame
            if channel == _ERROR:
                self._exit_code = _exit_code(json.loads(data))
            elif data and channel in (_STDOUT, _STDERR):
                yield ("stdout" if channel == _STDOUT else "stderr"), data

    @property
    def exit_code(self) -> int | None:
        """The command's exit code, None while it runs or when the connection ended first."""
        return self._exit_code

    async def finish(self, *, limit_bytes: int = 1 << 20) -> tuple[int, bytes, bytes]:
        """Read to the end: (exit code, stdout, stderr), each cut at ``limit_bytes``."""
        kept = {"stdout": bytearray(), "stderr": bytearray()}
        async for name, data in self.output():
            kept[name] += data[: max(0, limit_bytes - len(kept[name]))]
        if self._exit_code is None:
            raise Unreachable("the stream ended before the command's exit code came", maybe_done=True)
        return self._exit_code, bytes(kept["stdout"]), bytes(kept["stderr"])


def _exit_code(status: dict[str, Any]) -> int:
    """The exit code in the Status of channel 3; raises the `KubeError` when the command could not be run at all."""
    if status.get("status") == "Success":
        return 0
    for cause in (status.get("details") or {}).get("causes") or ():
        if cause.get("reason") == "ExitCode":
            return int(cause["message"])
    raise error_from_status(status, http_status=500, method="POST")


class Tunnel:
    """One TCP connection into a pod: `read` until b"" , `write`, and at last leave the context."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._announced: set[int] = set()

    async def read(self) -> bytes:
        """The next bytes from the pod, b"" at the end. Raises `KubeError` when the pod does not listen there."""
        while (frame := await _frame(self._socket)) is not None:
            channel, data = frame
            if channel not in self._announced:
                # The first frame of each channel only repeats the port number (two bytes, little endian).
                self._announced.add(channel)
                data = data[2:]
            if not data:
                continue
            if channel == 1:
                raise self._refusal(data.decode("utf-8", "replace"))
            return data
        return b""

    async def write(self, data: bytes) -> None:
        """Send bytes to the pod."""
        try:
            for start in range(0, len(data), _PIECE):
                await self._socket.send_bytes(b"\0" + data[start : start + _PIECE])
        except (ConnectionError, aiohttp.ClientError) as error:
            raise Unreachable(f"the tunnel broke off: {error}", maybe_done=True) from error

    @staticmethod
    def _refusal(text: str) -> KubeError:
        if "connection refused" in text:
            return NotFound(f"nothing listens on this port of the pod: {text}")
        return Unreachable(f"the tunnel was refused: {text}")
