"""What a container sees, as arguments for bubblewrap. Pure: nothing here touches the machine but `system_binds`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_SYSTEM: Final = ("/usr", "/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin")
_ETC: Final = (
    "alternatives",
    "bash.bashrc",
    "ca-certificates",
    "crypto-policies",
    "fonts",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
    "nsswitch.conf",
    "pki",
    "profile",
    "protocols",
    "services",
    "ssl",
    "terminfo",
)
"""What a program may need of the host's /etc and that tells nothing about the host's users or services."""

_MEMORY: Final = ("/dev/shm", "/tmp", "/var/tmp")  # noqa: S108 - inside the sandbox each is a new, private tmpfs

USER: Final = "user"
"""Login name of the pod's uid."""


@dataclass(frozen=True)
class Bind:
    """A file or folder of the host at a path inside."""

    source: str
    target: str
    read_only: bool = True


@dataclass(frozen=True)
class Tmpfs:
    """Memory-backed folder; size in bytes, None for half the machine's memory (the kernel's default)."""

    target: str
    size: int | None = None


@dataclass(frozen=True)
class Sandbox:
    """One container, ready to start."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    binds: tuple[Bind, ...] = ()
    tmpfs: tuple[Tmpfs, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    uid: int = 1000
    gid: int = 1000
    workdir: str = "/root"


def system_binds(root: Path = Path("/")) -> tuple[list[Bind], list[tuple[str, str]]]:
    """(read-only binds, symlinks as (target, link)) that give the host's programs and libraries, and no more."""
    binds: list[Bind] = []
    links: list[tuple[str, str]] = []
    for name in _SYSTEM:
        path = root / name.lstrip("/")
        if path.is_symlink():
            links.append((str(path.readlink()), name))
        elif path.is_dir():
            binds.append(Bind(str(path), name))
    binds += [Bind(str(root / "etc" / name), f"/etc/{name}") for name in _ETC if (root / "etc" / name).exists()]
    return binds, links


def bwrap_options(
    sandbox: Sandbox,
    *,
    system: tuple[list[Bind], list[tuple[str, str]]],
    locate: Callable[[Bind], str] = lambda bind: bind.source,
) -> list[str]:
    """The options of `bwrap`, without the command.

    `locate` tells where a source is found (in the pod's stage when root prepared one).

    The caller is already in the pod's user, network, IPC and UTS namespaces; user, PID and mount are made here.
    A mount below another must come after it, so mounts are sorted by depth.
    """
    args = ["--unshare-user", "--disable-userns", "--unshare-pid", "--unshare-cgroup-try", "--new-session"]
    args += ["--uid", str(sandbox.uid), "--gid", str(sandbox.gid), "--cap-drop", "ALL"]
    args += ["--perms", "0755", "--dir", "/etc", "--perms", "0755", "--dir", "/var"]
    binds, links = system
    for bind in binds:
        args += ["--ro-bind", bind.source, bind.target]
    for target, link in links:
        args += ["--symlink", target, link]
    args += ["--proc", "/proc", "--dev", "/dev", "--dir", "/run", "--dir", "/mnt", "--dir", "/opt"]
    for target in _MEMORY:
        args += ["--perms", "1777", "--tmpfs", target]
    for place, target in sandbox.links:
        args += ["--symlink", target, place]
    mounts: list[tuple[str, list[str]]] = [
        (bind.target, ["--ro-bind" if bind.read_only else "--bind", locate(bind), bind.target])
        for bind in sandbox.binds
    ]
    for tmpfs in sandbox.tmpfs:
        size = ["--size", str(tmpfs.size)] if tmpfs.size else []
        mounts.append((tmpfs.target, [*size, "--tmpfs", tmpfs.target]))
    for _, words in sorted(mounts, key=lambda item: _depth(item[0])):
        args += words
    args.append("--clearenv")
    for name, value in sandbox.env.items():
        args += ["--setenv", name, value]
    return [*args, "--chdir", sandbox.workdir]


def _depth(target: str) -> tuple[str, ...]:
    return tuple(part for part in target.split("/") if part)


def identity_files(*, uid: int, gid: int, hostname: str, address: str, nameservers: list[str]) -> dict[str, str]:
    """The files of /etc that are the pod's own, by name."""
    hosts = ["# Kubernetes-managed hosts file.", "127.0.0.1\tlocalhost", "::1\tlocalhost ip6-localhost ip6-loopback"]
    hosts.append(f"{address}\t{hostname}")
    users = [f"{USER}:x:{uid}:{gid}:{USER}:/root:/bin/bash", "nobody:x:65534:65534:nobody:/:/usr/sbin/nologin"]
    if uid == 0:
        users[0] = "root:x:0:0:root:/root:/bin/bash"
    return {
        "passwd": "\n".join(users) + "\n",
        "group": f"{USER}:x:{gid}:\nnogroup:x:65534:\n",
        "hostname": hostname + "\n",
        "hosts": "\n".join(hosts) + "\n",
        "resolv.conf": "".join(f"nameserver {server}\n" for server in nameservers),
    }


def pack(args: list[str]) -> bytes:
    """Options as `bwrap --args FD` reads them. Raises ValueError for an argument with a zero byte."""
    if any("\0" in arg for arg in args):
        raise ValueError("an environment value or path holds a zero byte")
    return b"".join(arg.encode(errors="surrogateescape") + b"\0" for arg in args)
