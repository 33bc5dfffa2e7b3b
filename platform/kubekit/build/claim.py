"""A volume: a PersistentVolumeClaim of its own, never part of a StatefulSet's immutable templates."""

from __future__ import annotations

from typing import Any

from kubekit.build import pod
from kubekit.quantities import format_bytes
from kubekit.specs import ClaimSpec


def claim(spec: ClaimSpec) -> dict[str, Any]:
    """The claim; apply it with a larger size to expand it (the server refuses a smaller one)."""
    body: dict[str, Any] = {
        "accessModes": [spec.access_mode],
        "resources": {"requests": {"storage": format_bytes(spec.storage_bytes)}},
    }
    if spec.storage_class is not None:
        body["storageClassName"] = spec.storage_class
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": pod.metadata(spec.identity, "volume", name=spec.object_name, namespace=spec.namespace),
        "spec": body,
    }
