"""Commands beside a container's own program: `kubectl exec`, and exec probes."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import itertools
import os
import signal
import socket
import struct
import termios
from typing import TYPE_CHECKING, Any

from localkube.node import containers
from localkube.node.agents import Agent, AgentError, wake
from localkube.node.podstatus import ContainerState
from localkube.runtime import STDERR, STDOUT
from localkube.status import ApiError, bad_request

if TYPE_CHECKING:
    from localkube.node.worker import Worker

_numbers = itertools.count()
_PIECE = 32768
_TERMINAL_S = 5.0
"""How long the container may take to open a terminal."""


class Session:
    """See runtime.ExecSession. With a terminal everything goes through `master`; otherwise there are three pipes."""

    def __init__(self, agent: Agent, name: str, channel: socket.socket) -> None:
        self._agent, self._name, self._channel = agent, name, channel
        self._queue: asyncio.Queue[tuple[int, bytes] | None] = asyncio.Queue(maxsize=64)
        self._input: int | None = None
        self._master: int | None = None
        self._readers: list[asyncio.Task[None]] = []
        self._code: int | None = None
        self._waiter: asyncio.Task[dict[str, Any]] | None = None
        self._ended = False

    @property
    def exit_code(self) -> int | None:
        return self._code

    def begin(self, outputs: dict[int, int], input_fd: int | None, master: int | None) -> None:
        """Start to read the command's output: descriptor -> channel."""
        self._input, self._master = input_fd, master
        self._waiter = asyncio.create_task(self._agent.wait(self._name))
        self._readers = [asyncio.create_task(self._pump(fd, channel)) for fd, channel in outputs.items()]
        self._readers.append(asyncio.create_task(self._finish(list(self._readers))))

    async def _pump(self, fd: int, channel: int) -> None:
        os.set_blocking(fd, False)
        loop = asyncio.get_running_loop()
        try:
            while True:
                ready: asyncio.Future[None] = loop.create_future()
                loop.add_reader(fd, wake, ready)
                try:
                    await ready
                finally:
                    loop.remove_reader(fd)
                try:
                    data = os.read(fd, _PIECE)
                except BlockingIOError:
                    continue
                except OSError:  # EIO: the terminal's last process has gone
                    return
                if not data:
                    return
                await self._queue.put((channel, data))
        finally:
            if fd != self._master:
                os.close(fd)

    async def _finish(self, pumps: list[asyncio.Task[None]]) -> None:
        assert self._waiter is not None
        try:
            self._code = int((await self._waiter)["code"])
        except AgentError:
            self._code = 137
        # A process that the command left in the background may hold the output open: do not wait for it for ever.
        await asyncio.wait(pumps, timeout=0.5)
        for pump in pumps:
            pump.cancel()
        await self._queue.put(None)

    async def read(self) -> tuple[int, bytes] | None:
        if self._ended:
            return None
        piece = await self._queue.get()
        self._ended = piece is None
        return piece

    async def write(self, data: bytes) -> None:
        target = self._input if self._master is None else self._master
        if target is None:
            return
        if not data:
            if self._master is not None:
                data = b"\x04"  # end of input, as a terminal says it
            else:
                os.close(target)
                self._input = None
                return
        loop = asyncio.get_running_loop()
        os.set_blocking(target, False)
        while data:
            try:
                data = data[os.write(target, data) :]
            except BlockingIOError:
                ready: asyncio.Future[None] = loop.create_future()
                loop.add_writer(target, wake, ready)
                try:
                    await ready
                finally:
                    loop.remove_writer(target)
            except OSError:  # the command closed its input
                return

    async def resize(self, width: int, height: int) -> None:
        if self._master is not None:
            fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    async def close(self) -> None:
        if self._code is None:
            await self._agent.signal(self._name, signal.SIGKILL)
        for task in self._readers:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        if self._waiter:
            self._waiter.cancel()
        for fd in {self._input, self._master} - {None}:
            with contextlib.suppress(OSError):
                os.close(fd)  # type: ignore[arg-type]
        self._input = self._master = None
        self._channel.close()


async def open_session(
    worker: Worker, container: ContainerState, command: list[str], *, tty: bool, stdin: bool
) -> Session:
    """Start a command in a running container. Raises ApiError when it does not run."""
    agent = worker.agent
    if agent is None or not container.running_since or container.terminated:
        raise bad_request(f"container {container.name} is not running")
    spec = worker.spec_of(container.name)
    env = containers.environment(worker.pod, spec)
    if tty:
        env.setdefault("TERM", "xterm")
    pairs = [] if tty else [os.pipe() for _ in range(3)]
    theirs = [pairs[0][0], pairs[1][1], pairs[2][1]] if pairs else []
    name = f"exec-{os.getpid()}-{next(_numbers)}"  # an agent may still know those of an earlier localkube
    try:
        pid, channel = await agent.exec(
            name,
            container=f"{container.name}.{container.restarts}",
            argv=command,
            env=env,
            cwd=spec.get("workingDir") or "/root",
            tty=tty,
            fds=theirs,
        )
        group = worker.launcher.group(container.name)
        if group:
            with contextlib.suppress(OSError):
                group.add(pid)
        await agent.go(name)
        session = Session(agent, name, channel)
        if tty:
            async with asyncio.timeout(_TERMINAL_S):
                _, fds = await agent.receive(channel)
            session.begin({fds[0]: STDOUT}, None, fds[0])
        else:
            input_fd: int | None = pairs[0][1]
            if not stdin:
                os.close(pairs[0][1])
                input_fd = None
            session.begin({pairs[1][0]: STDOUT, pairs[2][0]: STDERR}, input_fd, None)
    except (AgentError, TimeoutError) as error:
        for pair in pairs:
            for fd in set(pair) - set(theirs):
                os.close(fd)
        raise ApiError(500, f"Internal error occurred: {error}") from error
    finally:
        for fd in theirs:
            os.close(fd)
    return session
