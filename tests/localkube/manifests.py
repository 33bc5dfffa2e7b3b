"""Manifests the tests share."""

from __future__ import annotations

from typing import Any


def pod(name: str = "p", **more: Any) -> dict[str, Any]:
    """A pod; resources=, spec=, annotations=, labels=, finalizers= change it."""
    container: dict[str, Any] = {"name": "main", "image": "mlportal/python:1"}
    if "resources" in more:
        container["resources"] = more["resources"]
    metadata = {key: more[key] for key in ("annotations", "labels", "finalizers") if key in more}
    return {"metadata": {"name": name} | metadata, "spec": {"containers": [container]} | more.get("spec", {})}


def asks(cpu: str = "100m", memory: str = "64Mi", **extended: str) -> dict[str, Any]:
    """Requests and limits of the same amounts."""
    amounts = {"cpu": cpu, "memory": memory} | extended
    return {"requests": amounts, "limits": amounts}


def stateful_set(name: str = "web", *, replicas: int = 1, **spec: Any) -> dict[str, Any]:
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "image": "mlportal/jupyter:1",
                    "ports": [{"name": "http", "containerPort": 8888}],
                    "env": [{"name": "A", "value": "b"}],
                }
            ]
        },
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "replicas": replicas,
            "serviceName": name,
            "selector": {"matchLabels": {"app": name}},
            "template": template,
        }
        | spec,
    }


def job(name: str = "job", **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "mlportal/python:1"}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return {"metadata": {"name": name}, "spec": {"template": template} | spec}


def config_map(name: str = "c", **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
