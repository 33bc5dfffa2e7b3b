"""Asking a running instance something, by a command in its pod: past every route and every key."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from apps.clusters import access
from apps.instances.models import Instance
from kubekit.build.pod import CONTAINER
from kubekit.streams import Streams

ASK_TIMEOUT_S = 15.0


def ask(instance: Instance, command: Sequence[str]) -> tuple[int, str]:
    """Exit code and output of a short command. Raises ``KubeError``, and ``Conflict`` for a removed cluster.

    For threads alone: it runs an event loop of its own.
    """
    credentials = access.credentials_of(instance.queue.cluster)
    pod = instance.pod_name

    async def run() -> tuple[int, str]:
        async with Streams(credentials) as streams:
            code, output, _ = await streams.run(
                instance.queue.namespace, pod, CONTAINER, command, timeout_s=ASK_TIMEOUT_S, limit_bytes=4096
            )
        return code, output.decode("utf-8", "replace")

    return asyncio.run(run())
