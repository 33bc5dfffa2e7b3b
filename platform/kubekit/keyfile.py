"""A new key for a program that goes on running.

A pod has its instance's Secret mounted, and a kubelet brings such files up to date within a minute or two. A key that
is rotated has to be dead sooner, so the new one is also written into the running pod, into a folder in memory that
every instance has for it, and what is there counts before the mounted file. The key goes over the standard input of a
command: in no argument list, no variable, no event and no log of the API server.
"""

from __future__ import annotations

from typing import Any

from kubekit.errors import BadRequest
from kubekit.streams import Streams

Obj = dict[str, Any]

LIVE_PATH = "/run/mlportal"
VOLUME = "live"
REKEYED = "/opt/venv/bin/mlportal-rekeyed"
"""A program of the image that is run after the key was replaced, for entrances that do not read the file each time."""
PUSH_TIMEOUT_S = 10.0

_SCRIPT = f"""set -eu
PATH="$PATH:/opt/mlportal/busybox"
umask 077
cd {LIVE_PATH}
head -c "$1" > .key.new
[ "$(wc -c < .key.new)" -eq "$1" ]
mv -f .key.new key
if [ -x {REKEYED} ]; then {REKEYED}; fi
"""


def volume() -> Obj:
    """The pod's volume: memory, gone with the pod, kept when its program starts again."""
    return {"name": VOLUME, "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}


def mount() -> Obj:
    """The container's mount of it."""
    return {"name": VOLUME, "mountPath": LIVE_PATH}


async def push(streams: Streams, namespace: str, pod: str, container: str, key: str, *, shell: str = "/bin/sh") -> None:
    """Replace the key in a running container; it counts when this returns, and pushing it again does no harm.

    ``shell`` is the one that reads the script: the image's own, or that of `kubekit.tools` where it may have none.

    Raises `KubeError`: when it is ``maybe_done``, nobody knows which of the two keys counts until it is pushed again.
    """
    data = key.encode()
    command = (shell, "-c", _SCRIPT, "mlportal-key", str(len(data)))
    code, _, errors = await streams.run(namespace, pod, container, command, stdin=data, timeout_s=PUSH_TIMEOUT_S)
    if code != 0:
        said = errors.decode("utf-8", "replace").strip()[-300:]
        raise BadRequest(f"the key could not be replaced in {pod} (exit code {code}): {said}")
