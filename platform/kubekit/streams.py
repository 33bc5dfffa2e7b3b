"""Asynchronous streams of a cluster: watch, log, exec and port-forward, over aiohttp with the same `Credentials`.

The official client's streams are synchronous and its port-forward thirty times slower. Exec and port-forward speak
WebSocket with the subprotocol ``v4.channel.k8s.io``: each frame begins with one byte that names its channel. One
`Streams` holds one aiohttp session of the running event loop; close it in the same loop.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from types import TracebackType
from typing import Any, Self

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from kubekit import collector
from kubekit.credentials import Credentials
from kubekit.errors import BadAnswer, KubeError, TlsFailure, Unreachable, error_from_status
from kubekit.kinds import kind_named
from kubekit.names import selector_text
from kubekit.tunnel import ExecSession, Tunnel

Obj = dict[str, Any]

#: Longest line of a watch; an object may be 1.5 MiB in etcd and grows a little in JSON.
_MAX_LINE = 8 << 20
_CHUNK = 64 << 10
_HEARTBEAT_S = 30.0
_SUBPROTOCOL = "v4.channel.k8s.io"


class Streams:
    """The streaming half of a cluster. Use as an async context manager, or call `close`.

    ``connect_timeout_s`` bounds each connection's set-up. Read time-outs are each method's own, because a log may be
    silent for days while a watch may not.
    """

    def __init__(self, credentials: Credentials, *, connect_timeout_s: float = 5.0) -> None:
        self.credentials = credentials
        self._connect_timeout_s = connect_timeout_s
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the session and every stream on it."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    # -- reads -------------------------------------------------------------------------------------------------

    async def list_page(
        self,
        kind: str,
        namespace: str | None = None,
        *,
        labels: Mapping[str, str] | None = None,
        limit: int = 500,
        continue_token: str | None = None,
        trim: Callable[[Obj], Obj] | None = None,
        read_timeout_s: float = 30.0,
    ) -> Obj:
        """One page of a list as the server sent it (``items``, ``metadata.continue``, ``metadata.resourceVersion``),
        its items as ``trim`` leaves them."""
        query = {"limit": str(limit)}
        if labels:
            query["labelSelector"] = selector_text(labels)
        if continue_token:
            query["continue"] = continue_token
        path = kind_named(kind).path(namespace)
        with closing(await self._get(path, query, read_timeout_s)) as response:
            try:
                page = _parsed(await _whole(response), trim)
            except ValueError as error:
                raise BadAnswer(f"GET {path} was not answered with JSON", status=response.status) from error
        if not isinstance(page, dict):
            raise BadAnswer(f"GET {path} was not answered with a list", status=200)
        return page

    async def watch(
        self,
        kind: str,
        namespace: str | None = None,
        *,
        resource_version: str | None = None,
        labels: Mapping[str, str] | None = None,
        timeout_s: int = 50,
        read_timeout_s: float = 58.0,
    ) -> AsyncIterator[Obj]:
        """Raw watch events ``{"type", "object"}``, bookmarks included, until the server ends the watch.

        ``timeout_s`` is the server's own limit. After ``read_timeout_s`` without a byte the connection is taken for
        half open and `Unreachable` is raised (failure F1). An ERROR event (410 arrives that way, inside HTTP 200)
        is raised as the `KubeError` it carries.
        """
        query = {"watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": str(timeout_s)}
        if resource_version is not None:
            query["resourceVersion"] = resource_version
        if labels:
            query["labelSelector"] = selector_text(labels)
        with closing(await self._get(kind_named(kind).path(namespace), query, read_timeout_s)) as response:
            async for line in _lines(response):
                try:
                    event = json.loads(line)
                except ValueError as error:
                    raise BadAnswer("a watch sent a line that is not JSON", status=200) from error
                if event.get("type") == "ERROR":
                    raise error_from_status(event.get("object") or {}, http_status=500)
                yield event

    async def follow_log(
        self,
        namespace: str,
        pod: str,
        container: str,
        *,
        since_time: str | None = None,
        timestamps: bool = True,
        follow: bool = True,
        read_timeout_s: float | None = None,
    ) -> AsyncIterator[bytes]:
        """The container's log as it comes, in pieces of any length, until the container ends.

        ``since_time`` (RFC 3339) is inclusive, so a line already seen may come again: with ``timestamps`` each line
        begins with its time, and that is how to tell. Raises `BadRequest` while the container has not started.
        """
        query = {"container": container}
        if follow:
            query["follow"] = "true"
        if timestamps:
            query["timestamps"] = "true"
        if since_time is not None:
            query["sinceTime"] = since_time
        path = kind_named("Pod").path(namespace, pod, "log")
        with closing(await self._get(path, query, read_timeout_s)) as response:
            try:
                async for piece in response.content.iter_chunked(_CHUNK):
                    yield piece
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise Unreachable(f"the log of {pod} broke off: {error or 'no byte in time'}") from error

    # -- WebSockets --------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def exec(
        self,
        namespace: str,
        pod: str,
        container: str,
        command: Sequence[str],
        *,
        stdin: bool = False,
        tty: bool = False,
    ) -> AsyncIterator[ExecSession]:
        """Run a command in a container; see `ExecSession` (and `run` for the short form)."""
        query = [("container", container), ("stdout", "true"), *(("command", word) for word in command)]
        if stdin:
            query.append(("stdin", "true"))
        query.append(("tty", "true") if tty else ("stderr", "true"))
        async with self._websocket(kind_named("Pod").path(namespace, pod, "exec"), query) as websocket:
            yield ExecSession(websocket)

    async def run(
        self,
        namespace: str,
        pod: str,
        container: str,
        command: Sequence[str],
        *,
        stdin: bytes = b"",
        timeout_s: float = 30.0,
        limit_bytes: int = 1 << 20,
    ) -> tuple[int, bytes, bytes]:
        """Run a command to its end: (exit code, stdout, stderr), each cut at ``limit_bytes``.

        ``stdin`` is sent and not closed, because the protocol cannot close it: the command must know how much to read
        (``head -c``). Raises `Unreachable` after ``timeout_s``; the command may then still run (``maybe_done``).
        """
        try:
            async with asyncio.timeout(timeout_s):
                async with self.exec(namespace, pod, container, command, stdin=bool(stdin)) as session:
                    if stdin:
                        await session.write(stdin)
                    return await session.finish(limit_bytes=limit_bytes)
        except TimeoutError as error:
            raise Unreachable(f"{command[0]} in {pod} did not end in {timeout_s} s", maybe_done=True) from error

    @asynccontextmanager
    async def port_forward(self, namespace: str, pod: str, port: int) -> AsyncIterator[Tunnel]:
        """One connection to a TCP port inside the pod; see `Tunnel`."""
        path = kind_named("Pod").path(namespace, pod, "portforward")
        async with self._websocket(path, [("ports", str(port))]) as websocket:
            yield Tunnel(websocket)

    # -- transport ---------------------------------------------------------------------------------------------

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            credentials = self.credentials
            connector = aiohttp.TCPConnector(
                ssl=credentials.ssl_context() if credentials.secure else False,
                limit=0,
                keepalive_timeout=30,
                resolver=_Pinned(credentials.addresses) if credentials.addresses else None,
                socket_factory=_watched_socket,
            )
            # trust_env stays off: no proxy, no .netrc of whoever runs the portal.
            self._session = aiohttp.ClientSession(
                connector=connector,
                headers={"User-Agent": "mlportal", **credentials.headers()},
                auto_decompress=True,
            )
        return self._session

    def _url(self, path: str, query: Sequence[tuple[str, str]]) -> URL:
        return URL(self.credentials.server + path, encoded=True).with_query(query)

    async def _get(self, path: str, query: Mapping[str, str], read_timeout_s: float | None) -> aiohttp.ClientResponse:
        """A good answer whose body is still to be read; close it (an unread stream must not go back to the pool)."""
        server = self.credentials.server
        timeout = aiohttp.ClientTimeout(
            total=None, connect=self._connect_timeout_s, sock_connect=self._connect_timeout_s, sock_read=read_timeout_s
        )
        try:
            response = await self._open().get(
                self._url(path, list(query.items())),
                timeout=timeout,
                allow_redirects=False,
                server_hostname=self.credentials.tls_server_name,
                headers={"Accept": "application/json, */*"},
            )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _unreachable(server, error) from error
        if response.status != 200:
            with closing(response):
                raise await _refusal(response)
        return response

    @asynccontextmanager
    async def _websocket(
        self, path: str, query: Sequence[tuple[str, str]]
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        server = self.credentials.server
        try:
            async with asyncio.timeout(self._connect_timeout_s * 2):
                websocket = await self._open().ws_connect(
                    self._url(path, query),
                    protocols=(_SUBPROTOCOL,),
                    max_msg_size=0,
                    heartbeat=_HEARTBEAT_S,
                    server_hostname=self.credentials.tls_server_name,
                    # Reads in the kernel's own sizes; deflate would cost more than it saves on a local network.
                    compress=0,
                )
        except aiohttp.WSServerHandshakeError as error:
            # aiohttp does not keep the body of a refused upgrade; the status and what was asked have to do.
            what = "/".join(path.split("/")[-3:])
            raise error_from_status(
                {"message": f"{what} was refused ({error.status})"}, http_status=error.status
            ) from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _unreachable(server, error) from error
        try:
            yield websocket
        finally:
            await websocket.close()


class _Pinned(AbstractResolver):
    """Answers the addresses that were checked, whatever the name leads to by now (failure F47)."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = addresses

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST,
            )
            for address in self._addresses
        ]

    async def close(self) -> None:
        """Nothing is held."""


def _watched_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """A socket whose other end is asked for a sign of life: a log may be silent for days, a dead line must not be."""
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 60_000)
    made.setblocking(False)
    return made


def _unreachable(server: str, error: BaseException) -> Unreachable:
    if isinstance(error, aiohttp.ClientSSLError):
        return TlsFailure(f"no trusted connection to {server}: {error}")
    return Unreachable(f"{server} does not answer: {str(error) or type(error).__name__}")


def _parsed(raw: bytes, trim: Callable[[Obj], Obj] | None) -> Any:
    """JSON, with the collector at rest. Raises ValueError."""
    with collector.at_rest():
        page = json.loads(raw)
        if trim is not None and isinstance(page, dict):
            page["items"] = [trim(item) for item in page.get("items") or ()]
        return page


async def _whole(response: aiohttp.ClientResponse) -> bytes:
    try:
        return await response.read()
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise Unreachable(f"an answer broke off: {str(error) or type(error).__name__}") from error


async def _refusal(response: aiohttp.ClientResponse) -> KubeError:
    raw = await _whole(response)
    try:
        body = json.loads(raw)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        body = {"message": raw[:500].decode("utf-8", "replace")}
    header = response.headers.get("Retry-After", "")
    return error_from_status(
        body, http_status=response.status, retry_after_s=float(header) if header.isdigit() else None
    )


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Lines of any length up to `_MAX_LINE`; aiohttp's own reader gives up at its buffer's size."""
    pending = bytearray()
    try:
        async for piece in response.content.iter_any():
            pending += piece
            if b"\n" in piece:
                *complete, rest = bytes(pending).split(b"\n")
                pending = bytearray(rest)
                for line in complete:
                    if line.strip():
                        yield line
            elif len(pending) > _MAX_LINE:
                raise BadAnswer("a watch sent a line without end", status=200)
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise Unreachable(f"a watch broke off: {str(error) or 'no byte in time'}") from error
