"""Watches: the stream of changes, with its initial events, bookmarks, selectors and its errors inside HTTP 200."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Final

from aiohttp import web

from localkube import requests, selectors, status
from localkube.changes import Event
from localkube.requests import Target
from localkube.selectors import Matcher
from localkube.status import ApiError, Object
from localkube.store import Store

_BOOKMARK_S: Final = 60.0


def _line(event_type: str, obj: Object) -> bytes:
    return json.dumps({"type": event_type, "object": obj}, separators=(",", ":")).encode() + b"\n"


def _translate(event: Event, matches: Matcher | None) -> bytes:
    """What a watch with a selector sees of a change: objects enter and leave its selection."""
    if matches is None:
        return _line(event.type, event.obj)
    after = event.type != "DELETED" and matches(event.obj)
    before = event.previous is not None and matches(event.previous)
    if after:
        return _line("MODIFIED" if before else "ADDED", event.obj)
    if before and event.previous:
        if event.type == "DELETED":
            return _line("DELETED", event.obj)
        metadata = event.previous["metadata"] | {"resourceVersion": str(event.version)}
        return _line("DELETED", event.previous | {"metadata": metadata})
    return b""


def _bookmark(target: Target, version: int) -> bytes:
    metadata = {"resourceVersion": str(version), "creationTimestamp": None}
    kind, api_version = target.resource.kind, target.resource.api_version
    return _line("BOOKMARK", {"kind": kind, "apiVersion": api_version, "metadata": metadata})


async def serve_watch(store: Store, target: Target, request: web.BaseRequest) -> web.StreamResponse:
    """Stream events until the client goes, the time-out passes, or the history no longer holds what it needs."""
    if requests.flag(request, "sendInitialEvents"):
        raise status.not_implemented("streamed lists (sendInitialEvents): list, then watch")
    key, labels, fields = target.resource.key, request.query.get("labelSelector"), request.query.get("fieldSelector")
    matches = selectors.matcher(key, labels, fields)
    version = requests.version_of(request)
    bookmarks = requests.flag(request, "allowWatchBookmarks")
    timeout = requests.number(request, "timeoutSeconds") or random.randint(1800, 3600)  # noqa: S311  # not a secret
    response = web.StreamResponse(status=200, headers={"Cache-Control": "no-cache, private"})
    response.content_type = "application/json"
    response.enable_chunked_encoding()
    await response.prepare(request)
    try:
        if version > store.version:
            text = f"Timeout: Too large resource version: {version}, current: {store.version}"
            raise ApiError(504, text, details={"retryAfterSeconds": 1})
        watch = store.watch_since(key, version or store.version)
    except ApiError as error:
        await response.write(_line("ERROR", error.body))
        return response
    try:
        if version == 0:
            items, _ = store.list(key, target.namespace, labels=labels, fields=fields)
            await response.write(b"".join(_line("ADDED", obj) for obj in items))
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
                    await response.write(_bookmark(target, store.version))
                if over:
                    return response
                continue
            lines = b""
            while watch.events:
                event = watch.events.popleft()
                if not target.namespace or event.obj["metadata"].get("namespace") == target.namespace:
                    lines += _translate(event, matches)
            if watch.overflowed:
                lines += _line("ERROR", status.gone(version, store.version).body)
            if lines:
                await response.write(lines)
            if watch.overflowed:
                return response
    except ConnectionResetError:
        return response
    finally:
        store.unwatch(watch)
