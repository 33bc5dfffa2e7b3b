"""port-forward over WebSocket, in both tongues: channel frames (v4.channel.k8s.io) and SPDY/3.1 tunnelled (kubectl)."""

from __future__ import annotations

import asyncio
import os
import struct
from dataclasses import dataclass
from typing import Final

from aiohttp import WSMsgType, web

from localkube import spdy, status
from localkube.execs import require_websocket
from localkube.runtime import NodeRuntime
from localkube.status import ApiError, Object

_TUNNEL: Final = "SPDY/3.1+portforward.k8s.io"
_CHANNELS: Final = ("v4.channel.k8s.io",)
_PIECE: Final = 256 * 1024
_CONNECTIONS: Final = 256


async def serve(runtime: NodeRuntime, pod: Object, request: web.BaseRequest) -> web.StreamResponse:
    """Relay connections to ports of a pod. Raises ApiError before the upgrade."""
    require_websocket(request, "port-forward")
    if pod.get("status", {}).get("phase") != "Running":
        phase = pod.get("status", {}).get("phase")
        raise status.bad_request(f"unable to forward port because pod is not running. Current status={phase}")
    offered = [name.strip() for name in request.headers.get("Sec-WebSocket-Protocol", "").split(",")]
    protocols = (_TUNNEL,) if _TUNNEL in offered else _CHANNELS
    port = 0 if protocols == (_TUNNEL,) else _port(request)
    socket = web.WebSocketResponse(protocols=protocols, max_msg_size=0, compress=False, timeout=1.0)
    await socket.prepare(request)
    relay = _Tunnel(runtime, pod, socket) if protocols == (_TUNNEL,) else _Channels(runtime, pod, socket, port)
    try:
        await relay.run()
    except ConnectionResetError:
        return socket
    await socket.close()
    return socket


def _port(request: web.BaseRequest) -> int:
    text = request.query.get("ports", "")
    if not text.isdigit() or not 0 < int(text) < 65536 or len(request.query.getall("ports")) > 1:
        raise status.bad_request("one port must be given: ports=N, 1 to 65535")
    return int(text)


def _failure(pod: Object, port: int, error: OSError | ApiError) -> bytes:
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    # asyncio's own text names the address but not the reason; the kubelet's ends with the system's words.
    number = error.errno if isinstance(error, OSError) else None
    reason = os.strerror(number).lower() if number else str(error)
    cause = f"dial tcp4 127.0.0.1:{port}: connect: {reason}"
    return f"error forwarding port {port} to pod {name}, uid {uid}: {cause}".encode()


class _Channels:
    """Two channels, data (0) and error (1); each begins with the port's number, little-endian.

    One connection and no half-close in this protocol: when the pod's side ends, so does the session.
    """

    def __init__(self, runtime: NodeRuntime, pod: Object, socket: web.WebSocketResponse, port: int) -> None:
        self._runtime, self._pod, self._socket, self._port = runtime, pod, socket, port

    async def run(self) -> None:
        for channel in (0, 1):
            await self._socket.send_bytes(bytes((channel,)) + struct.pack("<H", self._port))
        try:
            reader, writer = await self._runtime.dial(self._pod, self._port)
        except (OSError, ApiError) as error:
            await self._socket.send_bytes(b"\1" + _failure(self._pod, self._port, error))
            return
        tasks = [asyncio.create_task(self._from_pod(reader)), asyncio.create_task(self._from_client(writer))]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            writer.close()

    async def _from_pod(self, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(_PIECE):
            await self._socket.send_bytes(b"\0" + data)

    async def _from_client(self, writer: asyncio.StreamWriter) -> None:
        async for message in self._socket:
            if message.type == WSMsgType.BINARY and message.data[:1] == b"\0":
                writer.write(message.data[1:])
                await writer.drain()


@dataclass
class _Connection:
    """One forwarded connection: its pair of streams, and what the client sent before the pod answered."""

    port: int
    error_stream: int
    data_stream: int = 0
    inbox: asyncio.Queue[bytes] | None = None
    task: asyncio.Task[None] | None = None


class _Tunnel:
    """SPDY inside WebSocket messages: any number of connections, each with an error and a data stream."""

    def __init__(self, runtime: NodeRuntime, pod: Object, socket: web.WebSocketResponse) -> None:
        self._runtime = runtime
        self._pod = pod
        self._socket = socket
        self._session = spdy.Session()
        self._waiting: dict[str, _Connection] = {}
        self._by_data: dict[int, _Connection] = {}

    async def run(self) -> None:
        try:
            async for message in self._socket:
                if message.type != WSMsgType.BINARY:
                    continue
                for frame in self._session.feed(message.data):
                    if frame.kind == spdy.GOAWAY:
                        return
                    await self._on_frame(frame)
        except spdy.SpdyError:
            return
        finally:
            tasks = [c.task for c in self._by_data.values() if c.task]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _on_frame(self, frame: spdy.Frame) -> None:
        if frame.kind == spdy.SYN_STREAM:
            await self._open(frame)
        elif frame.kind == spdy.PING:
            await self._socket.send_bytes(spdy.ping_frame(frame.data))
        elif frame.kind is None and (connection := self._by_data.get(frame.stream)) and connection.inbox:
            if frame.data:
                await connection.inbox.put(frame.data)
            if frame.flags & spdy.FIN:
                await connection.inbox.put(b"")
        elif (
            frame.kind == spdy.RST_STREAM and (connection := self._by_data.pop(frame.stream, None)) and connection.task
        ):
            connection.task.cancel()

    async def _open(self, frame: spdy.Frame) -> None:
        headers = {name.lower(): value for name, value in frame.headers.items()}
        kind, request_id = headers.get("streamtype"), headers.get("requestid", headers.get("port", ""))
        port = headers.get("port", "")
        full = len(self._by_data) >= _CONNECTIONS or len(self._waiting) >= _CONNECTIONS
        if kind not in ("error", "data") or not port.isdigit() or not 0 < int(port) < 65536 or full:
            await self._socket.send_bytes(spdy.reset_frame(frame.stream, 3))
            return
        await self._socket.send_bytes(self._session.reply(frame.stream))
        if kind == "error":
            self._waiting[request_id] = _Connection(int(port), frame.stream)
            return
        connection = self._waiting.pop(request_id, None)
        if connection is None:
            await self._socket.send_bytes(spdy.reset_frame(frame.stream))
            return
        connection.data_stream, connection.inbox = frame.stream, asyncio.Queue(maxsize=64)
        self._by_data[frame.stream] = connection
        connection.task = asyncio.create_task(self._relay(connection, connection.inbox))

    async def _relay(self, connection: _Connection, inbox: asyncio.Queue[bytes]) -> None:
        try:
            reader, writer = await self._runtime.dial(self._pod, connection.port)
        except (OSError, ApiError) as error:
            failure = _failure(self._pod, connection.port, error)
            await self._socket.send_bytes(spdy.data_frame(connection.error_stream, failure, fin=True))
            await self._socket.send_bytes(spdy.data_frame(connection.data_stream, b"", fin=True))
            self._by_data.pop(connection.data_stream, None)
            return
        upward = asyncio.create_task(self._upward(inbox, writer))
        try:
            while data := await reader.read(_PIECE):
                await self._socket.send_bytes(spdy.data_frame(connection.data_stream, data))
            await self._socket.send_bytes(spdy.data_frame(connection.data_stream, b"", fin=True))
            await self._socket.send_bytes(spdy.data_frame(connection.error_stream, b"", fin=True))
        except ConnectionError:
            return
        finally:
            upward.cancel()
            writer.close()
            self._by_data.pop(connection.data_stream, None)

    async def _upward(self, inbox: asyncio.Queue[bytes], writer: asyncio.StreamWriter) -> None:
        while data := await inbox.get():
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
