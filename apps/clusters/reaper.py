"""Objects of ours that belong to no row: recorded, and removed after a grace (failure F3).

They come from a crash between two writes, from a restored database, or from a worker that came too late. Apps say
which of their kinds may be removed and which ids are alive; what holds data (claims, namespaces) is never registered.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.utils import timezone

from apps.clusters import access, watching
from apps.clusters.exposing import ROUTE_KINDS
from apps.clusters.installation import install_id
from apps.clusters.models import Cluster, Orphan
from apps.clusters.states import ClusterState
from apps.core import control, crashpoints
from apps.core.models import AuditEntry
from kubekit import client, names
from kubekit.errors import Conflict, Forbidden, KubeError, NotFound

log = logging.getLogger(__name__)

LONGEST_PAUSE_S = 300.0
SELDOM = 12
"""Every so many rounds it looks although nothing has happened: every half hour, as things are set."""
Raw = dict[str, Any]
Alive = Callable[[Collection[UUID]], set[UUID]]
"""The ids among those given that have a live row."""


@dataclass(frozen=True, kw_only=True)
class Reapable:
    """One value of the label ``mlportal.io/kind``: its objects' kinds in the order of their removal."""

    label: str
    kinds: Sequence[str]
    alive: Alive


_registry: dict[str, Reapable] = {}
_stirred = threading.Event()


def register(reapable: Reapable) -> None:
    """Let the objects of one label be removed when no row is behind them; called from ``AppConfig.ready``."""
    _registry[reapable.label] = reapable
    watching.on_objects("pods", reapable.label, lambda *_: _stirred.set())


async def loop(stop: asyncio.Event) -> None:
    """The control loop: often enough that an orphan goes soon after its grace."""
    pause_s = min(LONGEST_PAUSE_S, max(1.0, settings.PORTAL_ORPHAN_GRACE_S / 2))
    rounds = Rounds()
    while not await control.sleep(stop, pause_s):
        await control.in_thread(one_round, rounds)


def one_round(rounds: Rounds) -> None:
    """Look, if there may be something to find."""
    if rounds.worth_it():
        reap_all()


class Rounds:
    """Which rounds are worth their lists, which cost more than all else that an idle portal with many objects does.

    An orphan comes from something that was done, which is in the audit log, or brings a pod, which the watch sees.
    """

    def __init__(self) -> None:
        self._newest: Any = None
        self._calm = -1

    def worth_it(self) -> bool:
        """After something has happened twice, since what was under way is finished then; while an orphan waits; else
        seldom.
        """
        newest = AuditEntry.objects.as_system().order_by("-at").values_list("pk", flat=True).first()
        busy = (
            newest != self._newest or _stirred.is_set() or Orphan.objects.as_system().filter(removed_at=None).exists()
        )
        _stirred.clear()
        self._newest = newest
        self._calm = 0 if busy else self._calm + 1
        return self._calm <= 1 or self._calm % SELDOM == 0


def reap_all() -> None:
    """One round over every cluster that answers."""
    for cluster in Cluster.objects.as_system().filter(state=ClusterState.CONNECTED):
        try:
            reap(cluster)
        except KubeError as error:
            log.info("orphans on %s cannot be looked for now: %s", cluster.name, error)


def reap(cluster: Cluster) -> list[Orphan]:
    """Record what is new, remove what has been an orphan for the grace; the removed ones."""
    connection = access.connect(cluster)
    unneeded = set(ROUTE_KINDS.values()) - {ROUTE_KINDS[cluster.exposure], ""}
    found = [orphan for reapable in _registry.values() for orphan in _orphans(connection, reapable, unneeded=unneeded)]
    now = timezone.now()
    rows = Orphan.objects.as_system().filter(cluster=cluster)
    known = {row.uid: row for row in rows.filter(uid__in=[raw["metadata"]["uid"] for _label, raw in found])}
    # Removed by a reaper that died before it could say so, or by somebody else.
    rows.filter(removed_at=None).exclude(uid__in=known).update(removed_at=now)
    removed: list[Orphan] = []
    for label, raw in found:
        row = known.get(raw["metadata"]["uid"])
        if row is None:
            row = _record(cluster, label, raw)
            crashpoints.reach("orphan-recorded")
        if now - row.first_seen_at >= timedelta(seconds=settings.PORTAL_ORPHAN_GRACE_S) and _remove(connection, row):
            crashpoints.reach("orphan-removed")
            rows.filter(pk=row.pk).update(removed_at=timezone.now())
            removed.append(row)
    return removed


def _orphans(connection: client.Cluster, reapable: Reapable, *, unneeded: Collection[str]) -> Iterable[tuple[str, Raw]]:
    labels = {names.INSTALL: install_id(), names.KIND: reapable.label}
    objects: list[Raw] = []
    for kind in reapable.kinds:
        try:
            objects += connection.list(kind, labels=labels)
        except (NotFound, Forbidden):
            # Routes of the kind that this cluster does not use: it need neither serve nor allow them. Of one that is
            # switched, those that were made before are found.
            if kind not in unneeded:
                raise
    ids = {raw["metadata"]["labels"].get(names.ID, "") for raw in objects}
    alive = {str(pk) for pk in reapable.alive({pk for pk in map(names.parse_id, ids) if pk is not None})}
    for raw in objects:
        metadata = raw["metadata"]
        # What an owner owns goes with it, and what is going already needs no push.
        if metadata["labels"].get(names.ID, "") not in alive and not metadata.get("deletionTimestamp"):
            yield reapable.label, raw


def _record(cluster: Cluster, label: str, raw: Raw) -> Orphan:
    metadata = raw["metadata"]
    row: Orphan = Orphan.objects.create(
        cluster=cluster,
        kind=raw["kind"],
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        uid=metadata["uid"],
        row_kind=label,
        row_id=metadata["labels"].get(names.ID, ""),
        first_seen_at=timezone.now(),
    )
    log.warning("%s on %s belongs to no %s; it is removed after the grace", row, cluster.name, label)
    return row


def _remove(connection: client.Cluster, row: Orphan) -> bool:
    """Delete the very object that was recorded; one of the same name made since then stays."""
    try:
        connection.delete(row.kind, row.namespace or None, row.name, uid=row.uid)
    except (NotFound, Conflict):
        return False
    log.warning("%s belonged to no %s and was removed", row, row.row_kind)
    return True
