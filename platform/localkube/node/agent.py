"""The process that stands behind one pod; run as a program of its own, see agents.py.

It owns the pod's user, network, IPC and UTS namespaces, starts its containers (each a bubblewrap of its own), writes
their logs, keeps their exit codes, and hands sockets of the pod's network namespace to localkube. It speaks JSON
packets over a unix socket, one request a packet. It outlives a localkube that was killed, so that the next one finds
the pod running; when nobody attaches for `orphan_after_s` it ends the pod itself.

Only the standard library, one thread, and no import after the start: once it has given up root it may be unable to
read the interpreter's files, and a single thread makes fork and setns safe.
"""
# ruff: noqa: BLE001, PTH123, S606
# Plain os calls keep the import small and work on descriptors; a forked child must never return into the loop, so it
# catches everything; its whole purpose is to exec.

import errno
import fcntl
import json
import os
import re
import selectors
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from typing import Any

from localkube.node import confine

_MAX_PACKET = 400_000
_POLL_S = 0.002
_LOG_LIMIT = 32 * 1024 * 1024
"""A log larger than this moves to `NAME.1`; one older piece is kept, as the kubelet keeps its rotated files."""

_CHILD_PID = re.compile(rb'"child-pid": (\d+)[\s,}]')


def stamp(moment_ns: int) -> str:
    """RFC 3339 with nanoseconds, as the kubelet writes it."""
    seconds, rest = divmod(moment_ns, 1_000_000_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{rest:09d}Z"


class LogWriter:
    """One container's log file in the CRI's format: `TIME STREAM P|F TEXT`, P marking a line that goes on."""

    def __init__(self, folder: int, name: str) -> None:
        self._folder, self._name = folder, name
        self._open: dict[str, bool] = {}
        self._fd = self._create()
        self._size = os.fstat(self._fd).st_size
        self.head = b""

    def _create(self) -> int:
        return os.open(self._name, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o640, dir_fd=self._folder)

    def write(self, stream: str, data: bytes) -> None:
        """Append what was read; a full disk loses output, never the container."""
        if len(self.head) < 512:
            self.head += data[:512]
        prefix = f"{stamp(time.time_ns())} {stream} ".encode()
        pieces = data.split(b"\n")
        lines = [prefix + b"F " + piece + b"\n" for piece in pieces[:-1]]
        if pieces[-1]:
            lines.append(prefix + b"P " + pieces[-1] + b"\n")
        self._open[stream] = bool(pieces[-1])
        self._put(b"".join(lines))

    def _put(self, block: bytes) -> None:
        if self._size > _LOG_LIMIT:
            os.rename(self._name, self._name + ".1", src_dir_fd=self._folder, dst_dir_fd=self._folder)
            os.close(self._fd)
            self._fd, self._size = self._create(), 0
        try:
            self._size += os.write(self._fd, block)
        except OSError:
            return

    def close(self) -> None:
        """End an unfinished last line, so that readers see it."""
        for stream, unfinished in self._open.items():
            if unfinished:
                self._put(f"{stamp(time.time_ns())} {stream} F \n".encode())
        os.close(self._fd)


class Child:
    """A process that was forked and waits for its `go`: a container (bubblewrap) or a command in one."""

    def __init__(self, name: str, pid: int, go: int) -> None:
        self.name, self.pid, self.go = name, pid, go
        self.init: int | None = None
        """The host's pid of the sandbox's first process."""
        self.info = b""
        self.started = ""
        self.finished = ""
        self.code: int | None = None
        self.log: LogWriter | None = None
        self.record: str | None = None
        self.orphaned = False
        self.streams = 0
        self.waiting: list[socket.socket] = []

    def describe(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "pid": self.pid,
            "init": self.init,
            "started": self.started,
            "finished": self.finished,
            "code": self.code,
            "orphaned": self.orphaned,
            "no_start": bool(self.log and self.log.head.startswith(b"bwrap: execvp ")),
        }


class Agent:
    """The loop: requests, output of containers, exits."""

    def __init__(self, config: dict[str, Any], listener: socket.socket, folder: int) -> None:
        self._listener, self._folder = listener, folder
        self._orphan_after = float(config["orphan_after_s"])
        self._bwrap = str(config["bwrap"])
        self._selector = selectors.DefaultSelector()
        self._children: dict[str, Child] = {}
        self._clients: set[socket.socket] = set()
        self._alone_since = time.monotonic()
        self._closing = False
        self._starting: list[tuple[Child, socket.socket]] = []

    def run(self) -> None:
        """Serve until told to end, or orphaned; then nothing of the pod is left."""
        wake_reader, wake_writer = socket.socketpair()
        wake_reader.setblocking(False)
        wake_writer.setblocking(False)
        signal.set_wakeup_fd(wake_writer.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "_closing", True))
        self._watch(wake_reader, lambda: self._drain(wake_reader))
        self._watch(self._listener, self._accept)
        while not self._closing:
            timeout = None if self._clients else self._orphan_after
            for key, _ in self._selector.select(_POLL_S if self._starting else timeout):
                key.data()
            self._reap()
            self._check_starting()
            if not self._clients and time.monotonic() - self._alone_since > self._orphan_after:
                for child in self._children.values():
                    child.orphaned = child.code is None
                break
        for child in list(self._children.values()):
            self._kill(child, signal.SIGKILL)
        deadline = time.monotonic() + 5
        while any(child.code is None for child in self._children.values()) and time.monotonic() < deadline:
            for key, _ in self._selector.select(0.05):
                key.data()
            self._reap()

    def _watch(self, source: Any, call: Callable[[], None]) -> None:
        self._selector.register(source, selectors.EVENT_READ, call)

    @staticmethod
    def _drain(reader: socket.socket) -> None:
        try:
            reader.recv(4096)
        except BlockingIOError:
            return

    # --- requests

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        self._clients.add(client)
        self._watch(client, lambda: self._serve(client))

    def _drop(self, client: socket.socket) -> None:
        self._selector.unregister(client)
        self._clients.discard(client)
        self._starting = [(child, other) for child, other in self._starting if other is not client]
        for child in self._children.values():
            if client in child.waiting:
                child.waiting.remove(client)
        client.close()
        if not self._clients:
            self._alone_since = time.monotonic()

    def _serve(self, client: socket.socket) -> None:
        try:
            packet, fds, _, _ = socket.recv_fds(client, _MAX_PACKET, 8)
        except OSError:
            packet, fds = b"", []
        if not packet:
            self._drop(client)
            return
        request = json.loads(packet)
        try:
            answer = getattr(self, "op_" + request["op"])(client, request, fds)
        except OSError as error:
            answer = {"error": error.strerror or str(error), "errno": error.errno}
        except (AttributeError, KeyError) as error:
            answer = {"error": f"agent: {error!r}", "errno": errno.EINVAL}
        finally:
            for fd in fds:
                os.close(fd)
        if answer is not None:
            self._reply(client, answer)

    def _reply(self, client: socket.socket, answer: dict[str, Any], fds: list[int] | None = None) -> None:
        try:
            socket.send_fds(client, [json.dumps(answer).encode()], fds or [])
        except OSError:
            return

    def op_status(self, _client: socket.socket, _request: dict[str, Any], _fds: list[int]) -> dict[str, Any]:
        return {"pid": os.getpid(), "children": [child.describe() for child in self._children.values()]}

    def op_socket(self, client: socket.socket, _request: dict[str, Any], _fds: list[int]) -> None:
        """A socket of the pod's network; the asker connects it."""
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as made:
            self._reply(client, {"ok": True}, [made.fileno()])

    def op_start(self, _client: socket.socket, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Fork a container; it waits for `go`, so that its process can be put under limits first.

        bubblewrap's options come as a descriptor: they hold the environment, which must not show in `ps`.
        """
        child = self._fork_container(fds[0], request["argv"], request["log"], request["name"])
        child.record = request["record"]
        return {"pid": child.pid}

    def op_exec(self, client: socket.socket, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Fork a command into the namespaces of a container; descriptors sent along are its 0, 1, 2."""
        target = self._children[request["container"]]
        if target.code is not None:
            return {"error": f"container {request['container']} is not running", "errno": errno.ESRCH}
        if (
            target.init is None or _program(target.init) is None
        ):  # bubblewrap still mounts: what is to be entered is not closed yet
            return {"error": f"container {request['container']} is being set up", "errno": errno.EAGAIN}
        child = self._fork_exec(target.init, request, fds, client.fileno() if request["tty"] else None)
        return {"pid": child.pid}

    def op_go(self, client: socket.socket, request: dict[str, Any], _fds: list[int]) -> dict[str, Any] | None:
        """Let it run. For a container the answer comes when its program is there: signals would miss it before."""
        child = self._children[request["name"]]
        child.started = stamp(time.time_ns())
        os.write(child.go, b"g")
        os.close(child.go)
        if child.log is None:
            return {"started": child.started}
        self._starting.append((child, client))
        return None

    def _check_starting(self) -> None:
        for child, client in list(self._starting):
            if child.code is not None or (child.init is not None and _program(child.init) is not None):
                self._starting.remove((child, client))
                self._reply(client, {"started": child.started})

    def op_wait(self, client: socket.socket, request: dict[str, Any], _fds: list[int]) -> dict[str, Any] | None:
        child = self._children[request["name"]]
        if child.code is not None and not child.streams:
            self._forget_exec(child)
            return child.describe()
        child.waiting.append(client)
        return None

    def op_signal(self, _client: socket.socket, request: dict[str, Any], _fds: list[int]) -> dict[str, Any]:
        child = self._children[request["name"]]
        self._kill(child, int(request["signal"]))
        return {"ok": True}

    def op_shutdown(self, _client: socket.socket, _request: dict[str, Any], _fds: list[int]) -> dict[str, Any]:
        self._closing = True
        return {"ok": True}

    # --- processes

    def _fork_container(self, packed: int, argv: list[str], log: str, name: str) -> Child:
        go_reader, go_writer = os.pipe()
        out, err = os.pipe(), os.pipe()
        info = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.close(go_writer)
                if not os.read(go_reader, 1):
                    os._exit(1)
                devnull = os.open(os.devnull, os.O_RDONLY)
                for source, target in ((devnull, 0), (out[1], 1), (err[1], 2)):
                    os.dup2(source, target)
                confine.default_signals()
                for fd in (packed, info[1]):
                    os.set_inheritable(fd, True)
                command = [
                    self._bwrap,
                    "--args",
                    str(packed),
                    "--info-fd",
                    str(info[1]),
                    "--die-with-parent",
                    "--",
                    *argv,
                ]
                os.execve(self._bwrap, command, {"PATH": "/usr/bin:/bin"})
            except BaseException as error:
                os.write(2, f"starting the sandbox: {error}\n".encode())
                os._exit(127)
        for fd in (go_reader, out[1], err[1], info[1]):
            os.close(fd)
        child = Child(name, pid, go_writer)
        child.log = LogWriter(self._folder, log)
        self._children[name] = child
        self._pump(child, out[0], "stdout")
        self._pump(child, err[0], "stderr")
        self._watch(info[0], lambda: self._learn(child, info[0]))
        return child

    def _learn(self, child: Child, fd: int) -> None:
        """bubblewrap says the pid of the sandbox's first process."""
        data = os.read(fd, 4096)
        if data:
            child.info += data
            found = _CHILD_PID.search(child.info)  # the document comes in pieces
            child.init = int(found[1]) if found else None
            return
        self._selector.unregister(fd)
        os.close(fd)

    def _pump(self, child: Child, fd: int, stream: str) -> None:
        child.streams += 1

        def read() -> None:
            data = os.read(fd, 65536)
            if data and child.log:
                child.log.write(stream, data)
                return
            self._selector.unregister(fd)
            os.close(fd)
            child.streams -= 1
            self._settle(child)

        self._watch(fd, read)

    def _fork_exec(self, init: int, request: dict[str, Any], fds: list[int], client: int | None) -> Child:
        go_reader, go_writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            code = 126
            try:
                os.close(go_writer)
                if os.read(go_reader, 1):
                    code = self._enter_and_run(init, request, fds, client)
            except BaseException as error:
                with socket.socket(socket.AF_UNIX) if client is None else socket.socket(fileno=os.dup(client)):
                    os.write(fds[2] if len(fds) > 2 else 2, f"exec: {error}\n".encode())
            finally:
                os._exit(code)
        os.close(go_reader)
        child = Child(request["name"], pid, go_writer)
        self._children[request["name"]] = child
        return child

    def _enter_and_run(self, init: int, request: dict[str, Any], fds: list[int], client: int | None) -> int:
        """In the forked child: enter, run, wait. The order matters: the inner user namespace comes last, as only the
        outer one holds the rights over the others."""
        confine.call("prctl", confine.PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        handles = {kind: os.open(f"/proc/{init}/ns/{kind}", os.O_RDONLY) for kind in ("pid", "mnt", "user")}
        for kind in ("pid", "mnt", "user"):
            confine.call("setns", handles[kind], 0)
        signal.set_wakeup_fd(-1)
        if client is not None:
            master = os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY)
            fcntl.ioctl(master, 0x40045431, struct.pack("i", 0))  # TIOCSPTLCK
            number = struct.unpack("I", fcntl.ioctl(master, 0x80045430, struct.pack("I", 0)))[0]  # TIOCGPTN
            with socket.socket(fileno=os.dup(client)) as speak:
                socket.send_fds(speak, [b'{"pty": true}'], [master])
            os.close(master)
        inner = os.fork()
        if inner == 0:
            try:
                os.setsid()
                if client is not None:
                    terminal = os.open(f"/dev/pts/{number}", os.O_RDWR)
                    fcntl.ioctl(terminal, 0x540E, 0)  # TIOCSCTTY
                    fds = [terminal, terminal, terminal]
                for target, source in enumerate(fds):
                    os.dup2(source, target)
                confine.drop_capabilities()
                confine.call("prctl", confine.PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
                confine.default_signals()
                os.chdir(request["cwd"])
                os.execvpe(request["argv"][0], request["argv"], request["env"])
            except FileNotFoundError:
                os.write(2, f'exec: "{request["argv"][0]}": executable file not found in $PATH\n'.encode())
                os._exit(127)
            except BaseException as error:
                os.write(2, f"exec: {error}\n".encode())
                os._exit(126)
        os.closerange(0, 3)
        _, status = os.waitpid(inner, 0)
        code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else 128 - code

    def _kill(self, child: Child, number: int) -> None:
        """SIGKILL ends the whole sandbox; anything else goes to the program that it runs."""
        if child.code is not None:
            return
        target = child.pid if child.init is None else child.init
        if number != signal.SIGKILL and child.init is not None:
            target = _program(child.init) or child.init
        try:
            os.kill(target, number)
        except ProcessLookupError:
            return

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            code = os.waitstatus_to_exitcode(status)
            for child in self._children.values():
                if child.pid == pid and child.code is None:
                    child.code = code if code >= 0 else 128 - code
                    child.finished = stamp(time.time_ns())
                    self._settle(child)
                    break

    def _settle(self, child: Child) -> None:
        """When a container has ended and its output is read: record it, and answer those who wait."""
        if child.code is None or child.streams:
            return
        if child.log and child.record:
            child.log.close()
            temporary = child.record + ".tmp"
            fd = os.open(temporary, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o640, dir_fd=self._folder)
            os.write(fd, json.dumps(child.describe()).encode())
            os.close(fd)
            os.rename(temporary, child.record, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        for client in child.waiting:
            self._reply(client, child.describe())
        if child.waiting:
            self._forget_exec(child)
        child.waiting.clear()

    def _forget_exec(self, child: Child) -> None:
        if child.log is None:
            self._children.pop(child.name, None)


def _program(init: int) -> int | None:
    """The host's pid of the sandbox's second process, which is the container's own program."""
    try:
        with open(f"/proc/{init}/task/{init}/children", encoding="utf-8") as file:
            children = file.read().split()
        for pid in children:
            with open(f"/proc/{pid}/status", encoding="utf-8") as file:
                if any(line.startswith("NSpid:") and line.split()[-1] == "2" for line in file):
                    return int(pid)
    except OSError:
        return None
    return None


def main() -> None:
    """Set the namespaces up, say `ready` (or what failed) on standard output, and serve."""
    with open(sys.argv[1], encoding="utf-8") as file:
        config = json.load(file)
    folder = os.open(config["folder"], os.O_RDONLY | os.O_DIRECTORY)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        listener.bind(f"/proc/self/fd/{folder}/agent.sock")
        listener.listen(64)
        if config["host_uid"] is not None:
            confine.stage(config["stage"], config["stage_folder"], config["stage_target"])
            confine.become(config["host_uid"])
        egress = confine.fork_pasta(config["pasta"]) if config["pasta"] else None
        confine.isolate(config["inner_uid"], config["hostname"])
        if egress is not None:
            os.write(egress, b"g")
            if not confine.wait_for_route(3.0):
                raise OSError(errno.ENETUNREACH, "pasta did not bring up the pod's network within 3 s")
            confine.block_routes(config["blocked"], config["opened"])
    except OSError as error:
        print(json.dumps({"error": str(error), "errno": error.errno}), flush=True)
        sys.exit(1)
    print(json.dumps({"ready": True}), flush=True)
    devnull = os.open(os.devnull, os.O_RDWR)
    os.dup2(devnull, 1)
    agent = Agent(config, listener, folder)
    agent.run()
    os._exit(0)  # connections close with the process and not before: who waits for the end waits for that


if __name__ == "__main__":
    main()
