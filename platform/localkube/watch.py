"""Watches: the stream of changes, with its initial events, bookmarks, selectors and its errors inside HTTP 200."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Final

from aiohttp import web

from localkube import requests, selectors, status, table
from localkube.changes import Event
from localkube.requests import Target
from localkube.selectors import Matcher
from localkube.status import ApiError, Object
from localkube.store import Store

_BOOKMARK_S: Final = 60.0
_INITIAL_END: Final = "k8s.io/initial-events-end"


class _Stream:
    """Writes watch events as one JSON document a line."""

    def __init__(self, request: web.BaseRequest, target: Target) -> None:
        self._request = request
        self._target = target
        self._as = table.Form.of(request)
        self._first = True
        self._response = web.StreamResponse(status=200)
        self._response.content_type = "application/json"
        self._response.headers["Cache-Control"] = "no-cache, private"
        self._response.enable_chunked_encoding()

    async def open(self) -> web.StreamResponse:
        await self._response.prepare(self._request)
        return self._response

    def line(self, event_type: str, obj: Object) -> bytes:
        shaped = obj
        if event_type != "ERROR":
            bookmark = event_type == "BOOKMARK"
            shaped = self._as.watch_object(self._target.resource, obj, first=self._first, bookmark=bookmark)
            self._first = False
        return json.dumps({"type": event_type, "object": shaped}, separators=(",", ":")).encode() + b"\n"

    async def send(self, lines: list[bytes]) -> None:
        if lines:
            await self._response.write(b"".join(lines))


def _translate(event: Event, matches: Matcher | None) -> tuple[str, Object] | None:
    """What a watch with a selector sees of a change: objects enter and leave its selection."""
    if matches is None:
        return event.type, event.obj
    after = event.type != "DELETED" and matches(event.obj)
    before = event.previous is not None and matches(event.previous)
    if after:
        return ("MODIFIED" if before else "ADDED"), event.obj
    if before and event.previous:
        if event.type == "DELETED":
            return "DELETED", event.obj
        metadata = event.previous["metadata"] | {"resourceVersion": str(event.version)}
        return "DELETED", event.previous | {"metadata": metadata}
    return None


def _bookmark(target: Target, version: int, *, initial_end: bool = False) -> Object:
    metadata: Object = {"resourceVersion": str(version), "creationTimestamp": None}
    if initial_end:
        metadata["annotations"] = {_INITIAL_END: "true"}
    return {"kind": target.resource.kind, "apiVersion": target.resource.api_version, "metadata": metadata}


def _initial(request: web.BaseRequest) -> bool:
    """Whether `sendInitialEvents` asks for the list first. Raises ApiError 422 for a wrong combination."""
    asked = request.query.get("sendInitialEvents")
    match = request.query.get("resourceVersionMatch")
    if asked is None:
        if match:
            text = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
            raise requests.list_options_error("resourceVersionMatch", text)
        return False
    if match != "NotOlderThan":
        text = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        raise requests.list_options_error("resourceVersionMatch", text)
    return requests.flag(request, "sendInitialEvents")


async def serve_watch(store: Store, target: Target, request: web.BaseRequest) -> web.StreamResponse:
    """Stream events until the client goes, the time-out passes, or the history no longer holds what it needs."""
    key = target.resource.key
    fields = request.query.get("fieldSelector") or ""
    matches = selectors.matcher(key, request.query.get("labelSelector"), fields or None)
    streaming_list = _initial(request)
    version = requests.version_of(request) or 0
    bookmarks = requests.flag(request, "allowWatchBookmarks")
    timeout = requests.number(request, "timeoutSeconds") or random.randint(1800, 3600)  # noqa: S311  # not a secret
    stream = _Stream(request, target)
    response = await stream.open()
    lines: list[bytes] = []
    try:
        begin = store.version if streaming_list or version == 0 else version
        if begin > store.version:
            text = f"Too large resource version: {begin}, current: {store.version}"
            raise ApiError(504, f"Timeout: {text}", details={"retryAfterSeconds": 1})
        watch = store.watch_since(key, begin)
    except ApiError as error:
        await stream.send([stream.line("ERROR", error.body)])
        return response
    try:
        skip_list = request.query.get("sendInitialEvents") is not None and not streaming_list
        if (streaming_list or version == 0) and not skip_list:
            items, _ = store.list(
                key, target.namespace, labels=request.query.get("labelSelector"), fields=fields or None
            )
            lines = [stream.line("ADDED", obj) for obj in items]
        if streaming_list and bookmarks:
            lines.append(stream.line("BOOKMARK", _bookmark(target, begin, initial_end=True)))
        await stream.send(lines)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while True:
            left = deadline - loop.time()
            try:
                async with asyncio.timeout(min(left, _BOOKMARK_S) if bookmarks else left):
                    await watch.wait()
            except TimeoutError:
                over = loop.time() >= deadline
                if bookmarks and not watch.events:
                    await stream.send([stream.line("BOOKMARK", _bookmark(target, store.version))])
                if over:
                    return response
                continue
            lines = []
            while watch.events:
                event = watch.events.popleft()
                if target.namespace and event.obj["metadata"].get("namespace") != target.namespace:
                    continue
                if seen := _translate(event, matches):
                    lines.append(stream.line(*seen))
            if watch.overflowed:
                lines.append(stream.line("ERROR", status.gone(begin, store.version).body))
            await stream.send(lines)
            if watch.overflowed:
                return response
    except ConnectionResetError:
        return response
    finally:
        store.unwatch(watch)
