"""Live reads of one instance: its StatefulSet, its pods, and only what else the situation calls for."""

from __future__ import annotations

import itertools
from typing import Any

from apps.clusters import selectors as clusters
from apps.instances.decide import Seen
from apps.instances.models import Instance
from apps.instances.spec import identity_of
from apps.instances.states import LAUNCHED
from kubekit import names
from kubekit.client import Cluster as KubeCluster
from kubekit.errors import KubeError, NotFound
from kubekit.events import EventNote, observe_events
from kubekit.observe import ClaimObservation, InstanceObservation, observe_claim, observe_instance

LOG_LINES = 40
MOST_EVENTS = 100


def look(instance: Instance, cluster: KubeCluster) -> Seen:
    """What the cluster says now. An error of the cluster is part of the answer."""
    try:
        return _look(instance, cluster)
    except KubeError as error:
        return Seen(error=error)


def object_name(instance: Instance) -> str:
    """The name that the instance's objects share."""
    return instance.object_name


def _look(instance: Instance, cluster: KubeCluster) -> Seen:
    namespace, name = instance.queue.namespace, object_name(instance)
    workload: dict[str, Any] | None
    try:
        workload = cluster.get("StatefulSet", namespace, name)
    except NotFound:
        workload = None
    pods = list(cluster.list("Pod", namespace, labels=names.selector(identity_of(instance))))
    pod = next((raw for raw in pods if not raw["metadata"].get("deletionTimestamp")), pods[0] if pods else None)
    observation = observe_instance(workload, pod)
    if instance.state not in LAUNCHED or (observation.pod is not None and observation.pod.ready):
        events = _events(cluster, namespace, f"{name}-0") if _wants_events(instance, observation) else ()
        return Seen(observation=observation, events=events, node_silent=_node_gone(instance, cluster, observation))
    return Seen(
        observation=observation,
        events=(
            *(_events(cluster, namespace, name) if observation.pod is None else ()),
            *_events(cluster, namespace, f"{name}-0"),
            *_claim_events(instance, cluster, observation),
        ),
        claims=_claims(instance, cluster, observation),
        log_tail=_log_tail(cluster, observation),
        node_silent=_node_silent(cluster, observation),
    )


def _wants_events(instance: Instance, observation: InstanceObservation) -> bool:
    """A pod that has just come up is asked once more for its events; a running one is left alone."""
    return instance.state in LAUNCHED and observation.pod is not None and "ready" not in instance.stages


def _events(cluster: KubeCluster, namespace: str, name: str) -> tuple[EventNote, ...]:
    found = cluster.list("Event", namespace, fields={"involvedObject.name": name})
    return observe_events(itertools.islice(found, MOST_EVENTS))


def _claims(instance: Instance, cluster: KubeCluster, observation: InstanceObservation) -> tuple[ClaimObservation, ...]:
    """The home's claim, while the pod has no node: nothing else can be wrong with a claim before that."""
    if observation.pod is not None and observation.pod.node is not None:
        return ()
    try:
        return (observe_claim(cluster.get("PersistentVolumeClaim", instance.queue.namespace, instance.home.claim)),)
    except NotFound:
        return ()


def _claim_events(instance: Instance, cluster: KubeCluster, observation: InstanceObservation) -> tuple[EventNote, ...]:
    if observation.pod is not None and observation.pod.node is not None:
        return ()
    return _events(cluster, instance.queue.namespace, instance.home.claim)


def _node_silent(cluster: KubeCluster, observation: InstanceObservation) -> bool:
    """Whether the node of a pod that is said to run but is not ready has stopped reporting."""
    pod = observation.pod
    if pod is None or pod.node is None or pod.main is None or pod.main.state != "running":
        return False
    try:
        node = cluster.get("Node", None, pod.node)
    except KubeError:
        return False  # the credentials need not reach nodes; the pod's own conditions remain
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any(row.get("type") == "Ready" and row.get("status") == "Unknown" for row in conditions)


def _node_gone(instance: Instance, cluster: KubeCluster, observation: InstanceObservation) -> bool:
    """Whether the node of a pod that still reads "ready" is no longer in the cluster: nobody reports for it now."""
    pod = observation.pod
    if instance.state not in LAUNCHED or pod is None or pod.node is None:
        return False
    if not clusters.has_lost_node(instance.queue.cluster_id, pod.node):
        return False
    try:
        cluster.get("Node", None, pod.node)
    except NotFound:
        return True
    except KubeError:
        return False  # the credentials need not reach nodes; the cluster ends the pod in a while
    return False


def _log_tail(cluster: KubeCluster, observation: InstanceObservation) -> str:
    """The end of the log of a program that has ended, for the evidence."""
    pod = observation.pod
    main = pod.main if pod is not None else None
    if pod is None or main is None or (main.state != "terminated" and main.previous is None):
        return ""
    try:
        raw = cluster.log_tail(
            pod.namespace, pod.name, main.name, tail_lines=LOG_LINES, previous=main.state != "terminated"
        )
    except KubeError:
        return ""  # the log is an extra: without it the cause is still known
    return raw.decode("utf-8", "replace")
