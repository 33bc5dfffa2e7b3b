"""Open ports: private to the owner and to those whom it is shared with, for as long as that lasts (F40, F41, F45)."""

from __future__ import annotations

import time
from typing import Any

import pytest
import websockets
from django.core import signing
from django.core.cache import cache
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve

from apps.instances.gateway import people
from apps.instances.gateway.people import Pass
from tests.gateway.front import HOST, PK, Client, Gate, Heard, launch, standing

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
OWNER, GUEST, STRANGER = "owner", "guest", "stranger"
PORT_HOST = f"p8080--{HOST}"
FOREVER = float("inf")


@pytest.fixture(autouse=True)
def _no_tickets_used() -> None:
    cache.clear()


def opened(gate: Gate, **guests: float) -> None:
    """Port 8080, for the owner and a guest until then."""
    until = {OWNER: FOREVER, **({GUEST: guests["until"]} if guests else {})}
    gate.places.open_ports({PK: {8080: until}}, time.time())


def form(person: str, *, nonce: str = "n", **other: Any) -> bytes:
    known = {"instance": PK.hex, "launch": 1, "port": 8080, "person": person}
    return b"ticket=" + people.ticket(Pass(**{**known, **other}), nonce).encode()


async def enter(port: int, body: bytes, *, host: str = PORT_HOST, origin: str = "https://portal.example.org") -> Any:
    """As the portal's page does it; status and cookie."""
    async with Client(port) as client:
        lines = (f"Content-Length: {len(body)}", "Content-Type: application/x-www-form-urlencoded", f"Origin: {origin}")
        status, head, _ = await client.ask(*lines, "Sec-Fetch-Site: cross-site", method="POST", path="/portal/enter",
                                           host=host, body=body)  # fmt: skip
    cookie = head.split("Set-Cookie: ")[1].split(";")[0] if "Set-Cookie" in head else ""
    if cookie:
        assert "Path=/; Secure; HttpOnly; SameSite=Lax" in head and "Domain" not in head and "Location: /\r\n" in head
    return status, cookie


async def status(port: int, *lines: str, host: str = PORT_HOST, path: str = "/") -> int:
    async with Client(port) as client:
        return int((await client.ask(*lines, host=host, path=path))[0])


async def test_a_ticket_buys_a_cookie_of_that_host_and_the_program_sees_neither() -> None:
    heard = Heard(OK)
    async with standing(heard) as (gate, port):
        opened(gate)
        assert await status(port) == 403
        code, cookie = await enter(port, form(OWNER))
        assert code == 303
        assert await status(port, f"Cookie: own=1; {cookie}") == 200
        assert await status(port, f"Cookie: {cookie}") == 200
    assert len(heard.heads) == 2 and "Cookie: own=1\r\n" in heard.heads[0] and "Cookie" not in heard.heads[1]
    assert "mlportal-port" not in "".join(heard.heads)


async def test_a_ticket_is_good_once_and_for_a_minute() -> None:
    async with standing(Heard(OK)) as (gate, port):
        opened(gate)
        body = form(OWNER)
        assert (await enter(port, body))[0] == 303
        assert (await enter(port, body)) == (403, "")
        with pytest.MonkeyPatch.context() as patch:
            late = time.time() + people.TICKET_S + 2
            again = form(OWNER, nonce="another")
            patch.setattr(signing.time, "time", lambda: late)
            assert (await enter(port, again)) == (403, "")


@pytest.mark.parametrize(
    "body",
    [b"", b"ticket=", b"ticket=abc", b"ticket=a:b:c", b"x" * 9000, b"ticket=\xff", b"ticket=W10:1:x"],
)
async def test_what_is_no_ticket_buys_nothing(body: bytes) -> None:
    async with standing(Heard(OK)) as (gate, port):
        opened(gate)
        try:
            assert (await enter(port, body)) == (403, "")
        except (EOFError, ConnectionError):
            assert len(body) > people.MAX_FORM


@pytest.mark.parametrize("other", [{"instance": "0" * 32}, {"launch": 2}, {"port": 8081}, {"person": STRANGER}])
async def test_a_ticket_for_another_port_launch_or_person_buys_nothing(other: dict[str, Any]) -> None:
    async with standing(Heard(OK)) as (gate, port):
        opened(gate)
        person = other.pop("person", OWNER)
        assert (await enter(port, form(person, **other))) == (403, "")


async def test_a_cookie_counts_at_its_own_port_of_its_own_launch_alone() -> None:
    async with standing(Heard(OK)) as (gate, port):
        gate.places.open_ports({PK: {8080: {OWNER: FOREVER}, 9090: {OWNER: FOREVER}}}, time.time())
        _, cookie = await enter(port, form(OWNER))
        assert await status(port, f"Cookie: {cookie}") == 200
        assert await status(port, f"Cookie: {cookie}", host=f"p9090--{HOST}") == 403
        assert await status(port, f"Cookie: {cookie}x") == 403
        gate.places.put(launch(number=2))
        opened(gate)
        assert await status(port, f"Cookie: {cookie}") == 403


async def test_a_port_that_nobody_opened_is_not_there() -> None:
    async with standing(Heard(OK)) as (gate, port):
        assert await status(port) == 404
        opened(gate)
        assert await status(port, host=f"p8888--{HOST}") == 404
        assert await status(port) == 403


async def test_f45_a_share_that_ends_ends_what_is_open() -> None:
    async def echo(connection: ServerConnection) -> None:
        async for message in connection:
            await connection.send(message)

    async with serve(echo, "127.0.0.1", 0) as server, standing(Heard(b"")) as (gate, port):
        gate.port = next(iter(server.sockets)).getsockname()[1]
        opened(gate, until=time.time() + 3600)
        sockets = []
        for person in (OWNER, GUEST):
            _, cookie = await enter(port, form(person, nonce=person))
            sockets.append(
                await connect(f"ws://{PORT_HOST}/", host="127.0.0.1", port=port, additional_headers={"Cookie": cookie})
            )
        for socket in sockets:
            await socket.send("in")
            assert await socket.recv() == "in"
        opened(gate, until=time.time() - 1)  # as each second finds it, and as a share that is taken back
        with pytest.raises(websockets.ConnectionClosed):
            await sockets[1].recv()
        await sockets[0].send("still in")
        assert await sockets[0].recv() == "still in"
        opened(gate)
        assert await status(port, f"Cookie: {cookie}") == 403
        await sockets[0].close()


@pytest.mark.parametrize(
    "origin",
    [
        "null", "https://evil.net", f"https://{HOST}", f"https://p8081--{HOST}", f"https://x.{PORT_HOST}", "https://portal.example.org",
        f"https://{PORT_HOST}.evil.net", f"https://{PORT_HOST}:8443", f"ftp://{PORT_HOST}", f"https://{PORT_HOST}/", "",
    ],
)  # fmt: skip
async def test_f41_a_page_of_another_origin_cannot_use_the_cookie(origin: str) -> None:
    heard = Heard(OK)
    async with standing(heard) as (gate, port):
        opened(gate)
        _, cookie = await enter(port, form(OWNER))
        assert await status(port, f"Cookie: {cookie}", f"Origin: {origin}") == 403
        assert await status(port, f"Cookie: {cookie}", f"Origin: https://{PORT_HOST}") == 200
    assert len(heard.heads) == 1


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (("Sec-Fetch-Site: same-origin",), 200),
        (("Sec-Fetch-Site: none",), 200),
        (("Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"), 200),
        (("Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: iframe"), 403),
        (("Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: no-cors", "Sec-Fetch-Dest: image"), 403),
        (("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: websocket"), 403),
    ],
)
async def test_a_link_may_be_followed_and_nothing_may_be_embedded(fields: tuple[str, ...], expected: int) -> None:
    async with standing(Heard(OK)) as (gate, port):
        opened(gate)
        _, cookie = await enter(port, form(OWNER))
        assert await status(port, f"Cookie: {cookie}", *fields) == expected


async def test_the_instances_own_entrance_is_the_instances() -> None:
    heard = Heard(OK)
    async with standing(heard) as (_gate, port), Client(port) as client:
        assert (await client.ask("Content-Length: 1", method="POST", path="/portal/enter", body=b"x"))[0] == 200
    assert heard.bodies == [b"x"]
