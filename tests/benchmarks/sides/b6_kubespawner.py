"""B6, KubeSpawner: its reflector of all pods, as a hub with namespaces of users has one. It stores nothing."""

from __future__ import annotations

import time

BEGAN = time.monotonic()

import asyncio  # noqa: E402
import logging  # noqa: E402
import os  # noqa: E402
from collections.abc import Callable  # noqa: E402
from importlib.metadata import version  # noqa: E402
from typing import Any  # noqa: E402

from kubernetes_asyncio import client  # noqa: E402
from kubespawner.reflector import MultiNamespaceResourceReflector  # noqa: E402
from sides.meter import Meter, say, serve, whole  # noqa: E402

logging.disable(logging.WARNING)


async def until(probe: Callable[[], bool]) -> None:
    """The reflector tells nobody: look."""
    while not probe():  # noqa: ASYNC110
        await asyncio.sleep(0.005)


async def run() -> None:
    """Reflect until there are no more commands."""
    configuration = client.Configuration(host=os.environ["BENCH_SERVER"])
    client.Configuration.set_default(configuration)
    labels = {"component": "singleuser-server", "app": "jupyterhub"}
    reflector = MultiNamespaceResourceReflector(kind="pods", omit_namespace=True, labels=labels)
    await reflector.start()
    versions = f"KubeSpawner {version('jupyterhub-kubespawner')}, kubernetes_asyncio {version('kubernetes_asyncio')}"
    say(serving_ms=1000 * (time.monotonic() - BEGAN), versions=versions, pods=len(reflector.resources), **whole())
    meter = Meter()
    before: Any = None

    async def act(words: list[str]) -> dict[str, Any]:
        nonlocal before
        if words[0] == "begin":
            before = reflector.resources
            meter.begin()
            return {}
        if words[0] == "seen":  # KEY VERSION: the pod in this version or a later one
            await until(lambda: int(reflector.resources[words[1]]["metadata"]["resourceVersion"]) >= int(words[2]))
        if words[0] == "listed":
            await until(lambda: reflector.resources is not before)
        return dict(meter.read())

    await serve(act)
    await reflector.stop()


if __name__ == "__main__":
    asyncio.run(run())
