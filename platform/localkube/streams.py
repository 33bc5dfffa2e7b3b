"""Logs, exec and port-forward: what a pod's process says and hears, over HTTP and WebSocket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Final

from aiohttp import web

from localkube import execs, portforward, requests, status
from localkube.requests import Target
from localkube.runtime import LogOptions, NodeRuntime
from localkube.status import ApiError, FieldError, Object
from localkube.store import Store

_HEADERS_AFTER_S: Final = 0.2


async def serve(store: Store, runtime: NodeRuntime, target: Target, request: web.BaseRequest) -> web.StreamResponse:
    """Answer a request for one of the streaming subresources of a pod. Raises ApiError before the stream begins."""
    assert target.name is not None
    pod = store.get("pods", target.namespace, target.name)
    if target.subresource == "log":
        if request.method != "GET":
            raise ApiError(405, "the server does not allow this method on the requested resource", details={})
        return await _logs(runtime, pod, request)
    if not pod["spec"].get("nodeName"):
        raise status.bad_request(f"pod {target.name} does not have a host assigned")
    if target.subresource == "portforward":
        return await portforward.serve(runtime, pod, request)
    return await execs.serve(runtime, pod, request)


def _since(request: web.BaseRequest, name: str) -> datetime | None:
    seconds = requests.number(request, "sinceSeconds")
    text = request.query.get("sinceTime")
    if seconds is not None and text:
        errors = [FieldError.forbidden("[]", "at most one of `sinceTime` or `sinceSeconds` may be specified")]
        raise status.invalid("", "PodLogOptions", name, errors)
    if seconds is not None:
        return datetime.now(UTC) - timedelta(seconds=seconds)
    if not text:
        return None
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError as error:
        raise status.bad_request(f'parsing time "{text}": {error}') from error


async def _logs(runtime: NodeRuntime, pod: Object, request: web.BaseRequest) -> web.StreamResponse:
    container = execs.container_of(pod, request.query.get("container"))
    tail, since = requests.number(request, "tailLines"), _since(request, pod["metadata"]["name"])
    if tail is not None and tail < 0:
        errors = [FieldError.invalid("tailLines", tail, "must be greater than or equal to 0")]
        raise status.invalid("", "PodLogOptions", pod["metadata"]["name"], errors)
    limit = requests.number(request, "limitBytes")
    if limit is not None and limit < 1:
        errors = [FieldError.invalid("limitBytes", limit, "must be greater than 0")]
        raise status.invalid("", "PodLogOptions", pod["metadata"]["name"], errors)
    if not pod["spec"].get("nodeName"):
        return web.Response(status=204)
    options = LogOptions(
        follow=requests.flag(request, "follow"),
        previous=requests.flag(request, "previous"),
        timestamps=requests.flag(request, "timestamps"),
        since=since,
        tail_lines=tail,
        limit_bytes=limit,
    )
    pieces = runtime.logs(pod, container, options)
    # Headers go out soon even if a followed log says nothing yet; a refusal comes before them.
    first = asyncio.ensure_future(anext(pieces, None))
    await asyncio.wait({first}, timeout=_HEADERS_AFTER_S)
    if first.done() and (error := first.exception()):
        raise error
    response = web.StreamResponse(status=200)
    response.content_type = "text/plain"
    response.enable_chunked_encoding()
    await response.prepare(request)
    try:
        piece = await first
        while piece is not None:
            await response.write(piece)
            piece = await anext(pieces, None)
    except (ConnectionResetError, ApiError):
        return response
    finally:
        first.cancel()
        await _close(pieces)
    return response


async def _close(pieces: AsyncIterator[bytes]) -> None:
    close = getattr(pieces, "aclose", None)
    if close:
        await close()
