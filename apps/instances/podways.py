"""To a pod of an instance: at its own address where the portal is in its cluster, else through the API server."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from apps.clusters import access
from apps.clusters.models import Cluster
from apps.core.control import in_thread
from kubekit import names
from kubekit.client import Cluster as KubeCluster
from kubekit.errors import Unreachable
from kubekit.streams import Streams

#: A pod answers within milliseconds, or a network policy swallows what is sent.
DIAL_S = 3.0
#: For how long a cluster whose pods were not reached at their addresses is not tried in that way again.
AROUND_S = 300.0


class Pools:
    """One pool of streams for each cluster, made anew when its credentials changed."""

    def __init__(self) -> None:
        self._streams: dict[UUID, tuple[str, Streams]] = {}

    async def of(self, cluster: Cluster) -> Streams:
        """The cluster's pool. Raises ``KubeError``."""
        credentials = await in_thread(access.credentials_of, cluster)
        present = access.mark(credentials)
        known = self._streams.get(cluster.pk)
        if known is None or known[0] != present:
            # The former one goes with the connections that still use it.
            known = self._streams[cluster.pk] = (present, Streams(credentials))
        return known[1]

    async def close(self) -> None:
        """Close every pool."""
        for _mark, streams in self._streams.values():
            await streams.close()
        self._streams.clear()


def address(cluster: Cluster, namespace: str, pod: str, launch: int) -> str:
    """The pod's address, if it is the pod of this launch; blocks. Raises ``KubeError``."""
    server: KubeCluster = access.connect(cluster)
    found: dict[str, Any] = server.get("Pod", namespace, pod)
    labels, known = found["metadata"].get("labels") or {}, (found.get("status") or {}).get("podIP")
    if labels.get(names.GENERATION) != str(launch) or not known:
        raise Unreachable("the pod of this launch has no address yet")
    return str(known)
