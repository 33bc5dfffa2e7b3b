"""From an attempt's row to its pod: pure once the rows are loaded, so the YAML tab shows what is really sent."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC
from uuid import UUID

from apps.clusters.installation import install_id
from apps.flows import executors, limits
from apps.flows.document import FlowDoc, NodeDoc, stored
from apps.flows.executors.base import PodRequest, Resolved
from apps.flows.models import Attempt
from apps.flows.resolve import resolved_now
from apps.tenants import ledger
from kubekit.specs import TaskPodSpec

KIND = "attempt"


def document_of(attempt: Attempt) -> FlowDoc:
    """The document of the run's version."""
    return stored(attempt.run.version.document)


def node_of(attempt: Attempt) -> NodeDoc:
    """The node that this is an attempt at."""
    return document_of(attempt).node(attempt.node)


def nodes_of(attempts: Iterable[Attempt]) -> dict[UUID, NodeDoc]:
    """The same for many by their ids; each version's document is read once."""
    documents: dict[UUID, FlowDoc] = {}
    found: dict[UUID, NodeDoc] = {}
    for attempt in attempts:
        version = attempt.run.version
        if version.pk not in documents:
            documents[version.pk] = stored(version.document)
        found[attempt.pk] = documents[version.pk].node(attempt.node)
    return found


def spec_of(attempt: Attempt, node: NodeDoc, resolved: Resolved) -> TaskPodSpec:
    """The specification of the attempt's pod. Raises ``kubekit.errors.SpecError``."""
    executor = executors.find(node.executor)
    assert executor is not None
    run, queue = attempt.run, attempt.queue
    cpu, memory = ledger.guaranteed(queue, resolved.amount)
    moment = run.scheduled_at or run.created_at
    request = PodRequest(
        install=install_id(),
        namespace=queue.namespace,
        flow=run.flow.name,
        node=attempt.node,
        run_id=run.pk,
        attempt_id=attempt.pk,
        number=attempt.number,
        version=run.version.number,
        scheduled_at=moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        parameters=run.parameters,
        resolved=resolved,
        guaranteed_cpu_millis=cpu,
        guaranteed_memory_bytes=memory,
        timeout_s=node.timeout_s,
        start_timeout_s=limits.start_timeout_s(),
        grace_s=limits.grace_s(),
        host_users=False if queue.cluster.user_namespaces else None,
    )
    return executor.pod(node.config, request)


def current(attempt: Attempt) -> tuple[NodeDoc, Resolved, TaskPodSpec]:
    """Node, what its names mean now, and the pod. Raises ``Conflict`` and ``SpecError``."""
    node = node_of(attempt)
    resolved = resolved_now(attempt.run.version, node)
    return node, resolved, spec_of(attempt, node, resolved)
