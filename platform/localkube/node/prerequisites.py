"""Whether this machine can run sandboxes, and what to change when it cannot."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

from localkube.node.agents import find_program

POD_UIDS: Final = range(2_000_000_000, 2_100_000_000)
"""Uids of the host that pods run as when localkube is root; no distribution gives them to anybody."""

_SETTINGS: Final = (
    ("kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone", "1"),
    ("user/max_user_namespaces", "0", "user.max_user_namespaces", "15000"),
    ("kernel/apparmor_restrict_unprivileged_userns", "1", "kernel.apparmor_restrict_unprivileged_userns", "0"),
)


class NodeError(RuntimeError):
    """The node cannot start on this machine; the text says what to do."""


def check_machine(sysctl: Path = Path("/proc/sys")) -> str:
    """The path of bubblewrap, after a trial run. Raises NodeError."""
    bwrap = find_program("bwrap")
    if bwrap is None:
        raise NodeError("bubblewrap is missing: apt-get install bubblewrap (pods run in it)")
    command = [bwrap, "--unshare-user", "--unshare-pid", "--unshare-net", "--ro-bind", "/", "/", "--proc", "/proc"]
    trial = subprocess.run([*command, "--", "/bin/true"], capture_output=True, text=True, check=False)
    if trial.returncode:
        raise NodeError(explain(trial.stderr.strip(), sysctl))
    return bwrap


def may_use_pod_uids(uid_map: str) -> bool:
    """Whether this process is a root that may become any uid of `POD_UIDS`, by the text of /proc/self/uid_map.

    Root inside a container without those uids is treated as an ordinary user.
    """
    if os.geteuid() != 0:
        return False
    for line in uid_map.splitlines():
        first, _, count = (int(word) for word in line.split())
        if first <= POD_UIDS.start and POD_UIDS.stop <= first + count:
            return True
    return False


def explain(error: str, sysctl: Path) -> str:
    """The sentence for a failed trial: which setting forbids user namespaces, and the line that allows them."""
    for path, forbidding, name, value in _SETTINGS:
        try:
            found = (sysctl / path).read_text().strip()
        except OSError:
            continue
        if found == forbidding:
            return (
                f"this machine forbids user namespaces to ordinary users ({name} = {found}), and pods need them. "
                f"Allow them with: sudo sysctl -w {name}={value}"
            )
    return f"bubblewrap does not work here, and pods run in it: {error}"
