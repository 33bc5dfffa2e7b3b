"""What a fresh cluster holds before anybody asks, and the files that let clients in."""

from __future__ import annotations

import base64
import json
import os
import secrets
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Final

from localkube.registry import Registry
from localkube.status import ApiError, Object

STORAGE_CLASS: Final = "standard"
PROVISIONER: Final = "localkube/volumes"
INGRESS_CLASS: Final = "localkube"

_OBJECTS: Final[tuple[tuple[str, Object], ...]] = (
    *(
        ("namespaces", {"metadata": {"name": name}})
        for name in ("default", "kube-system", "kube-public", "kube-node-lease")
    ),
    (
        "storageclasses",
        {
            "metadata": {"name": STORAGE_CLASS, "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
            "provisioner": PROVISIONER,
            "allowVolumeExpansion": True,
        },
    ),
    (
        "ingressclasses",
        {
            "metadata": {"name": INGRESS_CLASS, "annotations": {"ingressclass.kubernetes.io/is-default-class": "true"}},
            "spec": {"controller": "localkube/caddy"},
        },
    ),
)


def first_objects(registry: Registry) -> None:
    """Create what is missing of the objects every cluster has. Nothing that exists is touched."""
    for resource, obj in _OBJECTS:
        if registry.store.peek(resource, None, obj["metadata"]["name"]) is None:
            registry.create(registry.store.resources[resource], None, obj)
    for namespace in tuple(registry.store.iterate("namespaces")):
        default_account(registry, namespace["metadata"]["name"])


def default_account(registry: Registry, namespace: str) -> None:
    """Give a namespace its service account `default`, without which no pod is admitted."""
    if registry.store.peek("serviceaccounts", namespace, "default") is not None:
        return
    account = {"metadata": {"name": "default", "namespace": namespace}}
    try:
        registry.create(registry.store.resources["serviceaccounts"], namespace, account)
    except ApiError as error:
        if error.code not in (403, 404):  # the namespace is going: it needs no account
            raise


def _private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, in one step."""
    part = path.with_name(path.name + ".part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    part.replace(path)


def token(home: Path) -> str:
    """The administrator's bearer token, made at the first start and kept."""
    path = home / "token"
    if not path.exists():
        _private(path, secrets.token_urlsafe(32))
    return path.read_text().strip()


def tls(home: Path, address: str) -> ssl.SSLContext:
    """The server's TLS, with certificates made at the first start and again for another address.

    Raises OSError when they cannot be made.
    """
    marker = home / "server.address"
    if not (home / "server.pem").exists() or not marker.exists() or marker.read_text() != address:
        source = str(Path(__file__).parent.parent)
        command = [sys.executable, "-m", "localkube.certificates", str(home), address]
        made = subprocess.run(
            command, env=os.environ | {"PYTHONPATH": source}, capture_output=True, text=True, check=False
        )
        if made.returncode:
            raise OSError(f"the server's certificate cannot be made: {made.stderr.strip()[-500:]}")
        marker.write_text(address)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(home / "server.pem")
    return context


def write_kubeconfig(home: Path, address: str, bearer: str) -> None:
    """`kubeconfig` in the home folder; JSON is YAML."""
    authority = base64.b64encode((home / "ca.crt").read_bytes()).decode()
    cluster = {"server": f"https://{address}", "certificate-authority-data": authority}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "localkube", "cluster": cluster}],
        "users": [{"name": "admin", "user": {"token": bearer}}],
        "contexts": [{"name": "localkube", "context": {"cluster": "localkube", "user": "admin"}}],
        "current-context": "localkube",
    }
    _private(home / "kubeconfig", json.dumps(config, indent=2) + "\n")
