"""Checks of clusters: asked for by a person or a script, carried out by a worker, kept with their age.

The row is claimed like any other, so a check whose worker died is taken up again from its beginning.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from django.db import transaction
from django.utils import timezone

from apps.clusters import access, contact
from apps.clusters.examining import Examination, remove_leftovers
from apps.clusters.installation import install_id
from apps.clusters.models import Cluster, ClusterCheck
from apps.clusters.reaper import Reapable
from apps.clusters.states import CheckState, ClusterState
from apps.core import actors, audit, claims, live, reconciling
from apps.core.actors import Actor
from apps.core.claims import Claim, ClaimLost
from apps.core.reconciling import Reconciler
from apps.core.transitions import transition
from kubekit import client, names
from kubekit.build import probe
from kubekit.build.probe import ProbeSpec
from kubekit.checkup import Line
from kubekit.credentials import expiry
from kubekit.errors import KubeError, PermissionDenied, SpecError
from kubekit.permissions import NEEDED

ACTOR = actors.system("cluster check")
KIND = "clustercheck"
#: A claim older than this is lengthened.
FRESH_S = claims.LEASE.total_seconds() / 4
ASK_AGAIN = timedelta(minutes=1)
_image: list[Callable[[], str]] = []


def register_image(finder: Callable[[], str]) -> None:
    """Say where the reference of an image with Python comes from, for the pods that try things out."""
    _image[:] = [finder]


def of(cluster: Cluster) -> ClusterCheck | None:
    """The latest check, None when there never was one."""
    row: ClusterCheck | None = ClusterCheck.objects.as_system().filter(cluster=cluster).first()
    return row


def queue(*, actor: Actor, cluster: Cluster) -> ClusterCheck:
    """Ask for a check inside the caller's transaction. One that waits or runs is the one that was asked for."""
    now = timezone.now()
    rows = ClusterCheck.objects.as_system()
    row: ClusterCheck | None = rows.select_for_update(of=("self",)).filter(cluster=cluster).first()
    if row is None:
        row = ClusterCheck.objects.create(cluster=cluster, state=CheckState.QUEUED, state_since=now, due_at=now)
        live.announce(row)
    elif row.state == CheckState.SUCCEEDED:
        transition(row, CheckState.QUEUED, actor=actor, values=reconciling.look_now(row))
    audit.record(actor=actor, verb="cluster.check", obj=cluster)
    reconciling.hint(KIND, row.pk)
    return row


def run(pk: UUID, claim: Claim) -> datetime | None:
    """The reconciler: one whole check, from its beginning, also when another worker began one and died.

    Permissions that were missing are asked for again and again, so that the cluster's page says when they are there.
    """
    row: ClusterCheck = ClusterCheck.objects.as_system().select_related("cluster").get(pk=pk)
    if row.cluster.state == ClusterState.REMOVED:
        return None
    return _ask_again(row, claim) if row.state == CheckState.SUCCEEDED else _whole(row, claim)


def _whole(row: ClusterCheck, claim: Claim) -> datetime | None:
    begun = {"run": uuid4(), "lines": [], "started_at": timezone.now(), "finished_at": None}
    transition(row, CheckState.RUNNING, actor=ACTOR, claim=claim, values=begun)
    beat = _Beat(claim)
    try:
        server = access.connect(row.cluster, any_version=True)
        remove_leftovers(server, install=install_id(), alive=_alive_texts)
        for line in _examination(row, server, beat).lines():
            _add(row, claim, line)
    except KubeError as error:
        _add(row, claim, Line(topic="answer", code="silent", result="missing", evidence=(error.message,)))
    transition(row, CheckState.SUCCEEDED, actor=ACTOR, claim=claim, values={"finished_at": timezone.now(), "run": None})
    return _note_permissions(row)


def note_denied(cluster_pk: UUID, error: PermissionDenied) -> None:
    """A request met a permission that the account does not have (any more): the cluster says so, and the check asks
    for all of them, now and until they are there."""
    known = Cluster.objects.as_system().filter(pk=cluster_pk).values_list("state", "reason_code", "exposure").first()
    if known is None or known[:2] != (ClusterState.CONNECTED, ""):
        return
    if not any(
        entry.full_name == error.resource and error.verb in entry.verbs and entry.needed_with(known[2])
        for entry in NEEDED
    ):
        return
    contact.note_permissions(cluster_pk, missing=[f"{error.verb} {error.resource}"])
    with transaction.atomic():
        row = ClusterCheck.objects.as_system().select_for_update(of=("self",)).filter(cluster_id=cluster_pk).first()
        if row is None:
            queue(actor=ACTOR, cluster=Cluster.objects.as_system().get(pk=cluster_pk))
            return
        ClusterCheck.objects.as_system().filter(pk=row.pk).update(**reconciling.look_now(row))
        reconciling.hint(KIND, row.pk)


def _ask_again(row: ClusterCheck, claim: Claim) -> datetime | None:
    if not missing_permissions(row) and row.cluster.reason_code != "cluster_permissions":
        return None
    try:
        server = access.connect(row.cluster, any_version=True)
        asked = [line.as_dict() for line in _examination(row, server, _Beat(claim)).permissions()]
    except KubeError:
        return timezone.now() + ASK_AGAIN
    first = next((place for place, line in enumerate(row.lines) if line["topic"] == "permission"), len(row.lines))
    others = [line for line in row.lines if line["topic"] != "permission"]
    _store(row, claim, [*others[:first], *asked, *others[first:]])
    return _note_permissions(row)


def _note_permissions(row: ClusterCheck) -> datetime | None:
    missing = missing_permissions(row)
    contact.note_permissions(row.cluster_id, missing=missing)
    return timezone.now() + ASK_AGAIN if missing else None


def missing_permissions(row: ClusterCheck) -> list[str] | None:
    """What the account may not do, as ``kubectl`` names it; None when the cluster did not get as far as saying so."""
    asked = [line for line in row.lines if line["topic"] == "permission"]
    if not asked:
        return None
    return [f"{line['params']['missing']} {line['params']['what']}" for line in asked if line["result"] == "missing"]


def alive_ids(ids: Collection[UUID]) -> set[UUID]:
    """Of some runs those that still run; what the others left behind may go."""
    running = ClusterCheck.objects.as_system().filter(run__in=ids, state=CheckState.RUNNING)
    return set(running.values_list("run", flat=True))


def _alive_texts(ids: Collection[str]) -> set[str]:
    known = [pk for pk in map(names.parse_id, ids) if pk is not None]
    return {str(pk) for pk in alive_ids(known)}


def _examination(row: ClusterCheck, server: client.Cluster, beat: Callable[[], None]) -> Examination:
    reference = _image[0]() if _image else ""
    try:
        spec = ProbeSpec(install=install_id(), id=str(row.run), image=reference) if reference else None
    except SpecError:
        spec = None  # a reference that no node could pull is as good as none
    try:
        ends = expiry(access.stored(row.cluster))
    except access.CredentialsUnusable:
        ends = None  # the connection itself has said so
    return Examination(server=server, cluster=row.cluster, spec=spec, beat=beat, login_ends=ends)


def _add(row: ClusterCheck, claim: Claim, line: Line) -> None:
    """One more line; pages show it at once. Raises ``ClaimLost``."""
    _store(row, claim, [*row.lines, line.as_dict()])


def _store(row: ClusterCheck, claim: Claim, lines: list[dict[str, Any]]) -> None:
    row.lines = lines
    mine = ClusterCheck.objects.as_system().filter(pk=row.pk, claim_token=claim.token)
    if not mine.update(lines=row.lines, updated_at=timezone.now()):
        raise ClaimLost(str(row.pk))
    live.announce(row)


class _Beat:
    """Keeps the claim while the check waits for the cluster; raises ``ClaimLost`` when another worker has it."""

    def __init__(self, claim: Claim) -> None:
        self._claim = claim
        self._fresh_until = time.monotonic() + FRESH_S

    def __call__(self) -> None:
        if time.monotonic() > self._fresh_until:
            claims.extend(ClusterCheck, self._claim)
            self._fresh_until = time.monotonic() + FRESH_S


RECONCILER = Reconciler(kind=KIND, model=ClusterCheck, run=run)
REAPABLE = Reapable(label=probe.KIND, kinds=("Namespace",), alive=alive_ids)
