"""Services for clusters: register, change, give new credentials, remove. Only platform administrators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID, uuid4

from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from apps.clusters import access, checks, exposing, leavings
from apps.clusters.models import Cluster, ClusterCheck
from apps.clusters.states import ClusterState
from apps.core import audit, egress, live, names, quantities, wake
from apps.core.actors import Actor
from apps.core.errors import Conflict, Forbidden, Invalid
from apps.core.secret import Secret
from apps.core.transitions import transition
from kubekit import incluster
from kubekit.credentials import Credentials, parse_kubeconfig
from kubekit.errors import CredentialError
from kubekit.names import is_dns_label, is_dns_name

CHANGEABLE = (
    *exposing.OPTIONS,
    "ingress_namespaces",
    "apps_domain",
    "apps_scheme",
    "apps_port",
    "storage_class",
    "user_namespaces",
)
Finder = Callable[[UUID], list[str]]
_finders: list[Finder] = []
ONLY_ADMINS = gettext_lazy("Only a platform administrator may do this.")


def register_use(finder: Finder) -> None:
    """Add a function that names what uses a cluster (by its id), so that such a cluster is not removed."""
    _finders.append(finder)


def uses_of(cluster_pk: UUID) -> list[str]:
    """What uses the cluster, as people read it."""
    return [text for finder in _finders for text in finder(cluster_pk)]


def register(
    *,
    actor: Actor,
    id: UUID | None = None,  # noqa: A002 - the field's name in the API
    name: str,
    kubeconfig: str | bytes = "",
    context: str | None = None,
    trusted: bool = False,
    embedded: bool = False,
    own: bool = False,
    **options: Any,
) -> Cluster:
    """A new cluster from a pasted kubeconfig; the watcher connects to it after commit.

    ``trusted`` is for a file that the operator of the machine gave: its address may be internal without being in
    ``PORTAL_EGRESS_ALLOW``. ``own`` is the cluster that the portal runs in, with its pod's account and no kubeconfig.
    ``options`` are those in `CHANGEABLE`. Raises `Invalid`, `Conflict` or `Forbidden`.
    """
    require_admin(actor)
    name = names.check(name)
    credentials = _own_account() if own else read_kubeconfig(kubeconfig, context=context, trusted=trusted)
    check_options(options, embedded=embedded)
    pk = id or uuid4()
    same = Cluster.objects.as_system().filter(pk=pk)
    known: Cluster | None = same.first()
    if known is not None:
        return known
    try:
        with transaction.atomic():
            cluster: Cluster = Cluster.objects.create(
                pk=pk,
                name=name,
                server=credentials.server,
                credentials=Secret(access.OWN_ACCOUNT if own else access.pack(credentials)),
                embedded=embedded,
                trusted=trusted or own,
                state=ClusterState.PENDING,
                state_since=timezone.now(),
                **options,
            )
            audit.record(actor=actor, verb="cluster.register", obj=cluster, detail={"server": credentials.server})
            live.announce(cluster)
            wake.notify(wake.CLUSTERS)
            if not trusted:
                checks.queue(actor=actor, cluster=cluster)
    except IntegrityError as error:
        again: Cluster | None = same.first()
        if again is not None:  # the same request twice in one instant
            return again
        raise Conflict(
            _("There is a cluster named “%(name)s” already.") % {"name": name},
            code="name_taken",
            next=_("Choose another name."),
            errors={"name": _("taken")},
        ) from error
    return cluster


def replace_credentials(
    *, actor: Actor, cluster: Cluster, kubeconfig: str | bytes, context: str | None = None, trusted: bool = False
) -> None:
    """New credentials (and address) for the same cluster. The same ones again change nothing."""
    require_admin(actor)
    credentials = read_kubeconfig(kubeconfig, context=context, trusted=trusted)
    with transaction.atomic():
        row = _locked(cluster)
        if _holds(row, credentials):
            if trusted and not row.trusted:
                Cluster.objects.as_system().filter(pk=row.pk).update(trusted=True)
                cluster.trusted = True
            return
        row.credentials, row.server, row.trusted = access.pack(credentials), credentials.server, trusted
        row.save(update_fields=["credentials", "server", "trusted", "updated_at"])
        audit.record(actor=actor, verb="cluster.credentials", obj=row, detail={"server": credentials.server})
        live.announce(row)
        wake.notify(wake.CLUSTERS)
    cluster.refresh_from_db()


def update(*, actor: Actor, cluster: Cluster, **options: Any) -> None:
    """Change how instances are reached, where volumes come from, and the like (`CHANGEABLE`).

    Instances that run get their new route at once and lose the old one after it, queues their network policies. Host
    names stay until the instance's next start: programs in it know their own. Raises `Invalid`.
    """
    require_admin(actor)
    with transaction.atomic():
        row = _locked(cluster)
        check_options({**{key: getattr(row, key) for key in CHANGEABLE}, **options}, embedded=row.embedded)
        changed = {key: [getattr(row, key), value] for key, value in options.items() if getattr(row, key) != value}
        if not changed:
            return
        exposure = row.exposure
        for key, value in options.items():
            setattr(row, key, value)
        row.save(update_fields=[*changed, "updated_at"])
        audit.record(actor=actor, verb="cluster.update", obj=row, detail=changed)
        live.announce(row)
        if changed.keys() & set(exposing.OPTIONS):
            exposing.announce_change(row.pk, before=exposure, after=row.exposure)
        if "ingress_namespaces" in changed:
            exposing.announce_let_in(row.pk)
    cluster.refresh_from_db()


def check(*, actor: Actor, cluster: Cluster) -> ClusterCheck:
    """Ask for a check; a worker carries it out. One that waits or runs already is the one that was asked for."""
    require_admin(actor)
    with transaction.atomic():
        return checks.queue(actor=actor, cluster=_locked(cluster))


def remove(*, actor: Actor, cluster: Cluster, keep: bool = False) -> None:
    """Forget a cluster that has no living queues, after everything that the portal made in it is gone.

    With ``keep`` nothing in the cluster is touched, and it need not answer. Raises `Conflict` and `Unavailable`.
    """
    require_admin(actor)
    with transaction.atomic():
        _require_unused(_locked(cluster))
    if not keep:
        leavings.remove(cluster)
    with transaction.atomic():
        row = _locked(cluster)
        _require_unused(row)
        # The row stays for the audit log; its credentials do not.
        transition(row, ClusterState.REMOVED, actor=actor, verb="cluster.remove", values={"credentials": Secret("")})
        wake.notify(wake.CLUSTERS)
    access.forget(cluster.pk)
    cluster.refresh_from_db()


def _require_unused(cluster: Cluster) -> None:
    living = uses_of(cluster.pk)
    if living:
        raise Conflict(
            _("The cluster “%(cluster)s” is used by %(living)s.")
            % {"cluster": cluster.name, "living": quantities.few(living)},
            code="cluster_in_use",
            next=_("Delete these first. A cluster that will never answer again can be forgotten together with them."),
        )


def require_new_enough(cluster: Cluster) -> None:
    """Raise `Conflict` for a cluster whose Kubernetes is too old for anything to be made on it."""
    try:
        access.require_new_enough(cluster.version)
    except access.TooOld as error:
        raise Conflict(
            _("The cluster “%(name)s” runs Kubernetes %(version)s, which is too old for the portal.")
            % {"name": cluster.name, "version": cluster.version},
            code="cluster_too_old",
            next=_("Choose another cluster, or have this one upgraded."),
        ) from error


def read_kubeconfig(text: str | bytes, *, context: str | None = None, trusted: bool = False) -> Credentials:
    """Exactly one context's server, CA and token or client certificate; everything that could act is refused.

    Raises `Invalid` with kubekit's code, or ``address_internal`` for an address that users may not reach.
    """
    try:
        credentials = parse_kubeconfig(text, context=context)
        if not trusted:
            egress.check(credentials.server)
    except CredentialError as error:
        raise Invalid(
            _("The kubeconfig cannot be used: %(why)s.") % {"why": error.message},
            code=f"kubeconfig_{error.code}",
            next=_("Give a file with one service account's token or a client certificate, and the CA inside."),
            errors={"kubeconfig": error.message},
        ) from error
    except egress.EgressRefused as error:
        raise Invalid(
            str(error),
            code=error.code,
            next=_("The operator of the portal can name the cluster's network in PORTAL_EGRESS_ALLOW."),
            errors={"kubeconfig": str(error)},
        ) from error
    except egress.EgressFailed as error:
        raise Invalid(str(error), code="host_unknown", errors={"kubeconfig": str(error)}) from error
    return credentials


def _own_account() -> Credentials:
    """The account of this pod. Raises `Invalid` outside a cluster."""
    try:
        return incluster.read()
    except CredentialError as error:
        raise Invalid(
            _("The portal cannot use the cluster that it runs in: %(why)s.") % {"why": error.message},
            code=error.code,
            next=_("Run it with a service account of that cluster, or name a kubeconfig in PORTAL_CLUSTER."),
        ) from error


def check_options(options: Mapping[str, Any], *, embedded: bool = False) -> None:
    """Raise `Invalid` for options that could not work."""
    errors: dict[str, Any] = {}
    unknown = set(options) - set(CHANGEABLE)
    errors |= {key: _("This field is not known.") for key in unknown}
    domain = options.get("apps_domain", "apps.localhost")
    if not is_dns_name(domain):
        errors["apps_domain"] = _("This is not a domain name such as apps.example.org.")
    if options.get("apps_scheme", "https") not in {"http", "https"}:
        errors["apps_scheme"] = _("Choose http or https.")
    elif options.get("apps_scheme") == "http" and not is_local(domain):
        errors["apps_scheme"] = _("Keys would be readable on the way: plain http is for localhost alone.")
    if not 0 <= options.get("apps_port", 0) <= 65535:
        errors["apps_port"] = _("A port is a number from 1 to 65535; 0 means the scheme's own.")
    for key in ("ingress_class", "storage_class"):
        if options.get(key) and not is_dns_name(options[key]):
            errors[key] = _("This is not the name of a class.")
    if not all(is_dns_label(entry) for entry in options.get("ingress_namespaces", ())):
        errors["ingress_namespaces"] = _("These are not names of namespaces.")
    errors |= exposing.errors_of(options, embedded=embedded)
    if errors:
        raise Invalid(_("The cluster cannot be set up like this."), errors=errors)


def is_local(domain: str) -> bool:
    """Whether browsers resolve the domain to their own machine."""
    return domain == "localhost" or domain.endswith(".localhost")


def require_admin(actor: Actor) -> None:
    """Raise `Forbidden` unless the actor is a platform administrator."""
    if not actor.is_admin:
        raise Forbidden(ONLY_ADMINS, code="admin_only", next=_("Ask an administrator of the portal."))


def _holds(cluster: Cluster, credentials: Credentials) -> bool:
    """Whether these are the stored credentials; what cannot be decrypted or read any more is replaced."""
    try:
        return access.stored(cluster) == credentials
    except access.CredentialsUnusable:
        return False


def _locked(cluster: Cluster) -> Cluster:
    row: Cluster = Cluster.objects.as_system().select_for_update(of=("self",)).get(pk=cluster.pk)
    if row.state == ClusterState.REMOVED:
        raise Conflict(_("The cluster “%(name)s” was removed.") % {"name": row.name}, code="cluster_removed")
    return row
