"""Whether a cluster answers: the one place that moves a cluster between connected and unreachable."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from uuid import UUID

from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from apps.clusters import access
from apps.clusters.models import Cluster
from apps.clusters.states import ClusterState
from apps.core import actors, quantities
from apps.core.reasons import Reason, Wording
from apps.core.transitions import transition
from kubekit.checkup import facts
from kubekit.errors import Forbidden, KubeError, PermissionDenied, TlsFailure, Unauthorized

log = logging.getLogger(__name__)

WORDINGS = {
    "cluster_address": Wording(
        sentence=_("The cluster's host name leads to an internal address now, so nothing is sent there."),
        next=_("If that is meant, the operator of the portal can name its network in PORTAL_EGRESS_ALLOW."),
    ),
    "cluster_certificate": Wording(
        sentence=_("The cluster's certificate is not the one that its CA vouches for, so nothing was sent."),
        next=_("If the cluster was set up anew, register its new kubeconfig; otherwise find out who answers there."),
    ),
    "cluster_credentials": Wording(
        sentence=_(
            "The cluster's credentials cannot be read: most likely the portal's secret file does not fit its database."
        ),
        next=_("Put the right secret file back (PORTAL_SECRET_FILE), or give new credentials on the cluster's page."),
    ),
    "cluster_too_old": Wording(
        sentence=_("The cluster runs Kubernetes {version}; the portal needs {oldest} or later, so it writes nothing."),
        next=_("Upgrade the cluster; the portal notices by itself."),
    ),
    "cluster_permissions": Wording(
        sentence=_("The portal's account in the cluster lacks permissions: {missing}."),
        next=_("The check lists each with the command that grants it; the portal notices within a minute."),
    ),
    "cluster_forbidden": Wording(
        sentence=_("The cluster knows the portal's account but does not let it look."),
        next=_("The check page lists the missing permissions and the command that grants them."),
    ),
}
_AT_ONCE = (Unauthorized, TlsFailure)
WATCHER = actors.system("cluster watcher")


def reason_for(error: KubeError) -> Reason:
    """A failed request as a cluster's reason."""
    code = {
        Unauthorized: "cluster_unauthorized",
        TlsFailure: "cluster_certificate",
        Forbidden: "cluster_forbidden",
        PermissionDenied: "cluster_forbidden",
        access.AddressRefused: "cluster_address",
    }.get(type(error), "cluster_unreachable")
    return Reason(code=code, evidence=(error.message[:500],))


def too_old(version: str) -> Reason:
    """Why nothing is written to a cluster of this version."""
    return Reason(code="cluster_too_old", params={"version": version, "oldest": f"1.{facts.OLDEST_MINOR}"})


def is_decisive(error: KubeError) -> bool:
    """True when waiting cannot help: the credentials or the certificate are wrong."""
    return isinstance(error, _AT_ONCE)


def note_answer(cluster_pk: UUID, *, version: str = "") -> None:
    """The cluster answered: connected, and since when it was last heard of."""
    cluster = Cluster.objects.as_system().filter(pk=cluster_pk).first()
    if cluster is None or cluster.state == ClusterState.REMOVED:
        return
    values = {"last_contact_at": timezone.now(), **({"version": version} if version else {})}
    try:
        access.require_new_enough(version or cluster.version)
    except access.TooOld:
        old = too_old(version or cluster.version)
        transition(cluster, ClusterState.UNREACHABLE, actor=WATCHER, expect=_ALIVE, reason=old, values=values)
        return
    # What is not allowed stays so when the connection comes back; the check says when it is.
    kept = Reason(code=cluster.reason_code, params=cluster.reason_params, evidence=cluster.reason_evidence)
    reason = kept if cluster.reason_code == "cluster_permissions" else None
    if cluster.state == ClusterState.UNREACHABLE:
        log.info("the cluster %s answers again", cluster.name)
    transition(cluster, ClusterState.CONNECTED, actor=WATCHER, expect=_ALIVE, reason=reason, values=values)


def note_alive(cluster_pk: UUID) -> None:
    """Still there: one statement a minute, told to nobody, since nothing but a time changes."""
    connected = Cluster.objects.as_system().filter(pk=cluster_pk, state=ClusterState.CONNECTED)
    if not connected.update(last_contact_at=timezone.now()):
        note_answer(cluster_pk)


def note_connected(cluster_pk: UUID) -> None:
    """The first answer after a gap: note it with the version, which an upgrade may have changed meanwhile."""
    cluster = Cluster.objects.as_system().filter(pk=cluster_pk).first()
    if cluster is None or cluster.state == ClusterState.REMOVED:
        return
    try:
        version = str(access.connect(cluster, any_version=True).version().get("gitVersion", ""))
    except KubeError:
        version = ""  # the lists came through, so it answers; the version can wait for the next time
    note_answer(cluster_pk, version=version[:60])


def note_permissions(cluster_pk: UUID, *, missing: Sequence[str] | None) -> None:
    """What a check found of the account's permissions; None when it could not ask."""
    cluster = Cluster.objects.as_system().filter(pk=cluster_pk, state=ClusterState.CONNECTED).first()
    if cluster is None or missing is None:
        return
    if missing:
        shown = quantities.few(missing, between="; ")
        reason = Reason(code="cluster_permissions", params={"missing": shown}, evidence=tuple(missing)[:50])
        transition(cluster, ClusterState.CONNECTED, actor=WATCHER, expect={ClusterState.CONNECTED}, reason=reason)
    elif cluster.reason_code == "cluster_permissions":
        transition(cluster, ClusterState.CONNECTED, actor=WATCHER, expect={ClusterState.CONNECTED})


def note_failure(cluster_pk: UUID, error: KubeError) -> None:
    """The cluster has not answered for long enough to say so."""
    cluster = Cluster.objects.as_system().filter(pk=cluster_pk).first()
    if cluster is None:
        return
    if cluster.state != ClusterState.UNREACHABLE:
        log.warning("the cluster %s does not answer: %s", cluster.name, error.message)
    transition(cluster, ClusterState.UNREACHABLE, actor=WATCHER, expect=_ALIVE, reason=reason_for(error))


def note_unreadable(cluster_pk: UUID, why: str) -> None:
    """The stored credentials cannot be used: most likely the secret file is not the one that wrote them."""
    reason = Reason(code="cluster_credentials", evidence=(why,))
    cluster = Cluster.objects.as_system().filter(pk=cluster_pk).first()
    if cluster is not None:
        transition(cluster, ClusterState.UNREACHABLE, actor=WATCHER, expect=_ALIVE, reason=reason)


_ALIVE = frozenset(ClusterState) - {ClusterState.REMOVED}
