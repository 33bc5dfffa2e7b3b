"""What every pod of the portal has in common: who it runs as, what it may not do, its volumes and its resources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kubekit import names
from kubekit.quantities import format_bytes, format_cpu
from kubekit.specs import Identity, Mount, Placement, Resources, Toleration

Obj = dict[str, Any]

#: uid and gid of every container; also the group that owns a volume's files (fsGroup).
USER = 1000
CONTAINER = "main"


def metadata(identity: Identity, component: str, *, name: str, namespace: str | None = None) -> Obj:
    """``metadata`` with name, labels and, as an annotation, the name that the person typed."""
    found: Obj = {
        "name": name,
        "labels": names.labels(identity, component),
        "annotations": {names.DISPLAY_NAME: identity.name},
    }
    if namespace is not None:
        found["namespace"] = namespace
    return found


def resource_lists(resources: Resources) -> Obj:
    """``resources`` of a container. GPUs stand in both lists: the server refuses a request without an equal limit."""
    limits = {"cpu": format_cpu(resources.cpu_millis), "memory": format_bytes(resources.memory_bytes)}
    requests = {
        "cpu": format_cpu(resources.requested_cpu_millis),
        "memory": format_bytes(resources.requested_memory_bytes),
    }
    if resources.gpus:
        limits[resources.gpu_resource] = requests[resources.gpu_resource] = str(resources.gpus)
    return {"limits": limits, "requests": requests}


def environment(own: Mapping[str, str], given: Mapping[str, str]) -> list[Obj]:
    """The person's variables in order of name, then the portal's own, so that nothing given can replace those."""
    rows = [*sorted(given.items()), *own.items()]
    return [{"name": name, "value": literal(value)} for name, value in rows]


def literal(text: str) -> str:
    """``text`` so written that the container gets it as typed: the kubelet itself expands ``$(NAME)`` and ``$$``."""
    return text.replace("$", "$$") if "$(" in text or "$$" in text else text


def container(
    *,
    image: str,
    pull_policy: str,
    resources: Resources,
    mounts: Sequence[Mount],
    env: list[Obj],
    extra_mounts: Sequence[Obj] = (),
) -> Obj:
    """The one container of a pod, without any privilege."""
    return {
        "name": CONTAINER,
        "image": image,
        "imagePullPolicy": pull_policy,
        "env": env,
        "resources": resource_lists(resources),
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "privileged": False},
        "volumeMounts": [
            *({"name": _volume(m.claim, mounts), "mountPath": m.path, **_flag(m)} for m in mounts),
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - a mount point inside the container
            *extra_mounts,
        ],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _flag(mount: Mount) -> Obj:
    return {"readOnly": True} if mount.read_only else {}


def _claims(mounts: Sequence[Mount]) -> list[str]:
    return list(dict.fromkeys(mount.claim for mount in mounts))


def _volume(claim: str, mounts: Sequence[Mount]) -> str:
    return f"volume-{_claims(mounts).index(claim)}"


def volumes(resources: Resources, mounts: Sequence[Mount], extra: Sequence[Obj] = ()) -> list[Obj]:
    """One plain volume for each claim (however often it is mounted), shared memory, and what the role adds.

    Read-only is said at the mount, not here: a driver may refuse one claim attached both ways on one node.
    """
    return [
        *({"name": _volume(claim, mounts), "persistentVolumeClaim": {"claimName": claim}} for claim in _claims(mounts)),
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": format_bytes(resources.shared_memory_bytes)}},
        *extra,
    ]


def pod_spec(
    *,
    placement: Placement,
    resources: Resources,
    containers: list[Obj],
    pod_volumes: list[Obj],
    grace_s: int,
    restart_policy: str,
) -> Obj:
    """A pod's ``spec``: no service account token, uid 1000, a seccomp filter, placed by the platform."""
    spec: Obj = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": restart_policy,
        "terminationGracePeriodSeconds": grace_s,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            # A home of a million files would otherwise be walked at every start.
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": containers,
        "volumes": pod_volumes,
    }
    accepted = [*placement.tolerations, *(placement.gpu_taints if resources.gpus else ())]
    if accepted:
        spec["tolerations"] = [_toleration(row) for row in accepted]
    if placement.node_selector:
        spec["nodeSelector"] = dict(placement.node_selector)
    if placement.priority_class is not None:
        spec["priorityClassName"] = placement.priority_class
    if placement.runtime_class is not None:
        spec["runtimeClassName"] = placement.runtime_class
    if placement.host_users is not None:
        spec["hostUsers"] = placement.host_users
    if placement.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in placement.image_pull_secrets]
    return spec


def _toleration(row: Toleration) -> Obj:
    if row.value:
        return {"key": row.key, "operator": "Equal", "value": row.value, "effect": row.effect}
    return {"key": row.key, "operator": "Exists", "effect": row.effect}
