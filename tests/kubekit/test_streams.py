"""Streams against a scripted server: watches that lie or fall silent, logs, commands and tunnels."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import WSMsgType, web

from kubekit import streams as streams_module
from kubekit.credentials import Credentials
from kubekit.errors import BadAnswer, BadRequest, Forbidden, Gone, NotFound, Unreachable
from kubekit.streams import Streams
from tests.kubekit.certificates import authority
from tests.kubekit.fakes import FakeApi, serving, status_body, stream

PODS = "/api/v1/namespaces/ns/pods"


@pytest.fixture
async def streams(credentials: Credentials) -> AsyncIterator[Streams]:
    async with Streams(credentials, connect_timeout_s=1) as found:
        yield found


def event(kind: str, name: str, version: str = "1") -> bytes:
    return (
        json.dumps({"type": kind, "object": {"metadata": {"name": name, "resourceVersion": version}}}).encode() + b"\n"
    )


async def names_of(found: AsyncIterator[dict[str, Any]]) -> list[str]:
    return [row["object"]["metadata"]["name"] async for row in found]


async def test_a_watch_gives_events_whatever_the_pieces_they_come_in(api: FakeApi, streams: Streams) -> None:
    whole = event("ADDED", "a") + event("MODIFIED", "b" * 200_000) + event("DELETED", "c")
    api.handle(f"GET {PODS}", stream(*(whole[at : at + 7919] for at in range(0, len(whole), 7919))))
    assert [name[0] for name in await names_of(streams.watch("Pod", "ns", resource_version="5"))] == ["a", "b", "c"]
    assert api.last().query == {
        "watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": "50", "resourceVersion": "5",
    }  # fmt: skip
    assert api.last().headers["Authorization"] == "Bearer t0ken"


async def test_gone_comes_as_an_event_inside_http_200(api: FakeApi, streams: Streams) -> None:
    error = {"type": "ERROR", "object": status_body(410, "Expired", "too old resource version: 1 (99)")}
    api.handle(f"GET {PODS}", stream(event("ADDED", "a"), json.dumps(error).encode() + b"\n", hold=True))
    seen: list[str] = []
    with pytest.raises(Gone):
        async for row in streams.watch("Pod", "ns"):
            seen.append(row["object"]["metadata"]["name"])  # noqa: PERF401 - what came before the error counts
    assert seen == ["a"]


async def test_gone_as_an_http_status_is_the_same(api: FakeApi, streams: Streams) -> None:
    api.answer(f"GET {PODS}", status_body(410, "Expired", "too old"), status=410)
    with pytest.raises(Gone):
        await names_of(streams.watch("Pod", "ns"))


async def test_a_silent_watch_is_given_up(api: FakeApi, streams: Streams) -> None:
    api.handle(f"GET {PODS}", stream(event("ADDED", "a"), hold=True))
    began = time.monotonic()
    with pytest.raises(Unreachable):
        await names_of(streams.watch("Pod", "ns", read_timeout_s=0.3))
    assert 0.2 < time.monotonic() - began < 10


async def test_a_watch_that_is_cut_is_unreachable(api: FakeApi, streams: Streams) -> None:
    api.handle(f"GET {PODS}", stream(event("ADDED", "a"), cut=True))
    with pytest.raises(Unreachable):
        await names_of(streams.watch("Pod", "ns"))


async def test_a_watch_of_something_else_than_json_is_a_bad_answer(api: FakeApi, streams: Streams) -> None:
    api.handle(f"GET {PODS}", stream(b"<html>\n"))
    with pytest.raises(BadAnswer):
        await names_of(streams.watch("Pod", "ns"))


async def test_list_pages_carry_selector_and_token(api: FakeApi, streams: Streams) -> None:
    api.answer(f"GET {PODS}", {"items": [], "metadata": {"resourceVersion": "9"}})
    page = await streams.list_page("Pod", "ns", labels={"a": "1"}, limit=7, continue_token="t")
    assert page["metadata"]["resourceVersion"] == "9"
    assert api.last().query == {"limit": "7", "labelSelector": "a=1", "continue": "t"}


async def test_a_refusal_keeps_the_servers_text(api: FakeApi, streams: Streams) -> None:
    api.answer(f"GET {PODS}", status_body(403, "Forbidden", "pods is forbidden: no"), status=403)
    with pytest.raises(Forbidden) as caught:
        await streams.list_page("Pod", "ns")
    assert caught.value.message == "pods is forbidden: no"


async def test_a_log_comes_as_bytes_until_the_container_ends(api: FakeApi, streams: Streams) -> None:
    api.handle(f"GET {PODS}/p/log", stream(b"2026-11-30T15:00:00.1Z 4", b"2\n\xff\n"))
    found = b"".join(
        [piece async for piece in streams.follow_log("ns", "p", "main", since_time="2026-11-30T15:00:00Z")]
    )
    assert found == b"2026-11-30T15:00:00.1Z 42\n\xff\n"
    assert api.last().query == {
        "container": "main", "follow": "true", "timestamps": "true", "sinceTime": "2026-11-30T15:00:00Z",
    }  # fmt: skip


async def test_a_log_that_is_cut_says_so_rather_than_ending(api: FakeApi, streams: Streams) -> None:
    api.handle(f"GET {PODS}/p/log", stream(b"half", cut=True))
    with pytest.raises(Unreachable):
        [piece async for piece in streams.follow_log("ns", "p", "main")]


async def test_the_log_of_a_container_that_waits_is_refused(api: FakeApi, streams: Streams) -> None:
    api.answer(f"GET {PODS}/p/log", status_body(400, "BadRequest", "is waiting to start"), status=400)
    with pytest.raises(BadRequest):
        [piece async for piece in streams.follow_log("ns", "p", "main")]


def websocket(play: Callable[[web.WebSocketResponse, web.Request], Any]) -> Callable[[web.Request], Any]:
    async def give(request: web.Request) -> web.StreamResponse:
        found = web.WebSocketResponse(protocols=("v4.channel.k8s.io",))
        await found.prepare(request)
        await play(found, request)
        await found.close()
        return found

    return give


def exit_status(code: int) -> bytes:
    if code == 0:
        return json.dumps({"status": "Success", "metadata": {}}).encode()
    causes = [{"reason": "ExitCode", "message": str(code)}]
    return json.dumps(
        {
            "status": "Failure",
            "reason": "NonZeroExitCode",
            "message": "command terminated",
            "details": {"causes": causes},
        }
    ).encode()


@pytest.mark.parametrize("code", [0, 3, 137])
async def test_a_command_gives_its_code_and_both_outputs(api: FakeApi, streams: Streams, code: int) -> None:
    asked: list[tuple[str, str]] = []

    async def play(found: web.WebSocketResponse, request: web.Request) -> None:
        asked.extend(request.query.items())
        for frame in (b"\1", b"\1out", b"\2err", b"\1put", b"\3" + exit_status(code)):
            await found.send_bytes(frame)

    api.handle(f"GET {PODS}/p/exec", websocket(play))
    assert await streams.run("ns", "p", "main", ["echo", "a b"]) == (code, b"output", b"err")
    assert asked == [
        ("container", "main"), ("stdout", "true"), ("command", "echo"), ("command", "a b"), ("stderr", "true"),
    ]  # fmt: skip


async def test_standard_input_is_sent_on_its_channel(api: FakeApi, streams: Streams) -> None:
    async def play(found: web.WebSocketResponse, request: web.Request) -> None:
        got = b""
        while len(got) < 100_000:
            frame = (await found.receive()).data
            assert frame[0] == 0
            got += frame[1:]
        await found.send_bytes(b"\1" + got[:3] + str(len(got)).encode())
        await found.send_bytes(b"\3" + exit_status(0))

    api.handle(f"GET {PODS}/p/exec", websocket(play))
    assert await streams.run("ns", "p", "main", ["cat"], stdin=b"x" * 100_000) == (0, b"xxx100000", b"")


async def test_a_command_that_cannot_be_run_is_an_error(api: FakeApi, streams: Streams) -> None:
    async def play(found: web.WebSocketResponse, request: web.Request) -> None:
        await found.send_bytes(b"\3" + json.dumps(status_body(500, "InternalError", "no such executable")).encode())

    api.handle(f"GET {PODS}/p/exec", websocket(play))
    with pytest.raises(Exception, match="no such executable"):
        await streams.run("ns", "p", "main", ["nothing"])


async def test_a_command_whose_stream_ends_early_may_have_run(api: FakeApi, streams: Streams) -> None:
    async def play(found: web.WebSocketResponse, request: web.Request) -> None:
        await found.send_bytes(b"\1half")

    api.handle(f"GET {PODS}/p/exec", websocket(play))
    with pytest.raises(Unreachable) as caught:
        await streams.run("ns", "p", "main", ["long"])
    assert caught.value.maybe_done


async def test_a_command_that_does_not_end_is_left_after_its_time(api: FakeApi, streams: Streams) -> None:
    async def play(found: web.WebSocketResponse, request: web.Request) -> None:
        await found.receive()

    api.handle(f"GET {PODS}/p/exec", websocket(play))
    with pytest.raises(Unreachable) as caught:
        await streams.run("ns", "p", "main", ["sleep", "60"], timeout_s=0.3)
    assert caught.value.maybe_done


async def test_output_beyond_the_limit_is_cut(api: FakeApi, streams: Streams) -> None:
    async def play(found: web.WebSocketResponse, request: web.Request) -> None:
        for _ in range(10):
            await found.send_bytes(b"\1" + b"x" * 1000)
        await found.send_bytes(b"\3" + exit_status(0))

    api.handle(f"GET {PODS}/p/exec", websocket(play))
    code, out, _ = await streams.run("ns", "p", "main", ["yes"], limit_bytes=2500)
    assert (code, len(out)) == (0, 2500)


@pytest.mark.parametrize(("status", "kind"), [(404, NotFound), (403, Forbidden)])
async def test_a_refused_upgrade_is_the_error_of_its_status(
    api: FakeApi, streams: Streams, status: int, kind: type[Exception]
) -> None:
    api.answer(f"GET {PODS}/p/exec", status_body(status, "x", "y"), status=status)
    with pytest.raises(kind):
        await streams.run("ns", "p", "main", ["true"])


async def test_a_tunnel_carries_bytes_both_ways(api: FakeApi, streams: Streams) -> None:
    async def play(found: web.WebSocketResponse, request: web.Request) -> None:
        assert request.query["ports"] == "8888"
        # The server first repeats the port on both channels, little endian.
        await found.send_bytes(b"\0" + (8888).to_bytes(2, "little"))
        await found.send_bytes(b"\1" + (8888).to_bytes(2, "little"))
        got = b""
        while len(got) < 90_000:
            message = await found.receive()
            assert message.type is WSMsgType.BINARY
            assert message.data[0] == 0
            got += message.data[1:]
        await found.send_bytes(b"\0" + got[::-1])

    api.handle(f"GET {PODS}/p/portforward", websocket(play))
    sent = bytes(range(256)) * 352
    async with streams.port_forward("ns", "p", 8888) as tunnel:
        await tunnel.write(sent)
        assert await tunnel.read() == sent[::-1]
        assert await tunnel.read() == b""


async def test_a_port_nobody_listens_on_is_said(api: FakeApi, streams: Streams) -> None:
    async def play(found: web.WebSocketResponse, request: web.Request) -> None:
        await found.send_bytes(b"\0" + (1).to_bytes(2, "little"))
        await found.send_bytes(b"\1" + (1).to_bytes(2, "little"))
        await found.send_bytes(b"\1" + b"dial tcp4 127.0.0.1:1: connect: connection refused")

    api.handle(f"GET {PODS}/p/portforward", websocket(play))
    async with streams.port_forward("ns", "p", 1) as tunnel:
        with pytest.raises(NotFound, match="connection refused"):
            await tunnel.read()


async def test_nobody_listening_is_unreachable() -> None:
    async with Streams(Credentials(server="http://127.0.0.1:21299", token="x")) as streams:
        with pytest.raises(Unreachable):
            await streams.list_page("Pod", "ns")
        with pytest.raises(Unreachable):
            await streams.run("ns", "p", "main", ["true"])


async def test_leaving_a_watch_early_closes_its_connection(api: FakeApi, streams: Streams) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def give(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(event("ADDED", "a"))
                await asyncio.sleep(0.02)
        finally:
            loop.call_soon_threadsafe(ended.set)

    api.handle(f"GET {PODS}", give)
    found = streams.watch("Pod", "ns")
    assert (await anext(found))["type"] == "ADDED"
    await found.aclose()
    await asyncio.wait_for(ended.wait(), 3)


async def test_tls_is_verified_for_streams_too(tmp_path: Path) -> None:
    ours, theirs = authority(), authority()
    with serving(FakeApi(), ssl_context=ours.server_context(tmp_path)) as api:
        api.answer(f"GET {PODS}", {"items": [], "metadata": {}})
        async with Streams(Credentials(server=api.url, ca_data=ours.certificate, token="x")) as good:
            assert (await good.list_page("Pod", "ns"))["items"] == []
        async with Streams(Credentials(server=api.url, ca_data=theirs.certificate, token="x")) as bad:
            with pytest.raises(Unreachable) as caught:
                await bad.list_page("Pod", "ns")
        assert caught.value.code == "tls_failure"


async def test_a_dead_line_is_noticed_even_where_silence_is_normal(
    api: FakeApi, streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log has no read time-out; keep-alive probes must end it within about a minute of the other side's death."""
    made: list[socket.socket] = []
    plain = streams_module._watched_socket

    def note(address: Any) -> socket.socket:
        made.append(plain(address))
        return made[-1]

    monkeypatch.setattr(streams_module, "_watched_socket", note)
    api.handle(f"GET {PODS}/p/log", stream(b"line\n", hold=True))
    found = streams.follow_log("ns", "p", "main")
    assert await anext(found) == b"line\n"
    (used,) = made
    probes = [used.getsockopt(socket.IPPROTO_TCP, option) for option in (
        socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)]  # fmt: skip
    assert used.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    assert probes[0] + probes[1] * probes[2] <= 60
    await found.aclose()
