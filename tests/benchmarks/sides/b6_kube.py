"""B6: an API server that only plays one: lists in pages, watches, and counts what it was asked.

``POST /bench`` makes things happen: ``{"op": "change", "pods": N, "rate": R}`` sends N MODIFIED events (R a second, 0:
as fast as they are taken) and answers when each was sent and the last one's version; ``expire`` ends every watch of
pods as history that is gone; ``watched`` answers how many there are, ``counts`` answers what was asked and forgets it.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from typing import Any

from aiohttp import web

from tests.benchmarks.sides import b6_pods as pods

GONE = {"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": "too old resource version"}


Listeners = dict[asyncio.Queue[bytes | None], web.Request]


class Server:
    """The pods as bytes around their versions."""

    def __init__(self) -> None:
        parts = [pods.text(number).split(pods.MARK) for number in range(pods.PODS)]
        self.parts = [(head.encode(), tail.encode()) for head, tail in parts]
        self.version = 1000
        self.versions = [1000] * pods.PODS
        self.queues: Listeners = {}
        self.counts: Counter[str] = Counter()

    def pod(self, number: int) -> bytes:
        """One pod's text."""
        head, tail = self.parts[number]
        return head + str(self.versions[number]).encode() + tail

    async def list_or_watch(self, request: web.Request) -> web.StreamResponse:
        """``GET /api/v1/pods``."""
        if request.query.get("watch") in ("1", "true", "True"):
            return await self._watch(request, self.queues)
        self.counts["pages of pods"] += 1
        first = int(request.query.get("continue") or 0)
        last = min(first + int(request.query.get("limit") or pods.PODS), pods.PODS)
        more = f',"continue":"{last}"' if last < pods.PODS else ""
        head = f'{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"{self.version}"{more}}},"items":['
        body = head.encode() + b",".join(self.pod(number) for number in range(first, last)) + b"]}"
        self.counts["bytes"] += len(body)
        return web.Response(body=body, content_type="application/json")

    async def other(self, request: web.Request) -> web.StreamResponse:
        """All else: nothing is there, and single objects are not found."""
        if request.path == "/version":
            self.counts["version"] += 1
            return web.json_response({"major": "1", "minor": "36", "gitVersion": "v1.36.3"})
        if request.query.get("watch") in ("1", "true", "True"):
            return await self._watch(request, {})
        self.counts[f"{request.method} others"] += 1
        if request.path.rpartition("/")[2] in ("nodes", "events", "persistentvolumeclaims"):
            return web.json_response({"items": [], "metadata": {"resourceVersion": str(self.version)}})
        return web.json_response({"kind": "Status", "code": 404, "reason": "NotFound", "message": "-"}, status=404)

    async def _watch(self, request: web.Request, listeners: Listeners) -> web.StreamResponse:
        self.counts["watches"] += 1
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        listeners[queue] = request
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        try:
            await response.prepare(request)
            async with asyncio.timeout(float(request.query.get("timeoutSeconds") or 300)):
                while (line := await queue.get()) is not None:
                    await response.write(line)
            await response.write(json.dumps({"type": "ERROR", "object": GONE}).encode() + b"\n")
        except (TimeoutError, ConnectionError):
            pass
        finally:
            listeners.pop(queue, None)
        return response

    async def bench(self, request: web.Request) -> web.Response:
        """What the benchmark asks for."""
        asked: dict[str, Any] = await request.json()
        if asked["op"] == "change":
            return web.json_response(await self._change(int(asked["pods"]), float(asked["rate"])))
        if asked["op"] == "expire":
            for queue in self.queues:
                queue.put_nowait(None)
        if asked["op"] == "watched":
            return web.json_response(self._watchers())
        found, self.counts = dict(self.counts), Counter()
        return web.json_response(found)

    def _watchers(self) -> dict[str, int]:
        """How many watches of pods are open, of this project and of others."""
        found = {"ours": 0, "others": 0}
        for request in self.queues.values():
            if request.transport is not None and not request.transport.is_closing():
                found["ours" if request.headers.get("User-Agent") == "mlportal" else "others"] += 1
        return found

    async def _change(self, count: int, rate: float) -> dict[str, Any]:
        sent: dict[str, float] = {}
        begun = time.monotonic()
        for number in range(count):
            if rate and (ahead := begun + number / rate - time.monotonic()) > 0:
                await asyncio.sleep(ahead)
            self.version += 1
            self.versions[number] = self.version
            line = b'{"type":"MODIFIED","object":' + self.pod(number) + b"}\n"
            sent[str(pods.instance_id(number))] = time.monotonic()
            for queue in self.queues:
                queue.put_nowait(line)
            if not rate and number % 50 == 49:
                await asyncio.sleep(0)
        return {"sent": sent, "version": self.version}


def main() -> None:
    """Serve on a port of its own choice, which it says."""
    server = Server()

    async def run() -> None:
        application = web.Application()
        application.router.add_get("/api/v1/pods", server.list_or_watch)
        application.router.add_post("/bench", server.bench)
        application.router.add_route("*", "/{rest:.*}", server.other)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        sys.stdout.write(json.dumps({"port": runner.addresses[0][1], "bytes": len(server.pod(0))}) + "\n")
        sys.stdout.flush()
        await asyncio.Event().wait()

    asyncio.run(run())


if __name__ == "__main__":
    main()
