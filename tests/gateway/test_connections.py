"""Requests and answers as they go through the gateway, over real sockets: none is understood in two ways."""

from __future__ import annotations

import asyncio

import pytest

from apps.instances.gateway import visitors
from tests.gateway.front import HOST, PK, Client, Heard, launch, standing, until

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


async def test_a_request_goes_through_with_its_body_and_its_answer_comes_back() -> None:
    fields = b"X-Own: 1\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n"
    heard = Heard(b"HTTP/1.1 201 Made\r\n" + fields + b"Content-Length: 4\r\n\r\nmade")
    async with standing(heard) as (_gate, port), Client(port) as client:
        status, head, body = await client.ask(
            "X-Asked: yes", "Content-Length: 5", method="PUT", path="/api/contents/a%20b?c=d", body=b"12345"
        )
    assert (status, body) == (201, b"made")
    assert head.startswith("HTTP/1.1 201 Made\r\n") and "X-Own: 1" in head and head.count("Set-Cookie:") == 2
    assert heard.heads[0].startswith(f"PUT /api/contents/a%20b?c=d HTTP/1.1\r\nHost: {HOST}\r\nX-Asked: yes\r\n")
    assert heard.bodies == [b"12345"]


async def test_connections_are_kept_and_shared_by_requests_one_after_the_other() -> None:
    heard = Heard(OK)
    async with standing(heard) as (gate, port):
        for _ in range(2):
            async with Client(port) as client:
                for _ in range(3):
                    assert (await client.ask())[0] == 200
        assert heard.connections == gate.dials == 1


async def test_a_body_in_pieces_goes_through_in_pieces_both_ways() -> None:
    pieces = b"3\r\nabc\r\n2\r\nde\r\n0\r\nTrailer: x\r\n\r\n"
    heard = Heard(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + pieces)
    async with standing(heard) as (_gate, port), Client(port) as client:
        for _ in range(2):
            said = b"4\r\nwxyz\r\n0\r\n\r\n"
            status, head, body = await client.ask("Transfer-Encoding: chunked", method="POST", body=said)
            assert (status, body) == (200, b"abcde")
            assert "Trailer" not in head and "content-length" not in head.lower()
    assert heard.bodies == [b"wxyz", b"wxyz"]


async def test_answers_without_a_body_and_answers_that_end_with_the_connection() -> None:
    heard = Heard(
        b"HTTP/1.1 200 OK\r\nContent-Length: 70\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end",
        OK,
    )
    async with standing(heard) as (_gate, port), Client(port) as client:
        status, head, _ = await client.ask(method="HEAD")
        assert status == 200 and "Content-Length: 70" in head
        assert (await client.ask())[0] == 204
        assert (await client.ask())[0] == 304
        assert (await client.ask())[2] == b"until the end"
        assert (await client.ask())[2] == b"ok", "the person's connection goes on"


async def test_requests_sent_without_waiting_are_answered_in_their_order() -> None:
    answers = [b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n%d" % n for n in range(6)]
    heard = Heard(*answers)
    async with standing(heard) as (_gate, port), Client(port) as client:
        client.writer.write(f"GET /a HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode() * 3)
        await client.writer.drain()
        got = [(await client.answer())[2] for _ in range(3)]
        client.writer.write(f"GET /a HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode() * 3)
        got += [(await client.answer())[2] for _ in range(3)]
    assert got == [b"0", b"1", b"2", b"3", b"4", b"5"]


async def test_f39_what_proxies_say_of_a_person_is_not_taken_from_whoever_sends_it() -> None:
    forged = (
        "X-Forwarded-User: root",
        "X-Forwarded-Proto: gopher",
        "X-Forwarded-Host: evil",
        "Forwarded: for=1.1.1.1",
        "kubeflow-userid: root",
        "X-Remote-User: root",
        "Remote_User: root",
        "X-Auth-Request-Email: r@x",
        "X-Real-IP: 1",
        "X-Goog-Authenticated-User-Email: r",
        "x-ms-client-principal: r",
        "Proxy: http://evil",
        "Proxy-Authorization: b",
    )
    heard = Heard(OK)
    async with standing(heard) as (_gate, port), Client(port) as client:
        await client.ask(*forged, "X-Forwarded-For: 192.0.2.7", "Authorization: token kept", "X-XSRFToken: kept")
    head = heard.heads[0]
    assert "root" not in head and "evil" not in head.replace("Proxy: http://evil", "") and "gopher" not in head
    assert "X-Forwarded-Proto: https\r\n" in head and f"X-Forwarded-Host: {HOST}\r\n" in head
    assert "X-Forwarded-For: 192.0.2.7\r\n" in head, "the proxy before us says whom it speaks for"
    assert "Authorization: token kept" in head and "X-XSRFToken: kept" in head


async def test_f38_the_portals_own_cookies_reach_no_instance() -> None:
    heard = Heard(OK)
    async with standing(heard) as (_gate, port), Client(port) as client:
        own = "Cookie: a=1; mlportal-session=secret; __Host-mlportal=own"
        await client.ask(own, "Cookie: mlportal-csrf=secret; b=2")
        await client.ask("Cookie: mlportal-session=secret")
    assert "Cookie: a=1; __Host-mlportal=own; b=2\r\n" in heard.heads[0]
    assert "secret" not in "".join(heard.heads) and "Cookie" not in heard.heads[1]


async def test_fields_that_speak_of_one_connection_go_no_further() -> None:
    heard = Heard(b"HTTP/1.1 200 OK\r\nKeep-Alive: 5\r\nUpgrade: h2c\r\nContent-Length: 0\r\n\r\n")
    async with standing(heard) as (_gate, port), Client(port) as client:
        own = ("Connection: keep-alive, X-Mine", "X-Mine: 1", "TE: trailers", "Keep-Alive: 3")
        _status, head, _body = await client.ask(*own)
    assert not [name for name in ("X-Mine", "TE:", "Keep-Alive", "Connection") if name in heard.heads[0]]
    assert "Keep-Alive" not in head and "Upgrade" not in head


@pytest.mark.parametrize(
    "request_",
    [
        b"GET / HTTP/1.1\r\nHost: H\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: H\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
        b"GET / HTTP/1.1\r\nHost: H\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: H\r\nContent-Length: +5\r\n\r\nabcde",
        b"GET / HTTP/1.1\r\nHost: H\r\nA: b\n\r\n\r\n\0",
        b"GET / HTTP/1.1\r\nHost : H\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: H\r\nHost: other\r\n\r\n",
        b"GET http://H/ HTTP/1.1\r\nHost: H\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: H\r\n\r\n",
        b"CONNECT H:22 HTTP/1.1\r\nHost: H\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: H\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: H\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 3\r\n\r\nabc",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
async def test_what_could_be_read_in_two_ways_reaches_no_instance(request_: bytes) -> None:
    heard = Heard(OK)
    async with standing(heard) as (gate, port), Client(port) as client:
        client.writer.write(request_.replace(b"H/", HOST.encode() + b"/").replace(b": H\r", f": {HOST}\r".encode()))
        status = int((await client.reader.readuntil(b"\r\n\r\n")).split()[1])
        assert status in (400, 404), status
        assert await client.closed()
        assert gate.dials == 0
    assert heard.heads == []


async def test_a_head_without_end_is_refused() -> None:
    heard = Heard(OK)
    async with standing(heard) as (_gate, port), Client(port) as client:
        status, _head, body = await client.ask(*[f"X-{n}: {'a' * 1000}" for n in range(70)])
        assert status == 431 and b"64 kB" in body
    async with standing(heard) as (_gate, port), Client(port) as client:
        assert (await client.ask(*[f"X-{n}: a" for n in range(120)]))[0] == 431
    assert heard.heads == []


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
    ],
)
async def test_an_answer_that_is_none_is_said_to_be_none(answer: bytes) -> None:
    async with standing(Heard(answer)) as (_gate, port), Client(port) as client:
        status, _head, body = await client.ask()
        assert status == 502 and b"does not answer" in body


async def test_what_an_instance_says_beyond_its_answer_is_nobodys_answer() -> None:
    """Another request on the same connection would take it for its own."""
    heard = Heard(OK + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", OK)
    async with standing(heard) as (_gate, port), Client(port) as client:
        assert (await client.ask())[2] == b"ok"
        assert (await client.ask())[2] == b"ok"
    assert heard.connections == 2


async def test_a_kept_connection_that_was_closed_meanwhile_costs_nobody_a_request() -> None:
    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)
        await reader.read(1)
        writer.close()  # the second request on it is never answered

    async with standing(once) as (gate, port), Client(port) as client:
        for _ in range(3):
            assert (await client.ask())[2] == b"ok"
        assert gate.dials == 3


async def test_an_instance_that_cannot_be_reached_and_one_that_breaks_off() -> None:
    async def breaks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        writer.close()

    async with standing(breaks) as (gate, port):
        async with Client(port) as client:
            with pytest.raises(asyncio.IncompleteReadError):
                await client.ask()  # never an answer that looks complete
        gate.refuse = True
        async with Client(port) as client:
            status, head, body = await client.ask("Accept-Language: en")
            assert (status, b"The instance does not answer" in body) == (502, True)
            assert "no-store" in head and "default-src 'none'" in head


async def test_while_the_way_is_opened_a_large_body_waits_at_its_sender() -> None:
    heard = Heard(OK)
    async with standing(heard) as (gate, port), Client(port) as client:
        gate.slow = asyncio.Event()
        size = 8 << 20
        sending = asyncio.ensure_future(client.ask(f"Content-Length: {size}", method="POST", body=b"x" * size))
        await until(lambda: any(one.current and one.current.size for one in gate.visitors))
        (waiting,) = (one.current for one in gate.visitors)
        await asyncio.sleep(0.2)  # it would come in meanwhile, were it read
        assert waiting.size < visitors.AHEAD + (1 << 20)
        gate.slow.set()
        assert (await sending)[2] == b"ok"
    assert len(heard.bodies[0]) == size


async def test_a_visitor_that_reads_nothing_holds_its_instance_back() -> None:
    sent = 0

    async def pours(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (64 << 20))
        try:
            for _ in range(64):
                writer.write(b"y" * (1 << 20))
                await writer.drain()
                sent += 1
        except OSError:
            pass

    async with standing(pours) as (_gate, port), Client(port) as client:
        client.writer.write(f"GET / HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
        before = -1
        while sent != before:  # until it stands still
            before = sent
            await asyncio.sleep(0.5)
        assert sent < 40, "in the buffers of four sockets, not in memory"
        head = await client.reader.readuntil(b"\r\n\r\n")
        assert b"200 OK" in head
        assert len(await client.reader.readexactly(64 << 20)) == 64 << 20


async def test_who_waits_for_leave_to_send_a_body_gets_it() -> None:
    async with standing(Heard(OK)) as (_gate, port), Client(port) as client:
        fields = "Content-Length: 2\r\nExpect: 100-continue\r\n"
        client.writer.write(f"POST / HTTP/1.1\r\nHost: {HOST}\r\n{fields}\r\n".encode())
        assert (await client.answer())[0] == 100
        client.writer.write(b"hi")
        assert (await client.answer())[2] == b"ok"


async def test_a_stop_ends_what_is_open_and_what_waits_at_once() -> None:
    never = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await never.wait()

    async with standing(silent) as (gate, port), Client(port) as client, Client(port) as idle:
        client.writer.write(f"GET / HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
        await until(lambda: any(one.upstream and one.upstream.is_ready for one in gate.visitors))
        gate.places.put(launch(state="stopping"))
        assert await client.closed()
        assert (await idle.ask())[0] == 404, "a connection that was open to nobody lives on"
        gate.places.forget(PK)


async def test_an_old_client_gets_an_answer_it_understands() -> None:
    heard = Heard(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
    async with standing(heard) as (_gate, port), Client(port) as client:
        client.writer.write(f"GET / HTTP/1.0\r\nHost: {HOST}\r\n\r\n".encode())
        whole = await client.reader.read()
    assert whole.startswith(b"HTTP/1.1 200 OK\r\n") and whole.endswith(b"Connection: close\r\n\r\nabc")
