"""The seam between the API server and the node: what the server calls, and what the node answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from localkube.config import Config
from localkube.status import ApiError, Object
from localkube.store import Store

STDIN, STDOUT, STDERR, ERROR, RESIZE = 0, 1, 2, 3, 4
"""Channels of the exec protocol (`v4.channel.k8s.io` and later)."""


@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """Which part of a log is wanted, and how."""

    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    since: datetime | None = None
    tail_lines: int | None = None
    limit_bytes: int | None = None


class ExecSession(Protocol):
    """One command in a container, as the server relays it."""

    @property
    def exit_code(self) -> int | None:
        """The command's exit code; None while it runs. 128 + n when signal n ended it."""

    async def read(self) -> tuple[int, bytes] | None:
        """The next output and its channel (STDOUT or STDERR); None after the command ended and all was read."""

    async def write(self, data: bytes) -> None:
        """Send to the command's input; empty bytes close it."""

    async def resize(self, width: int, height: int) -> None:
        """Tell the terminal its size in characters. Nothing happens without a terminal."""

    async def close(self) -> None:
        """The client went away: end the command if it still runs, and free what the session holds."""


class NodeRuntime(Protocol):
    """Everything behind the API that runs processes. Errors for the client are raised as ApiError."""

    async def start(self, store: Store, config: Config) -> None:
        """Register the node, adopt or finish what the store says should run here, and begin to follow the store."""

    async def stop(self) -> None:
        """End every process that was started, and release mounts and sockets."""

    def logs(self, pod: Object, container: str, options: LogOptions) -> AsyncIterator[bytes]:
        """The container's output in pieces; with `follow` until it ends.

        Write it as an async generator. Raises ApiError 400 before the first piece when there is no log yet.
        """

    async def exec(self, pod: Object, container: str, command: list[str], *, tty: bool, stdin: bool) -> ExecSession:
        """Start a command beside the container's own. Raises ApiError when the container does not run."""

    async def dial(self, pod: Object, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to a port inside the pod. Raises OSError when nothing listens there."""

    def check_pod(self, pod: Object) -> tuple[list[str], list[str]]:
        """(warnings, refusals) about fields of a new pod: stored but not acted on, and not possible at all."""


class NoNode:
    """The runtime of a server without a node: pods stay Pending. For tests of the API alone."""

    async def start(self, store: Store, config: Config) -> None:
        return None

    async def stop(self) -> None:
        return None

    def logs(self, pod: Object, container: str, options: LogOptions) -> AsyncIterator[bytes]:
        raise _no_node()

    async def exec(self, pod: Object, container: str, command: list[str], *, tty: bool, stdin: bool) -> ExecSession:
        raise _no_node()

    async def dial(self, pod: Object, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        raise _no_node()

    def check_pod(self, pod: Object) -> tuple[list[str], list[str]]:
        return [], []


def _no_node() -> ApiError:
    return ApiError(501, "this localkube runs without a node: no process is behind its pods")
