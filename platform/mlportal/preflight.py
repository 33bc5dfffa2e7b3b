"""What must hold before anything is started. Each failure says what is wrong and the one thing to do."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mlportal import say
from mlportal.env import Environment
from mlportal.paths import Home
from mlportal.processes import command, listener

LAYOUT_VERSION = "1"
"""Of the data folder. Raised when an older portal could not read what a newer one wrote."""

NEEDED_BYTES = 512 * 1024 * 1024


class Refused(RuntimeError):
    """The portal cannot start. `code` is the exit status, as in sysexits.h."""

    def __init__(self, message: str, *, code: int) -> None:
        super().__init__(message)
        self.code = code


def folders(home: Home) -> None:
    """Make the data folder, closed to others, and check that this version may use it.

    Raises Refused: the folder cannot be made, is another user's, or was written by another version.
    """
    for folder in (home.root, home.secrets, home.log):
        _private(folder, home=home)
    _version(home)


def _private(folder: Path, *, home: Home) -> None:
    """Make one of the portal's folders, or close one that is there. Raises Refused."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if folder.stat().st_uid != os.geteuid():
            raise Refused(
                f"{folder} belongs to another user; choose a folder of your own with PORTAL_HOME.",
                code=os.EX_NOPERM,
            )
        if stat.S_IMODE(folder.stat().st_mode) & 0o077:
            folder.chmod(0o700)
    except OSError as error:
        raise Refused(
            f"The data folder {home.root} cannot be used: {error}. Choose another one with PORTAL_HOME.",
            code=os.EX_CANTCREAT,
        ) from error


def _version(home: Home) -> None:
    file = home.version_file
    if file.exists():
        found = file.read_text(encoding="utf-8").strip()
        if found != LAYOUT_VERSION:
            raise Refused(
                f"The data folder {home.root} was written by another version of the portal (layout {found[:20]!r}, "
                f"this one knows {LAYOUT_VERSION!r}). Start that version, or choose an empty folder with PORTAL_HOME.",
                code=os.EX_DATAERR,
            )
    elif home.postgres_data.exists():
        raise Refused(
            f"The data folder {home.root} holds a database but says no version (the file `version` is missing). "
            f"If it is this version's, run: echo {LAYOUT_VERSION} > {file}",
            code=os.EX_DATAERR,
        )
    else:
        file.write_text(f"{LAYOUT_VERSION}\n", encoding="utf-8")


@contextmanager
def only_one(home: Home, *, url: str) -> Iterator[None]:
    """Hold the data folder for this process. The kernel lets go of it when the process ends, however it ends.

    Who holds it has the folder of sockets, which may lie outside of it and goes with the last socket.
    Raises Refused when another one holds it.
    """
    descriptor = os.open(home.lock_file, os.O_RDWR | os.O_CREAT, 0o600)
    with os.fdopen(descriptor, "r+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Refused(_who_holds(file.read(), home), code=1) from error
        file.truncate(0)
        file.write(json.dumps({"pid": os.getpid(), "url": url}))
        file.flush()
        try:
            _private(home.run, home=home)
            yield
        finally:
            with suppress(OSError):  # something of it is still there
                home.run.rmdir()
            file.truncate(0)


def _who_holds(text: str, home: Home) -> str:
    try:
        holder = json.loads(text)
        return (
            f"The portal is already running with the data folder {home.root}: {holder['url']} (process "
            f"{holder['pid']}). Stop it there with Ctrl-C, or with: kill {holder['pid']}"
        )
    except (ValueError, KeyError, TypeError):
        return f"The portal is already starting with the data folder {home.root}."


def port_free(environment: Environment) -> None:
    """Raises Refused, naming the process that holds the port, when it is taken."""
    address, port = environment.http_address, environment.http_port
    if can_listen(address, port):
        return
    holder = listener(port)
    who = f"process {holder} ({command(holder)})" if holder is not None else "a process of another user"
    raise Refused(
        f"Port {port} on {address} is taken by {who}. End it, or choose another port: "
        f"PORTAL_HTTP_PORT={port + 1 if port < 65535 else port - 1} make up",
        code=os.EX_UNAVAILABLE,
    )


_ABOVE_CHILDREN = 300
"""The supervisor's children close every lower descriptor; see `supervise._Options.minfds`."""


def ssh_listener(environment: Environment) -> socket.socket | None:
    """The socket of the entrance by SSH, listening already; None where there is to be none.

    Raises Refused, naming the process that holds the port, when it was asked for and is taken. Where nobody asked for
    it, a portal without this entrance is better than none: that is said, and the programs that follow are told.
    """
    address, port = environment.ssh_address, environment.ssh_port
    if not port:
        return None
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.create_server((address, port), family=family, backlog=128) as made:
            made.setblocking(False)
            return socket.socket(fileno=fcntl.fcntl(made, fcntl.F_DUPFD_CLOEXEC, _ABOVE_CHILDREN))
    except OSError as error:
        holder = listener(port)
        who = f"process {holder} ({command(holder)})" if holder is not None else f"somebody else ({error.strerror})"
        taken = f"Port {port} on {address}, for SSH, is taken by {who}. "
        other = f"PORTAL_SSH_PORT={port + 1 if port < 65535 else port - 1} make up"
        if environment.ssh_port_given:
            raise Refused(
                f"{taken}End it, choose another port: {other}, or leave SSH out: PORTAL_SSH_PORT=0",
                code=os.EX_UNAVAILABLE,
            ) from error
        say.event(say.WRONG, "portal", f"{taken}There is no entrance by SSH until you choose another port: {other}")
        os.environ["PORTAL_SSH_PORT"] = "0"
        return None


@contextmanager
def unix_listener(path: Path) -> Iterator[socket.socket]:
    """A unix socket of mode 0600 that listens already, for a program that starts with the first connection. It is gone
    after the block."""
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))
        path.chmod(0o600)
        made.listen(1024)
        made.setblocking(False)
        kept = socket.socket(fileno=fcntl.fcntl(made, fcntl.F_DUPFD_CLOEXEC, _ABOVE_CHILDREN))
    try:
        with kept:
            yield kept
    finally:
        path.unlink(missing_ok=True)


def can_listen(address: str, port: int) -> bool:
    """Whether a server could listen there now."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
        return True


def room(home: Home, *, needed: int = NEEDED_BYTES) -> None:
    """Raises Refused when the disk of the data folder is nearly full."""
    free = shutil.disk_usage(home.root).free
    if free < needed:
        raise Refused(
            f"Only {free // 2**20} MiB are free on the disk of {home.root}; the portal needs {needed // 2**20} MiB. "
            "Free some, or choose a folder on another disk with PORTAL_HOME.",
            code=os.EX_IOERR,
        )


def secrets_present(environment: Environment) -> None:
    """Raises Refused when there is a database whose keys are gone: new ones could decrypt nothing in it."""
    if environment.home.postgres_data.exists() and not environment.secret_file.exists():
        raise Refused(
            f"{environment.secret_file} is missing, but {environment.home.postgres_data} holds a database that was "
            "encrypted with its keys. Put the file back, or choose an empty folder with PORTAL_HOME.",
            code=os.EX_CONFIG,
        )


def namespaces(environment: Environment) -> None:
    """Raises Refused when programs cannot be kept apart here: no bubblewrap, or user namespaces forbidden."""
    if not (environment.cluster_embedded or (environment.database_embedded and os.geteuid() == 0)):
        return
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise Refused(
            "bubblewrap is missing; it keeps the programs of users apart. Run: apt-get install bubblewrap",
            code=os.EX_UNAVAILABLE,
        )
    probe = subprocess.run(
        (bwrap, "--dev-bind", "/", "/", "--unshare-user", "--unshare-net", "true"),
        capture_output=True,
        text=True,
        check=False,
    )
    if probe.returncode != 0:
        raise Refused(_forbidden(probe.stderr.strip()), code=os.EX_NOPERM)


_SWITCHES = (
    ("kernel/apparmor_restrict_unprivileged_userns", "1", "0"),
    ("kernel/unprivileged_userns_clone", "0", "1"),
    ("user/max_user_namespaces", "0", "15000"),
)


def _forbidden(detail: str, *, sysctls: Path = Path("/proc/sys")) -> str:
    """Name the setting that forbids user namespaces and the line that changes it."""
    for name, bad, good in _SWITCHES:
        file = sysctls / name
        if file.is_file() and file.read_text(encoding="ascii").strip() == bad:
            setting = name.replace("/", ".")
            return (
                f"This machine forbids unprivileged user namespaces ({setting} = {bad}), which keep the programs of "
                f"users apart. Allow them with: sudo sysctl -w {setting}={good}"
            )
    return (
        "User namespaces, which keep the programs of users apart, cannot be used here: "
        f"{detail or 'no reason given'}. Inside a container, start it with --privileged or a seccomp profile that "
        "allows unshare."
    )
