"""A real API server as benchmarks use it: asynchronous requests, what it has counted, and nodes that take any pod."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from kubekit.credentials import Credentials, parse_kubeconfig
from kubekit.kinds import kind_named

#: What kwok puts on its nodes to keep other pods away.
SIMULATED = "kwok.x-k8s.io/node"
_COUNT = re.compile(r"^apiserver_request_total\{(.*)\} ([0-9.e+]+)$")
_LABEL = re.compile(r'(\w+)="([^"]*)"')


def kubeconfig() -> Path | None:
    """The cluster that KUBECONFIG names; None, and a word about it, when there is none."""
    path = os.environ.get("KUBECONFIG", "")
    if path and Path(path).is_file():
        return Path(path)
    print(
        "KUBECONFIG names no cluster: this benchmark needs a real API server whose nodes are simulated.",
        file=sys.stderr,
    )
    return None


class Kube:
    """A bare asynchronous client: what it is asked for, and nothing else."""

    def __init__(self, credentials: Credentials, *, connections: int = 64) -> None:
        self.credentials = credentials
        self._connections = connections

    @classmethod
    def of(cls, path: Path, **options: Any) -> Kube:
        """The administrator of a kubeconfig."""
        return cls(parse_kubeconfig(path.read_text(encoding="utf-8")), **options)

    async def __aenter__(self) -> Kube:
        secure = self.credentials.ssl_context() if self.credentials.secure else False
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=secure, limit=self._connections),
            timeout=aiohttp.ClientTimeout(total=None, connect=60),
            headers=self.credentials.headers(),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def send(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Any:
        """One request; its answer, parsed."""
        data = None if body is None else json.dumps(body)
        url, headers = self.credentials.server + path, {"Content-Type": content_type}
        async with self._session.request(method, url, data=data, headers=headers) as answer:
            raw = await answer.read()
            if answer.status >= 300 and answer.status != 404:
                raise RuntimeError(f"{method} {path}: {answer.status} {raw[:300]!r}")
            return json.loads(raw)

    async def apply(self, obj: Mapping[str, Any]) -> Any:
        """Server-side apply, as the portal does it."""
        meta = obj["metadata"]
        path = kind_named(obj["kind"]).path(meta.get("namespace"), meta["name"])
        return await self.send("PATCH", f"{path}?fieldManager=mlportal&force=true", obj, "application/apply-patch+yaml")

    async def delete(self, kind: str, namespace: str | None, name: str) -> Any:
        """Delete one object, without a grace period."""
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
        return await self.send("DELETE", kind_named(kind).path(namespace, name), body)

    async def scale(self, namespace: str, name: str, replicas: int) -> Any:
        """Replicas of a StatefulSet."""
        path = kind_named("StatefulSet").path(namespace, name, "scale")
        body = {"spec": {"replicas": replicas}}
        return await self.send("PATCH", path, body, "application/merge-patch+json")

    async def watch(self, kind: str, namespace: str) -> AsyncIterator[tuple[str, Any]]:
        """Changes from now on."""
        path = kind_named(kind).path(namespace)
        version = (await self.send("GET", path))["metadata"]["resourceVersion"]
        url = f"{self.credentials.server}{path}?watch=1&resourceVersion={version}"
        async with self._session.get(url) as answer:
            pending = b""
            async for piece in answer.content.iter_any():
                *lines, pending = (pending + piece).split(b"\n")
                for line in lines:
                    event = json.loads(line)
                    yield event["type"], event["object"]

    async def requests(self) -> Counter[str]:
        """How many requests the server has answered so far, by verb and resource (``PATCH secrets``)."""
        async with self._session.get(f"{self.credentials.server}/metrics") as answer:
            text = await answer.text()
        found: Counter[str] = Counter()
        for line in text.splitlines():
            if line.startswith("apiserver_request_total{") and (match := _COUNT.match(line)):
                labels = dict(_LABEL.findall(match[1]))
                resource = "/".join(filter(None, (labels.get("resource"), labels.get("subresource"))))
                verb = "PATCH" if labels["verb"] == "APPLY" else labels["verb"]
                found[f"{verb} {resource}"] += int(float(match[2]))
        return found

    @asynccontextmanager
    async def open_nodes(self) -> AsyncIterator[int]:
        """Simulated nodes take every pod meanwhile, as the nodes of a cluster do; how many there are."""
        before: dict[str, list[Any]] = {}
        for node in (await self.send("GET", kind_named("Node").path()))["items"]:
            taints = node["spec"].get("taints") or []
            if any(taint["key"] == SIMULATED for taint in taints):
                before[node["metadata"]["name"]] = taints
        try:
            for name, taints in before.items():
                await self._taint(name, [taint for taint in taints if taint["key"] != SIMULATED])
            yield len(before)
        finally:
            for name, taints in before.items():
                await self._taint(name, taints)

    async def _taint(self, node: str, taints: list[Any]) -> None:
        body = {"spec": {"taints": taints}}
        await self.send("PATCH", kind_named("Node").path(None, node), body, "application/merge-patch+json")


async def bounded(count: int, at_once: int, work: Any) -> list[Any]:
    """``work(number)`` for each number below ``count``, so many at once."""
    gate = asyncio.Semaphore(at_once)

    async def one(number: int) -> Any:
        async with gate:
            return await work(number)

    return await asyncio.gather(*(one(number) for number in range(count)))
