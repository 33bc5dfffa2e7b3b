"""Namespaces, mounts, routes and rights of a pod's agent: thin calls into the kernel.

Only the standard library and no import after the start, for the reason that agent.py gives.
"""
# ruff: noqa: PTH101, PTH102, PTH106, PTH110, PTH112, PTH116, PTH118, PTH120, PTH123, S103, S606
# Plain os calls keep the import of the agent small; a world-writable tun device is what makes pasta work.

import ctypes
import errno
import fcntl
import os
import signal
import socket
import stat
import struct
import subprocess
import time
from typing import Any

_CLONE_NEWNS, _CLONE_NEWUTS, _CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_SLAVE = 1, 2, 4, 32, 4096, 16384, 1 << 19
PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 1, 4, 24, 38
_SIOCGIFFLAGS, _SIOCSIFFLAGS = 0x8913, 0x8914
_TUN = "/dev/net/tun"
_RTM_NEWROUTE, _RTM_NEWRULE = 24, 32
_TABLE, _PRIORITY = 100, 100

_libc = ctypes.CDLL(None, use_errno=True)


def call(name: str, *args: Any) -> int:
    result = int(getattr(_libc, name)(*args))
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    """mount(2)."""
    call(
        "mount",
        source.encode(),
        target.encode(),
        kind.encode() if kind else None,
        ctypes.c_ulong(flags),
        data.encode() if data else None,
    )


def stage(entries: list[dict[str, Any]], directory: str, target: str) -> None:
    """As root: gather everything the sandboxes may see below `target`, in a mount namespace of the pod's own.

    The pod's own uid needs no right on the folders above the sources then, and whatever is mounted here (the image
    files of volumes too) disappears with the pod's last process.
    """
    call("unshare", _CLONE_NEWNS)
    mount("none", "/", None, _MS_REC | _MS_SLAVE)
    mount("stage", directory, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=0755,size=1m")
    for index, entry in enumerate(entries):
        place = os.path.join(directory, str(index))
        if os.path.isdir(entry["source"]) or entry["kind"] == "loop":
            os.mkdir(place, 0o755)
        else:
            os.close(os.open(place, os.O_CREAT | os.O_WRONLY, 0o644))
        if entry["kind"] == "loop":
            done = subprocess.run(
                ["mount", "-t", "ext4", "-o", "loop,nosuid,nodev,discard", entry["source"], place],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                raise OSError(errno.EIO, f"mounting volume {entry['source']}: {done.stderr.strip()}")
            if os.path.isdir(f"{place}/lost+found"):
                os.rmdir(f"{place}/lost+found")  # of a new file system; it would only puzzle the volume's owner
            os.chown(place, entry["uid"], entry["uid"])
        else:
            mount(entry["source"], place, None, _MS_BIND | _MS_REC)
            if entry.get("read_only"):
                mount("none", place, None, _MS_BIND | _MS_REMOUNT | _MS_RDONLY | _MS_NOSUID | _MS_NODEV)
    mount(directory, target, None, _MS_BIND | _MS_REC)
    if os.path.exists(_TUN) and os.stat(_TUN).st_mode & 0o006 != 0o006:
        device = os.stat(_TUN).st_rdev  # pasta opens it as the pod's uid; here it may be root's alone
        mount("tun", os.path.dirname(_TUN), "tmpfs", _MS_NOSUID, "mode=0755,size=4k")
        os.mknod(_TUN, stat.S_IFCHR | 0o666, device)
        os.chmod(_TUN, 0o666)


def become(uid: int) -> None:
    """Give up root for good, for a uid that owns nothing but this pod's files."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    call("prctl", _PR_SET_DUMPABLE, 1, 0, 0, 0)  # else /proc/self, and with it uid_map, stays root's


def isolate(inner_uid: int, hostname: str) -> None:
    """Enter new user, network, IPC and UTS namespaces; inside, this process is `inner_uid`, with all capabilities."""
    uid, gid = os.geteuid(), os.getegid()
    call("unshare", _CLONE_NEWUSER)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{inner_uid} {uid} 1"), ("gid_map", f"{inner_uid} {gid} 1")):
        with open(f"/proc/self/{name}", "w", encoding="utf-8") as file:
            file.write(text)
    call("unshare", _CLONE_NEWNET | _CLONE_NEWIPC | _CLONE_NEWUTS)
    call("sethostname", hostname.encode(), len(hostname.encode()))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(probe, _SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(probe, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | 1))


def default_signals() -> None:
    """Before exec: Python ignores SIGPIPE (pasta even refuses to start then), a shell's background job SIGINT."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)


def fork_pasta(command: list[str]) -> int:
    """Fork, still in the host's network, the process that will join pasta to this one's namespaces once they exist.

    Returns the descriptor to write to when they do. pasta ends with this process.
    """
    reader, writer = os.pipe()
    parent = os.getpid()
    if os.fork() == 0:
        os.close(writer)
        call("prctl", PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.read(reader, 1) and os.getppid() == parent:
            devnull = os.open(os.devnull, os.O_RDWR)
            os.dup2(devnull, 0)
            os.dup2(2, 1)
            default_signals()
            try:
                os.execv(command[0], [*command, str(parent)])
            except OSError:
                os._exit(127)
        os._exit(1)
    os.close(reader)
    return writer


def wait_for_route(timeout_s: float) -> bool:
    """Whether pasta has given this namespace a default route; waits a little for it."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        with open("/proc/net/route", encoding="utf-8") as file:
            if any(line.split()[1:2] == ["00000000"] for line in file.readlines()[1:]):
                return True
        time.sleep(0.005)
    return False


def block_routes(networks: list[str], opened: list[str]) -> None:
    """Make `networks` unreachable from the pod (the `except` blocks of its policies), but not the ones in `opened`.

    Routes are the packet filter here: pasta has none, and nftables may not be installed. They stand in a table of
    their own that is asked first, so that no more specific route of the host's own network comes before them.
    """
    if not networks:
        return
    gateway = _default_gateway()
    for family in (socket.AF_INET, socket.AF_INET6):
        header = struct.pack("BBBBBBBBI", family, 0, 0, 0, _TABLE, 0, 0, 1, 0)
        _netlink(_RTM_NEWRULE, header, [(6, struct.pack("I", _PRIORITY))])
    for network in opened:
        if gateway:
            _route(network, gateway=gateway, kind=1)
    for network in networks:
        _route(network, gateway=None, kind=7)


def _default_gateway() -> str | None:
    with open("/proc/net/route", encoding="utf-8") as file:
        for line in file.readlines()[1:]:
            fields = line.split()
            if fields[1] == "00000000" and int(fields[3], 16) & 2:
                return socket.inet_ntoa(struct.pack("<I", int(fields[2], 16)))
    return None


def _route(network: str, *, gateway: str | None, kind: int) -> None:
    """Add a route; kind 1 is unicast, 7 unreachable. An existing equal route is left alone."""
    address, _, length = network.partition("/")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    header = struct.pack("BBBBBBBBI", family, int(length or 32), 0, 0, _TABLE, 4, 0, kind, 0)
    attributes = [(1, socket.inet_pton(family, address))]
    if gateway:
        attributes.append((5, socket.inet_aton(gateway)))
    _netlink(_RTM_NEWROUTE, header, attributes)


def _netlink(message: int, header: bytes, attributes: list[tuple[int, bytes]]) -> None:
    body = header
    for number, value in attributes:
        body += struct.pack("HH", 4 + len(value), number) + value + b"\0" * (-len(value) % 4)
    flags = 0x1 | 0x4 | 0x200 | 0x400  # request, acknowledge, exclusive, create
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as link:
        link.bind((0, 0))
        link.send(struct.pack("IHHII", 16 + len(body), message, flags, 1, 0) + body)
        answer = link.recv(4096)
    code = -struct.unpack("i", answer[16:20])[0]
    if code and code != errno.EEXIST:
        raise OSError(code, f"routes: {os.strerror(code)}")


def drop_capabilities() -> None:
    """A command entered from outside holds every capability of the inner user namespace; leave none."""
    for capability in range(64):
        if _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) < 0:
            break
    call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    header = struct.pack("Ii", 0x20080522, 0)
    call("capset", header, bytes(24))
