"""Scripted API servers for B4: each takes pods after a delay, counts what it is asked, and never starts one."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
import uuid
from collections import Counter
from typing import Any

from aiohttp import web


class Server:
    """One cluster."""

    def __init__(self) -> None:
        self.latency_s = 0.0
        self.forget()

    def forget(self) -> None:
        """Begin anew."""
        self.asked: Counter[str] = Counter()
        self.names: set[str] = set()
        self.first = self.last = 0.0

    async def handle(self, request: web.Request) -> web.Response:
        """Any request of the portal, and those of the benchmark below ``/bench``."""
        if request.path == "/bench":
            answer = {
                "asked": self.asked, "pods": len(self.names), "first": self.first, "last": self.last,
            }  # fmt: skip
            if "latency_ms" in request.query:
                self.latency_s = float(request.query["latency_ms"]) / 1000
                self.forget()
            return web.json_response(answer)
        now = time.monotonic()
        self.first = self.first or now
        body: dict[str, Any] = json.loads(await request.read() or b"{}")
        self.asked[f"{request.method} {request.path.rsplit('/', 1)[1]}"] += 1
        if self.latency_s:
            await asyncio.sleep(self.latency_s)
        if request.method != "POST":
            return web.json_response({"kind": "Status", "code": 404, "reason": "NotFound"}, status=404)
        self.last = time.monotonic()
        name = body["metadata"]["name"]
        if name in self.names:
            return web.json_response({"kind": "Status", "code": 409, "reason": "AlreadyExists"}, status=409)
        self.names.add(name)
        body["metadata"] |= {"uid": str(uuid.uuid4()), "resourceVersion": str(len(self.names))}
        return web.json_response(body | {"status": {"phase": "Pending"}}, status=201)


async def main(count: int) -> None:
    """Serve until standard input ends; the ports are the first line of the output."""
    ports = []
    for _ in range(count):
        application = web.Application(client_max_size=8 << 20)
        application.router.add_route("*", "/{rest:.*}", Server().handle)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        ports.append(runner.addresses[0][1])
    print(json.dumps(ports), flush=True)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(int(os.environ["BENCH_SERVERS"])))
