"""The way from a cluster's row to a client: one per process and credentials, so that connections are reused."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from uuid import UUID

from django.utils.translation import gettext as _

from apps.clusters.models import Cluster
from apps.clusters.states import ClusterState
from apps.core import egress
from apps.core.errors import Conflict
from apps.core.secret import Undecryptable
from kubekit import client, incluster
from kubekit.checkup import facts
from kubekit.credentials import Credentials
from kubekit.errors import CredentialError, PermissionDenied, Unauthorized, Unreachable

_lock = threading.Lock()
_clients: dict[UUID, tuple[str, client.Cluster]] = {}
#: How long an address that was found good counts as good, and by which clock it was found so.
RECHECK_S = 30.0
_checked: dict[str, tuple[float, tuple[str, ...]]] = {}
_denied: list[Callable[[UUID, PermissionDenied], None]] = []
#: Stored in place of credentials: the portal runs in this cluster and uses its own pod's account, as it is by then.
OWN_ACCOUNT = json.dumps({"in_cluster": True})


class CredentialsUnusable(Unauthorized):
    """The stored credentials cannot be decrypted or read: for whoever asks, the same as being refused by the cluster.

    A ``KubeError``, so that every reconciler says so on its object instead of trying for ever.
    """


class AddressRefused(Unreachable):
    """The host name of a cluster that was registered by hand leads to an address that users may not reach (F47).

    It did not when the cluster was registered: whoever owns the name changed it since.
    """


class TooOld(Unreachable):
    """The cluster runs a Kubernetes that the portal does not work with, so nothing is written to it."""

    retryable = False


def require_new_enough(git_version: str) -> None:
    """Raise `TooOld` for a version such as ``v1.28.3``; one that is not known (yet) passes."""
    if facts.too_old(facts.parse_version(git_version)):
        raise TooOld(f"{git_version} is older than 1.{facts.OLDEST_MINOR}")


def pack(credentials: Credentials) -> str:
    """Credentials as the encrypted column stores them: JSON. Addresses are found out anew each time."""
    return json.dumps(asdict(replace(credentials, addresses=())))


def mark(credentials: Credentials) -> str:
    """What changes when a connection has to be made anew."""
    return hashlib.sha256(json.dumps(asdict(credentials)).encode()).hexdigest()


def unpack(text: str) -> Credentials:
    """The reverse of `pack`."""
    found = json.loads(text)
    return Credentials(**{**found, "addresses": tuple(found.get("addresses", ()))})


def credentials_of(cluster: Cluster) -> Credentials:
    """The stored credentials, to connect with: where they lead was checked at most `RECHECK_S` ago and is pinned.

    Raises `CredentialsUnusable`, `AddressRefused`, `Unreachable` for a name that leads nowhere, and `Conflict` for a
    cluster that was removed.
    """
    credentials = stored(cluster)
    if cluster.trusted or cluster.embedded:
        return credentials
    return replace(credentials, addresses=_checked_addresses(credentials.server))


def _checked_addresses(server: str) -> tuple[str, ...]:
    """Where the server's name leads: what was true at registration need not be true today.

    Connections are pinned to the answer, so that a name cannot lead elsewhere between this look and theirs. In an order
    that does not change, as the answers of a name server do.
    """
    now = time.monotonic()
    at, known = _checked.get(server, (-RECHECK_S, ()))
    if at > now - RECHECK_S:
        return known
    try:
        found = tuple(sorted(set(egress.check(server).addresses)))
    except egress.EgressRefused as error:
        _checked.pop(server, None)
        raise AddressRefused(str(error)) from error
    except egress.EgressFailed as error:
        if known:
            return known  # the name server is away; these were good when it was last heard
        raise Unreachable(str(error)) from error
    _checked[server] = now, found
    return found


def stored(cluster: Cluster) -> Credentials:
    """The stored credentials, to compare. Raises `CredentialsUnusable`, and `Conflict` for a removed cluster."""
    if cluster.state == ClusterState.REMOVED:
        raise Conflict(_("The cluster “%(name)s” was removed.") % {"name": cluster.name}, code="cluster_removed")
    try:
        text = cluster.credentials.reveal()
        return incluster.read() if text == OWN_ACCOUNT else unpack(text)
    except Undecryptable as error:
        raise CredentialsUnusable(str(error)) from error
    except CredentialError as error:
        raise CredentialsUnusable(error.message) from error
    except (ValueError, TypeError) as error:  # its text could quote what was decrypted
        raise CredentialsUnusable("the stored credentials are not what the portal wrote") from error


def is_own(cluster: Cluster) -> bool:
    """Whether the portal reaches the cluster by the account of its own pod."""
    try:
        return bool(cluster.credentials.reveal() == OWN_ACCOUNT)
    except Undecryptable:
        return False


def connect(cluster: Cluster, *, any_version: bool = False) -> client.Cluster:
    """The client of this cluster, shared by all threads of the process; a new one after its credentials changed.

    Raises `CredentialsUnusable`, `AddressRefused`, `TooOld` unless ``any_version`` will do, and `Conflict` for a
    cluster that was removed.
    """
    if not any_version:
        require_new_enough(cluster.version)
    credentials = credentials_of(cluster)
    present = mark(credentials)
    with _lock:
        known = _clients.get(cluster.pk)
        if known is not None and known[0] == present:
            return known[1]
        made = client.Cluster(_readable(credentials), on_denied=partial(_tell_denied, cluster.pk))
        _clients[cluster.pk] = (present, made)
    if known is not None:
        known[1].close()
    return made


def register_denied(handler: Callable[[UUID, PermissionDenied], None]) -> None:
    """Let ``handler`` hear of every request that an account may not make, with the cluster's id."""
    _denied[:] = [handler]


def _tell_denied(cluster_pk: UUID, error: PermissionDenied) -> None:
    for handler in _denied:
        handler(cluster_pk, error)


def _readable(credentials: Credentials) -> Credentials:
    """The same; certificates and keys that no TLS connection could use are found here and not at the first request."""
    try:
        if credentials.secure:
            credentials.ssl_context()
    except CredentialError as error:
        raise CredentialsUnusable(error.message) from error
    return credentials


def forget(cluster_pk: UUID) -> None:
    """Close the client of a cluster that is gone."""
    with _lock:
        known = _clients.pop(cluster_pk, None)
    if known is not None:
        known[1].close()
