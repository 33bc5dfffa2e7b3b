"""Forget a cluster that is lost, with everything that the portal believes to be on it.

Nobody can reach it any more, so nothing in it can be ended or removed. Everything that lives in its queues ends in the
portal alone, in one transaction: either all of it says so, its quota is given back and the cluster is forgotten, or
nothing has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from apps.clusters import access, services
from apps.clusters.models import Cluster
from apps.clusters.states import ClusterState
from apps.core import wake
from apps.core.actors import Actor
from apps.core.errors import Conflict, Invalid
from apps.core.reasons import Reason, Wording
from apps.core.secret import Secret
from apps.core.transitions import transition
from kubekit.errors import KubeError

WORDINGS = {
    "cluster_abandoned": Wording(
        sentence=gettext_lazy("The cluster “{cluster}” was lost, and {who} had the portal forget it on {day}."),
        next=gettext_lazy("What was there can no longer be reached from here; use a queue on another cluster."),
    )
}
STILL_THERE = gettext_lazy(
    "What runs in the cluster runs on there, and what is stored in it stays, until somebody with access to it removes "
    "the namespaces labelled app.kubernetes.io/managed-by=mlportal."
)


@dataclass(frozen=True, kw_only=True)
class Part:
    """What an app has on a cluster. ``end`` brings all of it to its end inside the caller's transaction and may be
    called twice; ``lost`` says in words what that is, nothing when there is nothing. Lower ``order`` ends first."""

    order: int
    end: Callable[[UUID, Actor, Reason], None]
    lost: Callable[[UUID], Sequence[str]]


_parts: list[Part] = []


def register(part: Part) -> None:
    """Add what an app has on a cluster; called from ``AppConfig.ready``."""
    _parts.append(part)
    _parts.sort(key=lambda one: one.order)


def lost(cluster_pk: UUID) -> list[str]:
    """What ends when the cluster is forgotten now, as people read it."""
    return [text for part in reversed(_parts) for text in part.lost(cluster_pk)]


def may_be_lost(cluster: Cluster) -> bool:
    """Whether it can be given up: the portal does not hear from it."""
    return cluster.state in (ClusterState.PENDING, ClusterState.UNREACHABLE)


def abandon(*, actor: Actor, cluster: Cluster, confirm: str) -> None:
    """Forget the cluster and end what is on it. ``confirm`` is its name, typed by whoever wants that.

    Raises `Invalid` for another name, `Conflict` for a cluster that answers, and `Forbidden`.
    """
    services.require_admin(actor)
    if confirm != cluster.name:
        raise Invalid(
            _("Nothing was done: the name of the cluster was not typed."),
            code="not_confirmed",
            errors={"confirm": _("Type “%(name)s”.") % {"name": cluster.name}},
        )
    _require_silence(cluster)
    with transaction.atomic():
        row: Cluster = Cluster.objects.as_system().select_for_update(of=("self",)).get(pk=cluster.pk)
        if not may_be_lost(row):
            raise _answers(row)
        day = f"{timezone.now():%Y-%m-%d %H:%M} UTC"
        reason = Reason(code="cluster_abandoned", params={"cluster": row.name, "who": actor.name, "day": day})
        # The second round takes what was made while the first one waited for a lock; from the last part of the first
        # one on, which closes the queues, nothing is made any more.
        for _round in range(2):
            for part in _parts:
                part.end(row.pk, actor, reason)
        transition(
            row, ClusterState.REMOVED, actor=actor, verb="cluster.abandon", reason=reason,
            values={"credentials": Secret("")},
        )  # fmt: skip
        wake.notify(wake.CLUSTERS)
    access.forget(cluster.pk)
    cluster.refresh_from_db()


def give_up(
    row: Any, *steps: str, actor: Actor, reason: Reason, verb: str, values: Mapping[str, Any] | None = None
) -> None:
    """Take a claimable row, which the caller has locked, through ``steps`` to its end. A worker that holds it has lost
    its claim and writes nothing more."""
    fenced = {"claim_token": row.claim_token + 1, "claimed_until": None, "due_at": None, **(values or {})}
    for step in steps:
        if row.state != step:
            last = step == steps[-1]
            transition(
                row, step, actor=actor, reason=reason, verb=verb if last else None, values=fenced if last else None
            )


def _require_silence(cluster: Cluster) -> None:
    """Ask once more, now: what answers is never given up."""
    if not may_be_lost(cluster):
        raise _answers(cluster)
    try:
        access.connect(cluster, any_version=True).version()
    except KubeError:
        return
    raise _answers(cluster)


def _answers(cluster: Cluster) -> Conflict:
    if cluster.state == ClusterState.REMOVED:
        return Conflict(_("The cluster “%(name)s” was removed.") % {"name": cluster.name}, code="cluster_removed")
    return Conflict(
        _("The cluster “%(name)s” answers, so nothing on it is given up.") % {"name": cluster.name},
        code="cluster_answers",
        next=_("Delete what is in its queues, then the queues, then remove it."),
    )
