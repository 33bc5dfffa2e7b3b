"""A pod of an instance that is stopped: somebody scaled its StatefulSet, or a worker came too late.

The reaper leaves it alone, because its row is alive, and nothing holds quota for it. Whoever is woken for a stopped
instance therefore looks live once, and what is there goes: each object by the UID that was seen (failure F5).
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from django.utils import timezone

from apps.clusters import access
from apps.core import actors, audit
from apps.instances import looking
from apps.instances.models import Instance
from apps.instances.spec import identity_of
from kubekit import names
from kubekit.client import Cluster as KubeCluster
from kubekit.errors import Conflict, KubeError, NotFound

log = logging.getLogger(__name__)
ACTOR = actors.system("reconciler")
#: Until the pod is gone for certain; a node that does not answer may take long.
LOOK_AGAIN = timedelta(seconds=10)


def remove(instance: Instance) -> datetime | None:
    """Take away what runs of an instance at rest; when to look again, None when nothing does.

    Call it under the instance's claim: a start that comes meanwhile writes after this.
    """
    try:
        return _remove(instance, access.connect(instance.queue.cluster))
    except KubeError as error:
        log.info("%s: whether a pod is left cannot be seen now: %s", instance.name, error)
        return timezone.now() + LOOK_AGAIN


def _remove(instance: Instance, cluster: KubeCluster) -> datetime | None:
    namespace = instance.queue.namespace
    pods = list(cluster.list("Pod", namespace, labels=names.selector(identity_of(instance))))
    if not pods:
        return None
    _scale_to_zero(instance, cluster)
    for metadata in (pod["metadata"] for pod in pods):
        if metadata.get("deletionTimestamp"):
            continue
        try:
            cluster.delete("Pod", namespace, metadata["name"], uid=metadata["uid"])
        except (NotFound, Conflict):
            continue  # gone meanwhile; the next look sees what is there instead
        detail = {"pod": metadata["name"], "uid": metadata["uid"]}
        audit.record(actor=ACTOR, verb="instance.stray-pod", obj=instance, detail=detail)
        log.warning("%s is stopped and had the pod %s, which is removed", instance.name, metadata["name"])
    return timezone.now() + LOOK_AGAIN


def _scale_to_zero(instance: Instance, cluster: KubeCluster) -> None:
    """Else the controller would make the pod again. A StatefulSet of that name that is not ours stays as it is."""
    namespace, name = instance.queue.namespace, looking.object_name(instance)
    try:
        workload = cluster.get("StatefulSet", namespace, name)
        labels = workload["metadata"].get("labels") or {}
        ours = labels.get(names.ID) == str(instance.pk)
        if ours and (workload.get("spec") or {}).get("replicas", 1):
            patch = {"metadata": {"resourceVersion": workload["metadata"]["resourceVersion"]}, "spec": {"replicas": 0}}
            cluster.patch_merge("StatefulSet", namespace, name, patch)
    except (NotFound, Conflict):
        return
