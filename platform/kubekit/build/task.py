"""One attempt of a task as a bare Pod, to be created once (never applied) and never restarted.

The finalizer keeps the finished pod readable until its result and the end of its log are stored; whoever stores them
removes it (failure F7). ``activeDeadlineSeconds`` is the backstop should the portal be away at the time-out.
"""

from __future__ import annotations

from typing import Any

from kubekit import names
from kubekit.build import pod
from kubekit.specs import TaskPodSpec


def task_pod(spec: TaskPodSpec) -> dict[str, Any]:
    """The attempt's pod. It tells the program which run and attempt it is, so that it can fence its own writes."""
    own = {
        "MLPORTAL_RUN_ID": spec.run_id,
        "MLPORTAL_ATTEMPT": str(spec.identity.attempt),
        "MLPORTAL_SCHEDULED_AT": spec.scheduled_at,
    }
    main = pod.container(
        image=spec.image,
        pull_policy=spec.image_pull_policy,
        resources=spec.resources,
        mounts=spec.mounts,
        env=pod.environment(own, spec.env),
    )
    if spec.command:
        main["command"] = [pod.literal(word) for word in spec.command]
    if spec.args:
        main["args"] = [pod.literal(word) for word in spec.args]
    if spec.working_dir is not None:
        main["workingDir"] = spec.working_dir
    body = pod.pod_spec(
        placement=spec.placement,
        resources=spec.resources,
        containers=[main],
        pod_volumes=pod.volumes(spec.resources, spec.mounts),
        grace_s=spec.grace_s,
        restart_policy="Never",
    )
    if spec.deadline_s is not None:
        body["activeDeadlineSeconds"] = spec.deadline_s
    metadata = pod.metadata(spec.identity, "task", name=spec.object_name, namespace=spec.namespace)
    metadata["finalizers"] = [names.RESULT_FINALIZER]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": body}


def without_result_finalizer(finalizers: list[str], *, resource_version: str) -> dict[str, Any]:
    """The merge patch that lets a finished pod go, keeping everybody else's finalizers.

    ``resource_version`` makes it conditional: a list is replaced whole, so it must be the list that was read.
    """
    kept = [entry for entry in finalizers if entry != names.RESULT_FINALIZER]
    return {"metadata": {"finalizers": kept or None, "resourceVersion": resource_version}}
