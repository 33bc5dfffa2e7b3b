"""List-watch: whatever the server does, the reader ends up with the truth, and soon."""

from __future__ import annotations

import asyncio
import gc
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web

from kubekit.credentials import Credentials
from kubekit.errors import Gone, KubeError, TooManyRequests, Unreachable
from kubekit.listwatch import READ_TIMEOUT_S, WATCH_S, ListWatch
from kubekit.streams import Streams
from tests.kubekit.fakes import Asked, FakeApi, serving, status_body

PODS = "/api/v1/namespaces/ns/pods"


class Reader:
    """Keeps what a list-watch said, and waits for it."""

    def __init__(self) -> None:
        self.syncs: list[list[str]] = []
        self.events: list[tuple[str, str]] = []
        self.errors: list[KubeError] = []

    def on_sync(self, items: list[dict[str, Any]]) -> None:
        self.syncs.append([item["metadata"]["name"] for item in items])

    async def on_event(self, kind: str, obj: dict[str, Any]) -> None:
        self.events.append((kind, obj["metadata"]["name"]))

    def on_error(self, error: KubeError) -> None:
        self.errors.append(error)


async def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - the condition changes in another thread's answers
            await asyncio.sleep(0.01)


@pytest.fixture
async def streams(credentials: Credentials) -> AsyncIterator[Streams]:
    async with Streams(credentials, connect_timeout_s=1) as found:
        yield found


def watching(streams: Streams, reader: Reader, **changes: Any) -> ListWatch:
    quick: dict[str, Any] = {"read_timeout_s": 0.5, "first_delay_s": 0.02, "longest_delay_s": 0.1}
    return ListWatch(
        streams, "Pod", "ns", on_event=reader.on_event, on_sync=reader.on_sync, on_error=reader.on_error,
        **{**quick, **changes},
    )  # fmt: skip


def serve(api: FakeApi, lists: list[Any], watches: list[list[Any]]) -> None:
    """Script lists (names, or a status) and watches (events; then "hold", "cut" or the end); the last of each stays."""

    async def give(request: web.Request) -> web.StreamResponse:
        if request.query.get("watch") == "1":
            return await play(request, watches.pop(0) if len(watches) > 1 else watches[0])
        found = lists.pop(0) if len(lists) > 1 else lists[0]
        if isinstance(found, int):
            return web.json_response(status_body(found, "x", "scripted"), status=found)
        items = [{"metadata": {"name": name}} for name in found]
        return web.json_response({"metadata": {"resourceVersion": "10"}, "items": items})

    async def play(request: web.Request, rows: list[Any]) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for row in rows:
            if row == "hold":
                await asyncio.sleep(3600)
            elif row == "cut":
                assert request.transport is not None
                request.transport.abort()
            else:
                await response.write(json.dumps(row).encode() + b"\n")
        return response

    api.handle(f"GET {PODS}", give)


def event(kind: str, name: str, version: str) -> dict[str, Any]:
    return {"type": kind, "object": {"metadata": {"name": name, "resourceVersion": version}}}


def watches_of(api: FakeApi) -> list[Asked]:
    return [asked for asked in api.asked if "watch" in asked.query]


async def running(found: ListWatch) -> asyncio.Task[None]:
    return asyncio.create_task(found.run())


async def stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_list_then_events_in_order(api: FakeApi, streams: Streams) -> None:
    serve(api, [["a"]], [[event("ADDED", "b", "11"), event("DELETED", "a", "12"), "hold"]])
    reader = Reader()
    found = watching(streams, reader, read_timeout_s=5)
    assert found.silent_s() == float("inf")
    task = await running(found)
    await until(lambda: len(reader.events) == 2)
    assert reader.syncs == [["a"]]
    assert reader.events == [("ADDED", "b"), ("DELETED", "a")]
    assert found.synced.is_set()
    assert found.silent_s() < 2
    assert watches_of(api)[0].query["resourceVersion"] == "10"
    await stop(task)


async def test_a_watch_that_ends_well_goes_on_from_its_bookmark_without_a_list(api: FakeApi, streams: Streams) -> None:
    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "40"}}}
    serve(api, [["a"]], [[event("ADDED", "b", "11"), bookmark], [event("ADDED", "c", "41"), "hold"]])
    reader = Reader()
    task = await running(watching(streams, reader, read_timeout_s=5))
    await until(lambda: ("ADDED", "c") in reader.events)
    assert reader.syncs == [["a"]]
    assert [asked.query["resourceVersion"] for asked in watches_of(api)] == ["10", "40"]
    assert reader.events == [("ADDED", "b"), ("ADDED", "c")]
    await stop(task)


async def test_a_cluster_that_is_away_is_told_once_and_warns_of_nothing(
    api: FakeApi, streams: Streams, caplog: pytest.LogCaptureFixture
) -> None:
    serve(api, [500, 500, 500, 503, ["a"]], [["hold"]])
    reader = Reader()
    with caplog.at_level("INFO", logger="kubekit.listwatch"):
        task = await running(watching(streams, reader, read_timeout_s=5))
        await until(lambda: len(reader.syncs) == 1, 90)
        await stop(task)
    assert len(reader.errors) == 4
    said = [record for record in caplog.records if record.name == "kubekit.listwatch"]
    assert len(said) == len({error.code for error in reader.errors})
    assert {record.levelname for record in said} == {"INFO"}


async def test_gone_inside_http_200_lists_again_at_once(api: FakeApi, streams: Streams) -> None:
    gone = {"type": "ERROR", "object": status_body(410, "Expired", "too old resource version: 10 (99)")}
    serve(api, [["a"], ["b"]], [[gone, "hold"], ["hold"]])
    reader = Reader()
    began = time.monotonic()
    task = await running(watching(streams, reader, read_timeout_s=5, first_delay_s=3))
    await until(lambda: len(reader.syncs) == 2)
    assert time.monotonic() - began < 1.5
    assert reader.syncs == [["a"], ["b"]]
    assert [type(error) for error in reader.errors] == [Gone]
    await stop(task)


async def test_a_half_open_connection_is_replaced_and_what_was_missed_is_seen(api: FakeApi, streams: Streams) -> None:
    serve(api, [["a"], ["a", "missed"]], [["hold"]])
    reader = Reader()
    task = await running(watching(streams, reader, read_timeout_s=0.3))
    await until(lambda: ["a", "missed"] in reader.syncs)
    assert isinstance(reader.errors[0], Unreachable)
    await stop(task)


def test_the_times_of_production_notice_a_dead_connection_within_a_minute() -> None:
    assert WATCH_S < READ_TIMEOUT_S <= 60


@pytest.mark.parametrize("status", [401, 403, 404, 429, 500, 503])
async def test_no_refusal_makes_it_give_up(api: FakeApi, streams: Streams, status: int) -> None:
    serve(api, [status, status, status, status, status, ["back"]], [["hold"]])
    reader = Reader()
    task = await running(watching(streams, reader, read_timeout_s=5))
    await until(lambda: reader.syncs == [["back"]])
    assert len(reader.errors) == 5
    await stop(task)


async def test_a_cut_watch_lists_again(api: FakeApi, streams: Streams) -> None:
    serve(api, [["a"], ["b"]], [[event("ADDED", "x", "11"), "cut"], ["hold"]])
    reader = Reader()
    task = await running(watching(streams, reader, read_timeout_s=5))
    await until(lambda: len(reader.syncs) == 2)
    await stop(task)


async def test_a_server_that_was_away_is_found_again(unused_tcp_port: int) -> None:
    reader = Reader()
    credentials = Credentials(server=f"http://127.0.0.1:{unused_tcp_port}", token="x")
    async with Streams(credentials, connect_timeout_s=1) as streams:
        found = watching(streams, reader)
        task = await running(found)
        await until(lambda: len(reader.errors) >= 3)
        assert found.last_contact is None
        assert found.last_error is not None
        with serving(FakeApi(), port=unused_tcp_port) as api:
            serve(api, [["a"]], [["hold"]])
            await until(lambda: reader.syncs == [["a"]])
            assert found.last_error is None
            await stop(task)


async def test_a_watch_that_always_ends_at_once_is_no_busy_loop(api: FakeApi, streams: Streams) -> None:
    serve(api, [["a"]], [[]])
    reader = Reader()
    task = await running(watching(streams, reader, first_delay_s=0.1))
    await asyncio.sleep(0.6)
    assert 1 <= len(watches_of(api)) <= 8
    await stop(task)


async def test_the_list_is_read_again_from_time_to_time(api: FakeApi, streams: Streams) -> None:
    serve(api, [["a"], ["b"]], [[]])
    reader = Reader()
    task = await running(watching(streams, reader, relist_s=0.1))
    await until(lambda: len(reader.syncs) >= 2)
    assert not reader.errors
    await stop(task)


async def test_all_pages_make_one_sync(api: FakeApi, streams: Streams) -> None:
    async def give(request: web.Request) -> web.StreamResponse:
        if request.query.get("watch"):
            await asyncio.sleep(3600)
        at = int(request.query.get("continue", "0"))
        more = {"continue": str(at + 1)} if at < 3 else {}
        item = {"metadata": {"name": f"p{at}"}}
        return web.json_response({"metadata": {"resourceVersion": "10", **more}, "items": [item]})

    api.handle(f"GET {PODS}", give)
    reader = Reader()
    trimmed: list[str] = []

    def trim(obj: dict[str, Any]) -> dict[str, Any]:
        trimmed.append(obj["metadata"]["name"])
        return obj

    task = await running(watching(streams, reader, read_timeout_s=5, trim=trim))
    await until(lambda: bool(reader.syncs))
    assert reader.syncs == [trimmed] == [["p0", "p1", "p2", "p3"]]
    assert gc.isenabled(), "the collector rests only while a page is read"
    await stop(task)


async def test_an_error_of_the_reader_is_not_swallowed(api: FakeApi, streams: Streams) -> None:
    serve(api, [["a"]], [["hold"]])

    def fail(items: list[dict[str, Any]]) -> None:
        raise RuntimeError("the reader broke")

    found = ListWatch(streams, "Pod", "ns", on_event=lambda kind, obj: None, on_sync=fail)
    with pytest.raises(RuntimeError, match="the reader broke"):
        await asyncio.wait_for(found.run(), 5)


def test_back_off_grows_stays_bounded_and_is_spread() -> None:
    found = ListWatch(
        Streams(Credentials(server="http://127.0.0.1:1", token="x")), "Pod", on_event=lambda kind, obj: None,
        on_sync=lambda items: None,
    )  # fmt: skip
    error = KubeError("x")
    delays = {failures: [found._delay_s(failures, error) for _ in range(50)] for failures in (1, 4, 20, 10_000)}
    assert max(delays[1]) <= 0.5
    assert 2 <= min(delays[4]) <= max(delays[4]) <= 4
    assert 15 <= min(delays[10_000]) <= max(delays[10_000]) <= 30
    assert len(set(delays[20])) > 10
    assert found._delay_s(1, TooManyRequests("x", retry_after_s=8)) >= 4
