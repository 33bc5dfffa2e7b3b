"""What every part of the node shares: the store, the machine's abilities, and its own numbers."""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass, field
from pathlib import Path

from localkube import events
from localkube.node.images import Images
from localkube.node.limits import Limits
from localkube.node.network import Network
from localkube.node.prerequisites import POD_UIDS, may_use_pod_uids
from localkube.node.volumes import Volumes
from localkube.status import Object
from localkube.store import Store

HOST_ADDRESS = "127.0.0.1"


@dataclass(frozen=True)
class Timing:
    """Seconds that tests make shorter; the defaults are the kubelet's."""

    backoff_s: float = 10.0
    longest_backoff_s: float = 300.0
    stable_s: float = 600.0
    """A container that ran this long starts without back-off again."""
    mount_retry_s: float = 0.5
    shutdown_grace_s: float = 10.0
    """A pod gets no more when localkube stops, whatever its own grace period: a person waits for Ctrl-C."""
    orphan_after_s: float = 60.0
    """How long a pod outlives a localkube that was killed."""


@dataclass
class Context:
    """Made once by the kubelet."""

    store: Store
    home: Path
    node_name: str
    images: Images
    volumes: Volumes
    limits: Limits
    network: Network
    bwrap: str
    timing: Timing = field(default_factory=Timing)
    root: bool = field(default_factory=lambda: may_use_pod_uids(Path("/proc/self/uid_map").read_text()))

    def host_uid(self, namespace: str) -> int | None:
        """As root: the uid of the host that a namespace's pods run as, which owns nothing else; None for oneself.

        One a namespace and not one a pod, because a volume outlives its pods and is shared within the namespace.
        """
        if not self.root:
            return None
        return POD_UIDS[zlib.crc32(f"{self.home}\0{namespace}".encode()) % len(POD_UIDS)]

    def pod_folder(self, uid: str) -> Path:
        return self.home / "pods" / uid

    def event(self, pod: Object, reason: str, message: str, *, warning: bool = False, container: str = "") -> None:
        """Record an event about a pod, or about one of its containers, as the kubelet."""
        events.record(
            self.store,
            pod,
            reason=reason,
            message=message,
            component="kubelet",
            type_="Warning" if warning else "Normal",
            host=self.node_name,
            field_path=f"spec.containers{{{container}}}" if container else "",
        )


def container_id(pod_uid: str, name: str, restarts: int) -> str:
    """Stable, so that a restarted localkube names the same container the same."""
    return "localkube://" + hashlib.sha256(f"{pod_uid} {name} {restarts}".encode()).hexdigest()
