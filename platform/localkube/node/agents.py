"""localkube's side of a pod's agent (agent.py): starting it, finding it again, asking it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import localkube
from localkube.node.sandbox import pack

_PLATFORM = str(Path(localkube.__file__).parents[1])
_PROGRAM = f"import sys; sys.path.insert(0, {_PLATFORM!r}); from localkube.node.agent import main; main()"
_MAX_PACKET = 400_000
_MAX_FDS = 8
_SET_UP_S = 5.0
"""How long a command waits for a container whose sandbox is still being set up."""


class AgentError(RuntimeError):
    """The agent refused, or the machine did. `errno` as the system gave it."""

    def __init__(self, message: str, number: int = errno.EIO) -> None:
        super().__init__(message)
        self.errno = number


class AgentGone(AgentError):
    """Nobody answers: the agent, and with it every process of the pod, has ended."""


class Agent:
    """One pod's agent, as the rest of the node uses it. `folder` is the pod's folder on the host."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pid = 0
        self._attached: socket.socket | None = None

    @classmethod
    async def launch(cls, folder: Path, config: dict[str, Any]) -> Agent:
        """Start an agent with `config` (see agent.main) and wait until its namespaces stand. Raises AgentError."""
        made = cls(folder)
        (folder / "agent.sock").unlink(missing_ok=True)
        path = folder / "agent.json"
        path.write_text(json.dumps({**config, "folder": str(folder)}), encoding="utf-8")
        path.chmod(0o600)
        with (folder / "agent.log").open("ab") as errors:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-I",
                "-S",
                "-c",
                _PROGRAM,
                str(path),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
                cwd="/",
                env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
            )
        assert process.stdout is not None
        try:
            line = await process.stdout.readline()
            if not line:
                text = (folder / "agent.log").read_text(encoding="utf-8", errors="replace").strip()
                raise AgentError(f"the pod's agent ended at its start: {text[-300:]}")
            answer = json.loads(line)
            if "error" in answer:
                raise AgentError(answer["error"], answer["errno"])
            await made.attach()
        except asyncio.CancelledError:  # the pod ends before it began: nobody else would ever end the agent
            process.kill()
            await process.wait()
            made.detach()
            (folder / "agent.sock").unlink(missing_ok=True)
            raise
        return made

    @classmethod
    async def find(cls, folder: Path) -> Agent | None:
        """The agent that still runs in this pod's folder, from before a restart of localkube; None if it ended."""
        found = cls(folder)
        try:
            await found.attach()
        except AgentGone:
            return None
        return found

    async def attach(self) -> None:
        """Hold a connection open: an agent that nobody holds ends its pod after a while."""
        self._attached = self._connect()
        self.pid = (await self.status())["pid"]

    def _connect(self) -> socket.socket:
        directory = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            # By descriptor: the path of a socket may be 107 bytes long at most, that of a data folder may be longer.
            sock.connect(f"/proc/self/fd/{directory}/agent.sock")
        except OSError as error:
            sock.close()
            raise AgentGone(f"the pod's agent is gone: {error.strerror}", error.errno or errno.ECONNREFUSED) from error
        finally:
            os.close(directory)
        sock.setblocking(False)
        return sock

    async def ask(self, op: str, fds: Sequence[int] = (), **fields: Any) -> dict[str, Any]:
        """One request, one answer. Raises AgentError."""
        with self._connect() as sock:
            return (await self._exchange(sock, op, fds, fields))[0]

    async def _exchange(
        self, sock: socket.socket, op: str, fds: Sequence[int], fields: dict[str, Any]
    ) -> tuple[dict[str, Any], list[int]]:
        try:
            socket.send_fds(sock, [json.dumps({"op": op, **fields}).encode()], list(fds))
        except OSError as error:
            raise AgentGone(f"the pod's agent is gone: {error.strerror}", error.errno or errno.EPIPE) from error
        return await self.receive(sock)

    @staticmethod
    async def receive(sock: socket.socket) -> tuple[dict[str, Any], list[int]]:
        """The next packet on a connection, with the descriptors that came along. Raises AgentError."""
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        loop.add_reader(sock, wake, ready)
        try:
            await ready
        finally:
            loop.remove_reader(sock)
        try:
            packet, fds, _, _ = socket.recv_fds(sock, _MAX_PACKET, _MAX_FDS)
        except OSError as error:
            raise AgentGone(f"the pod's agent is gone: {error.strerror}") from error
        if not packet:
            raise AgentGone("the pod's agent is gone")
        answer = json.loads(packet)
        if "error" in answer:
            raise AgentError(answer["error"], answer.get("errno", errno.EIO))
        return answer, fds

    async def status(self) -> dict[str, Any]:
        """{"pid", "children": [...]} of the agent."""
        return await self.ask("status")

    async def start(self, name: str, *, options: list[str], argv: Sequence[str], log: str, record: str) -> int:
        """Fork a container that waits for `go`; returns the pid to put under limits. `record` names its exit's file."""
        packed = os.memfd_create("sandbox", os.MFD_CLOEXEC)
        try:
            os.write(packed, pack(options))
            os.lseek(packed, 0, os.SEEK_SET)
            answer = await self.ask("start", [packed], name=name, argv=list(argv), log=log, record=record)
        finally:
            os.close(packed)
        return int(answer["pid"])

    async def go(self, name: str) -> str:
        """Let a forked container or command run; returns when it started (RFC 3339, nanoseconds)."""
        return str((await self.ask("go", name=name))["started"])

    async def wait(self, name: str) -> dict[str, Any]:
        """Until it has ended and its output is read: {"code", "started", "finished", "no_start"}."""
        return await self.ask("wait", name=name)

    async def signal(self, name: str, number: int) -> None:
        """Signal the program of a container; SIGKILL ends everything in it. Nothing happens when it has ended."""
        with contextlib.suppress(AgentGone):
            await self.ask("signal", name=name, signal=int(number))

    async def exec(
        self, name: str, *, container: str, argv: list[str], env: dict[str, str], cwd: str, tty: bool, fds: list[int]
    ) -> tuple[int, socket.socket]:
        """Fork a command into a running container. Returns its pid and the connection on which its terminal comes."""
        sock = self._connect()
        fields = {"name": name, "container": container, "argv": argv, "env": env, "cwd": cwd, "tty": tty}
        deadline = time.monotonic() + _SET_UP_S
        while True:
            try:
                answer, _ = await self._exchange(sock, "exec", fds, fields)
                return int(answer["pid"]), sock
            except BaseException as error:
                being_set_up = isinstance(error, AgentError) and error.errno == errno.EAGAIN
                if not being_set_up or time.monotonic() > deadline:
                    sock.close()
                    raise
            await asyncio.sleep(0.01)

    async def dial(self, port: int) -> socket.socket:
        """A connection to a port of the pod, made inside its network namespace. Raises OSError, as connect does."""
        with self._connect() as channel:
            _, fds = await self._exchange(channel, "socket", (), {})
        sock = socket.socket(fileno=fds[0])
        sock.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
        except BaseException:
            sock.close()
            raise
        return sock

    async def shutdown(self, timeout_s: float = 8.0) -> None:
        """End every process of the pod and the agent, and wait until its socket is dead."""
        with contextlib.suppress(AgentGone):
            await self.ask("shutdown")
            if self._attached:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._gone(), timeout_s)
        self.detach()
        (self.folder / "agent.sock").unlink(missing_ok=True)

    async def _gone(self) -> None:
        assert self._attached is not None
        with contextlib.suppress(AgentGone):
            while True:
                await self.receive(self._attached)

    def detach(self) -> None:
        """Let go of the connection that `attach` opened."""
        if self._attached:
            self._attached.close()
            self._attached = None


def wake(ready: asyncio.Future[None]) -> None:
    """Callback of add_reader and add_writer: end the wait, once."""
    if not ready.done():
        ready.set_result(None)


def find_program(name: str) -> str | None:
    """A program's path, also in the sbin folders that an ordinary user's PATH may lack."""
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/bin")
