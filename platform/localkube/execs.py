"""exec over WebSocket: the subprotocols v4 and v5 of `channel.k8s.io`."""

from __future__ import annotations

import asyncio
import json
from typing import Final

from aiohttp import WSMsgType, web

from localkube import requests, status
from localkube.runtime import ERROR, RESIZE, STDERR, STDIN, STDOUT, ExecSession, NodeRuntime
from localkube.status import ApiError, Object

_PROTOCOLS: Final = ("v5.channel.k8s.io", "v4.channel.k8s.io", "channel.k8s.io")
_CLOSE: Final = 255
"""In v5, channel 255 carries the number of the channel that the client closes."""


def require_websocket(request: web.BaseRequest, what: str) -> None:
    """Refuse the older SPDY upgrade and plain requests. Raises ApiError 400 or 501."""
    upgrade = request.headers.get("Upgrade", "").lower()
    if upgrade.startswith("spdy"):
        raise status.not_implemented(
            f"{what} over SPDY (use a client that speaks WebSocket, such as kubectl 1.31 or later)"
        )
    if upgrade != "websocket":
        raise status.bad_request("Upgrade request required")


def _outcome(exit_code: int | None) -> Object:
    if exit_code == 0:
        return {"metadata": {}, "status": "Success"}
    if exit_code is None:
        text = "error executing command in container: the command ended without an exit code"
        return {"metadata": {}, "status": "Failure", "message": text, "reason": "InternalError", "code": 500}
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit status {exit_code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(exit_code)}]},
    }


async def serve(runtime: NodeRuntime, pod: Object, request: web.BaseRequest) -> web.StreamResponse:
    """Relay one session. Raises ApiError before the upgrade for what cannot start."""
    container = container_of(pod, request.query.get("container"))
    command = request.query.getall("command", [])
    tty, stdin = requests.flag(request, "tty"), requests.flag(request, "stdin")
    wanted = {channel for channel, name in ((STDOUT, "stdout"), (STDERR, "stderr")) if requests.flag(request, name)}
    if not command:
        raise status.bad_request("you must specify at least 1 command for the container")
    if not wanted and not stdin:
        raise status.bad_request("you must specify at least one of stdin, stdout, stderr")
    require_websocket(request, "exec")
    session = await runtime.exec(pod, container, command, tty=tty, stdin=stdin)
    socket = web.WebSocketResponse(protocols=_PROTOCOLS, max_msg_size=0, compress=False, timeout=1.0)
    try:
        await socket.prepare(request)
        listener = asyncio.create_task(_from_client(socket, session, takes_input=stdin))
        try:
            await _to_client(socket, session, wanted)
        finally:
            listener.cancel()
            await asyncio.gather(listener, return_exceptions=True)
    except ConnectionResetError:
        return socket
    finally:
        await session.close()
    await socket.close()
    return socket


async def _to_client(socket: web.WebSocketResponse, session: ExecSession, wanted: set[int]) -> None:
    while (piece := await session.read()) is not None:
        channel, data = piece
        if channel in wanted:
            await socket.send_bytes(bytes((channel,)) + data)
    outcome = json.dumps(_outcome(session.exit_code), separators=(",", ":")).encode()
    await socket.send_bytes(bytes((ERROR,)) + outcome)


async def _from_client(socket: web.WebSocketResponse, session: ExecSession, *, takes_input: bool) -> None:
    """Pass input and sizes on until the client goes; then end the command."""
    async for message in socket:
        data = message.data if message.type == WSMsgType.BINARY else str(message.data).encode()
        if not data:
            continue
        channel, payload = data[0], data[1:]
        if channel == STDIN and takes_input and payload:
            await session.write(payload)
        elif channel == _CLOSE and payload[:1] == bytes((STDIN,)) and takes_input:
            await session.write(b"")
        elif channel == RESIZE:
            try:
                size = json.loads(payload)
                await session.resize(int(size["Width"]), int(size["Height"]))
            except (ValueError, KeyError, TypeError):
                continue
    await session.close()


def container_of(pod: Object, wanted: str | None) -> str:
    """The container a request means. Raises ApiError 400 when it names none of the pod's, or must choose one."""
    name = pod["metadata"]["name"]
    main = [container["name"] for container in pod["spec"]["containers"]]
    if wanted:
        if wanted not in main:
            raise status.bad_request(f"container {wanted} is not valid for pod {name}")
        return wanted
    annotated = (pod["metadata"].get("annotations") or {}).get("kubectl.kubernetes.io/default-container")
    if annotated in main:
        return str(annotated)
    if len(main) > 1:
        raise ApiError(400, f"a container name must be specified for pod {name}, choose one of: [{' '.join(main)}]")
    return str(main[0])
