"""Credentials of the cluster that this very process runs in: what Kubernetes mounts into the pod of an account.

The token there is good for about an hour and only while its pod lives; the kubelet writes a new one in time. So these
credentials are never stored: they are read again whenever a connection is made.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from .credentials import Credentials
from .errors import CredentialError

IN_CLUSTER = "in-cluster"
"""How settings name the cluster that the portal itself runs in."""
FOLDER = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def read(*, folder: Path = FOLDER, environ: Mapping[str, str] | None = None) -> Credentials:
    """The account's credentials as they are now.

    Raises `CredentialError` with the code ``not_in_cluster`` where Kubernetes has mounted none.
    """
    values = os.environ if environ is None else environ
    host, port = values.get("KUBERNETES_SERVICE_HOST", ""), values.get("KUBERNETES_SERVICE_PORT") or "443"
    try:
        token, ca = (folder / "token").read_text(encoding="utf-8"), (folder / "ca.crt").read_text(encoding="utf-8")
    except OSError as error:
        raise CredentialError(
            "not_in_cluster", f"this process has no account of a cluster: {folder} cannot be read ({error.strerror})"
        ) from error
    if not host:
        raise CredentialError(
            "not_in_cluster", "KUBERNETES_SERVICE_HOST is not set: this process does not run in a cluster"
        )
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return Credentials(server=server, ca_data=ca, token=token.strip())
