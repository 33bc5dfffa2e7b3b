"""B6, the plain way: one LIST of all pods through the official client's typed models."""

from __future__ import annotations

import time

BEGAN = time.monotonic()

import os  # noqa: E402
from importlib.metadata import version  # noqa: E402

from kubernetes import client  # noqa: E402
from sides.meter import say, whole  # noqa: E402

if __name__ == "__main__":
    api = client.CoreV1Api(client.ApiClient(client.Configuration(host=os.environ["BENCH_SERVER"])))
    found = {f"{pod.metadata.namespace}/{pod.metadata.name}": pod for pod in api.list_pod_for_all_namespaces().items}
    versions = f"kubernetes {version('kubernetes')}"
    say(serving_ms=1000 * (time.monotonic() - BEGAN), versions=versions, pods=len(found), **whole())
