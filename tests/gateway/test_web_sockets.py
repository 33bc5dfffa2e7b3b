"""Web sockets through the gateway: bytes both ways, for as long as they last, and not a moment longer."""

from __future__ import annotations

import asyncio
import uuid

import pytest
import websockets
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve

from tests.gateway.front import HOST, Client, Heard, launch, standing, until

HANDSHAKE = (
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
)


async def _echo(connection: ServerConnection) -> None:
    async for message in connection:
        await connection.send(message)


async def test_messages_of_every_size_come_back_and_a_close_is_a_close() -> None:
    async with serve(_echo, "127.0.0.1", 0, max_size=None) as server, standing(Heard(b"")) as (gate, port):
        gate.port = next(iter(server.sockets)).getsockname()[1]
        async with connect(f"ws://{HOST}/x", host="127.0.0.1", port=port, max_size=None) as socket:
            for size in (0, 1, 125, 126, 65_536, 3 << 20):
                await socket.send(b"z" * size)
                assert len(await socket.recv()) == size
            assert len(next(iter(gate.places)).busy) == 1
        await until(lambda: not gate.visitors and not next(iter(gate.places)).busy)


async def test_what_is_sent_right_after_the_handshake_arrives() -> None:
    async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"Connection: Upgrade\r\nUpgrade: websocket\r\n" in head
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nfirst")
        writer.write(await reader.readexactly(5))
        writer.close()

    async with standing(server) as (gate, port), Client(port) as client:
        gate.slow = asyncio.Event()
        head = "\r\n".join(["GET /x HTTP/1.1", f"Host: {HOST}", *HANDSHAKE])
        client.writer.write(head.encode() + b"\r\n\r\n" + b"ea")
        await client.writer.drain()
        client.writer.write(b"rly")
        gate.slow.set()
        assert (await client.answer())[0] == 101
        assert await client.reader.read() == b"firstearly"


async def test_a_refused_handshake_is_an_ordinary_answer() -> None:
    heard = Heard(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")
    async with standing(heard) as (_gate, port), Client(port) as client:
        status, _head, body = await client.ask(*HANDSHAKE)
        assert (status, body) == (403, b"no")
        assert await client.closed()


@pytest.mark.parametrize("change", [{"state": "stopping"}, {"number": 2}, {"pod_uid": "another"}])
async def test_a_stop_and_another_launch_end_it_at_once_and_silence_of_the_cluster_does_not(
    change: dict[str, object],
) -> None:
    async with serve(_echo, "127.0.0.1", 0) as server, standing(Heard(b"")) as (gate, port):
        gate.port = next(iter(server.sockets)).getsockname()[1]
        async with connect(f"ws://{HOST}/x", host="127.0.0.1", port=port) as socket:
            gate.places.put(launch(state="unreachable"))
            gate.places.put(launch())
            await socket.send("still here")
            assert await socket.recv() == "still here"
            gate.places.put(launch(**change))
            with pytest.raises(websockets.ConnectionClosed):
                await asyncio.wait_for(socket.recv(), 60)


async def test_a_slow_reader_holds_back_the_sender_and_not_the_process() -> None:
    sent = 0

    async def pours(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
        for _ in range(64):
            writer.write(b"y" * (1 << 20))
            await writer.drain()
            sent += 1
        writer.close()

    async with standing(pours) as (_gate, port), Client(port) as client:
        assert (await client.ask(*HANDSHAKE))[0] == 101
        before = -1
        while sent != before:  # until it stands still
            before = sent
            await asyncio.sleep(0.5)
        assert sent < 40, "in the buffers of four sockets, not in memory"
        assert len(await client.reader.readexactly(64 << 20)) == 64 << 20
        assert await client.closed()


async def test_f43_a_hundred_launches_that_come_and_go_cut_none_of_200_open_web_sockets() -> None:
    async with serve(_echo, "127.0.0.1", 0) as server, standing(Heard(b"")) as (gate, port):
        gate.port = next(iter(server.sockets)).getsockname()[1]
        sockets = [await connect(f"ws://{HOST}/x", host="127.0.0.1", port=port) for _ in range(200)]
        for number in range(100):
            other = uuid.uuid4()
            gate.places.put(launch(other, state="starting"))
            gate.places.put(launch(other))
            gate.places.open_ports({other: {8080: {"owner": float("inf")}}}, 0.0)
            if number % 2:
                gate.places.put(launch(other, state="stopping"))
                gate.places.forget(other)
        gate.places.replace(one.launch for one in gate.places)
        for socket in sockets:
            await socket.send("still here")
        assert [await asyncio.wait_for(socket.recv(), 90) for socket in sockets] == ["still here"] * 200
        for socket in sockets:
            await socket.close()
