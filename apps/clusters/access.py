"""The way from a cluster's row to a client: one per process and credentials, so that connections are reused."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from dataclasses import asdict
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
from kubekit.errors import CredentialError, Unauthorized, Unreachable

_lock = threading.Lock()
_clients: dict[UUID, tuple[str, client.Cluster]] = {}
#: How long an address that was found good counts as good, and by which clock it was found so.
RECHECK_S = 30.0
_checked: dict[str, float] = {}
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
    """Credentials as the encrypted column stores them: JSON."""
    return json.dumps(asdict(credentials))


def unpack(text: str) -> Credentials:
    """The reverse of `pack`."""
    return Credentials(**json.loads(text))


def credentials_of(cluster: Cluster) -> Credentials:
    """The stored credentials, to connect with: where they lead is checked at most `RECHECK_S` ago.

    Raises `CredentialsUnusable`, `AddressRefused`, and `Conflict` for a cluster that was removed.
    """
    credentials = stored(cluster)
    if not (cluster.trusted or cluster.embedded):
        _check_address(credentials.server)
    return credentials


def _check_address(server: str) -> None:
    """The name is resolved at each connection, so what was true at registration need not be true today."""
    now = time.monotonic()
    if _checked.get(server, -RECHECK_S) > now - RECHECK_S:
        return
    try:
        egress.check(server)
    except egress.EgressRefused as error:
        _checked.pop(server, None)
        raise AddressRefused(str(error)) from error
    except egress.EgressFailed:
        return  # the connection itself will say that the name leads nowhere
    _checked[server] = now


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
    mark = hashlib.sha256(pack(credentials).encode()).hexdigest()
    with _lock:
        known = _clients.get(cluster.pk)
        if known is not None and known[0] == mark:
            return known[1]
        made = client.Cluster(_readable(credentials))
        _clients[cluster.pk] = (mark, made)
    if known is not None:
        known[1].close()
    return made


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
