"""A dev instance entered by programs: cookie by ticket, kernels, terminals, and its pod from inside the cluster."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlencode, urlsplit

import aiohttp

from kubekit import names
from kubekit.credentials import parse_kubeconfig
from kubekit.errors import KubeError
from kubekit.streams import Streams
from kubekit.tunnel import Tunnel
from tests.journeys.portal import Answer, Portal, wait_until


def in_a_loop(work: Coroutine[Any, Any, Any]) -> Any:
    """Run it to its end in a thread of its own: this one may hold the browser's event loop."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


@dataclass
class Entered:
    """An instance of the administrator in the queue ``default``."""

    portal: Portal
    id: str
    name: str
    host: str

    @classmethod
    def launch(cls, portal: Portal, name: str) -> Self:
        """Make one and wait until JupyterLab answers. What earlier tests deleted may hold quota until it is gone."""
        wanted = {"name": name, "image": "jupyter", "size": "small", "queue": "default"}
        answers: list[Answer] = []

        def has_room() -> bool:
            answers.append(portal.api("POST", "instances", wanted))
            return answers[-1].status != 409 or answers[-1].json["code"] != "over_quota"

        wait_until(f"room for {name}", has_room, seconds=180)
        made = answers[-1]
        assert made.status == 201, made.body
        found = cls(portal, made.json["id"], name, urlsplit(made.json["url"]).hostname or "")
        wait_until(f"instance {name} that runs", lambda: found.item()["state"] == "running", seconds=180)
        wait_until("lab that answers", lambda: found.ask("/api/status", key=found.key()).status == 200, seconds=60)
        return found

    def item(self) -> Any:
        """As REST shows it."""
        return self.portal.api("GET", f"instances/{self.id}").json

    def key(self) -> str:
        """The key, asked for as its owner."""
        answer = self.portal.api("GET", f"instances/{self.id}/key")
        assert answer.status == 200, answer.body
        key: str = answer.json["key"]
        return key

    def ask(self, path: str, *, key: str = "", cookie: str = "", method: str = "GET", body: Any = None) -> Answer:
        """A request to its own host."""
        headers = {"Cookie": cookie} if cookie else {}
        data = None if body is None else json.dumps(body).encode()
        return self.portal.at_instance(self.host, path, key=key, method=method, body=data, headers=headers)

    def ticket(self) -> str:
        """A one-time ticket."""
        answer = self.portal.api("POST", f"instances/{self.id}/ticket")
        assert answer.status == 200, answer.body
        ticket: str = answer.json["ticket"]
        return ticket

    def enter(self, ticket: str, *, headers: Mapping[str, str] | None = None) -> Answer:
        """Post a ticket as the portal's page does."""
        sent = {"Content-Type": "application/x-www-form-urlencoded", **(headers or {})}
        body = urlencode({"ticket": ticket}).encode()
        return self.portal.at_instance(self.host, "/portal/enter", method="POST", body=body, headers=sent)

    def cookie(self) -> str:
        """What one click of the owner leaves in the browser."""
        answer = self.enter(self.ticket())
        assert answer.status == 303, answer.body
        return answer.headers["Set-Cookie"].partition(";")[0]

    def delete(self) -> None:
        """Away with it."""
        self.portal.api("DELETE", f"instances/{self.id}")

    # --- web sockets, and the pod from inside the cluster ---------------------------------------------------------

    async def socket(
        self, session: aiohttp.ClientSession, path: str, **headers: str
    ) -> aiohttp.ClientWebSocketResponse:
        """A web socket to its host."""
        return await session.ws_connect(
            f"{self.portal.url}{path}", headers={"Host": f"{self.host}:{self.portal.port}", **headers}
        )

    def from_inside(self, use: Callable[[Streams, str, str], Awaitable[Any]]) -> Any:
        """``use(streams, namespace, pod)``, past every route."""

        kubeconfig = (self.portal.home / "localkube" / "kubeconfig").read_text()

        async def run() -> Any:
            async with Streams(parse_kubeconfig(kubeconfig)) as streams:
                return await use(streams, namespace, names.instance_pod_name(self.name, self.id))

        namespace = self.portal.api("GET", "queues").json["items"][0]["namespace"]
        return in_a_loop(run())

    def run(self, *command: str) -> str:
        """What a command in the pod prints."""

        async def use(streams: Streams, namespace: str, pod: str) -> str:
            code, output, errors = await streams.run(namespace, pod, "main", command, timeout_s=60)
            assert code == 0, errors
            return output.decode()

        text: str = self.from_inside(use)
        return text

    async def knock(self, tunnel: Tunnel, key: str) -> int:
        """The status of one request on a connection to the pod's port that stays open; 0 when it does not any more."""
        asked = f"GET /api/status HTTP/1.1\r\nHost: x\r\nAuthorization: token {key}\r\n\r\n"
        found = b""
        try:
            async with asyncio.timeout(30):
                await tunnel.write(asked.encode())
                while b"\r\n\r\n" not in found:
                    found += await self._more(tunnel)
                head, _, body = found.partition(b"\r\n\r\n")
                length = re.search(rb"(?i)content-length: (\d+)", head)
                while length and len(body) < int(length[1]):
                    body += await self._more(tunnel)
        except (KubeError, TimeoutError, ConnectionError):
            return 0
        return int(head.split(b" ", 2)[1])

    @staticmethod
    async def _more(tunnel: Tunnel) -> bytes:
        piece = await tunnel.read()
        if not piece:
            raise ConnectionResetError
        return piece
