"""What the portal made in a cluster that is to be removed from it: namespaces that no living row stands behind.

All that the portal makes lives in its namespaces, so with them everything goes. Another registration of the same
cluster may have living queues there; those are left alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from uuid import UUID

from django.utils.translation import gettext as _

from apps.clusters import access
from apps.clusters.installation import install_id
from apps.clusters.models import Cluster
from apps.core.errors import Conflict, Unavailable
from kubekit import client, names
from kubekit.errors import KubeError, NotFound

WAIT_S = 20.0
PAUSE_S = 0.3
Alive = Callable[[Collection[UUID]], set[UUID]]
_registry: dict[str, Alive] = {}


def register(label: str, alive: Alive) -> None:
    """Say which rows stand behind the namespaces labelled ``mlportal.io/kind=<label>``; others are never removed."""
    _registry[label] = alive


def remove(cluster: Cluster) -> None:
    """Delete them and wait until they are gone. A cluster that never answered has none.

    Raises `Unavailable` when the cluster does not answer, `Conflict` when something is still ending.
    """
    if not cluster.version and cluster.last_contact_at is None:
        return
    try:
        server = access.connect(cluster, any_version=True)
        left = _found(server)
        for name, uid in left.items():
            _delete(server, name, uid)
        end = time.monotonic() + WAIT_S
        while (left := _found(server)) and time.monotonic() < end:
            time.sleep(PAUSE_S)
    except KubeError as error:
        raise Unavailable(
            _("The cluster “%(name)s” does not let what the portal made in it be removed: %(why)s.")
            % {"name": cluster.name, "why": error.message},
            code="cluster_not_swept",
            next=_("Try again when it answers, or forget it and keep what is in it."),
        ) from error
    if left:
        raise Conflict(
            _("The cluster “%(name)s” is still deleting %(names)s.") % {"name": cluster.name, "names": ", ".join(left)},
            code="cluster_sweeping",
            next=_("Try again in a moment, or forget it and keep what is in it."),
        )


def _found(server: client.Cluster) -> dict[str, str]:
    """Name and UID of the namespaces to remove."""
    found: dict[str, str] = {}
    for label, alive in _registry.items():
        listed = list(server.list("Namespace", labels={names.INSTALL: install_id(), names.KIND: label}))
        by_id = {raw["metadata"]["labels"].get(names.ID, ""): raw["metadata"] for raw in listed}
        living = {str(pk) for pk in alive({pk for pk in map(names.parse_id, by_id) if pk is not None})}
        found |= {metadata["name"]: metadata["uid"] for text, metadata in by_id.items() if text not in living}
    return found


def _delete(server: client.Cluster, name: str, uid: str) -> None:
    try:
        server.delete("Namespace", None, name, uid=uid)
    except NotFound:
        return
