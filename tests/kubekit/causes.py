"""One scripted case for each cause that a diagnosis can name, with the texts that real clusters write."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from kubekit import errors
from kubekit.errors import error_from_status
from kubekit.observe import observe_claim
from tests.kubekit.fakes import status_body
from tests.kubekit.samples import GIB, container_status, raw_event

QUOTA_TEXT = (
    'pods "x-0" is forbidden: exceeded quota: queue, requested: requests.cpu=2, '
    "used: requests.cpu=3, limited: requests.cpu=4"
)


def unscheduled(message: str) -> dict[str, Any]:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return {"phase": "Pending", "conditions": [condition], "containerStatuses": []}


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {
        "phase": "Pending",
        "conditions": [],
        "containerStatuses": container_status(waiting={"reason": reason, "message": message}),
    }


def crashed(**last: Any) -> dict[str, Any]:
    ran = {"startedAt": "2026-11-30T15:00:06Z", "finishedAt": "2026-11-30T15:00:08Z", "reason": "Error", **last}
    return {
        "conditions": [],
        "containerStatuses": container_status(waiting={"reason": "CrashLoopBackOff"}, last=ran, restarts=3),
    }


def claim(phase: str = "Pending", name: str = "home-abc") -> Any:
    return observe_claim({"metadata": {"name": name}, "status": {"phase": phase}})


UNREADY: dict[str, Any] = {
    "conditions": [],
    "containerStatuses": container_status(running={"startedAt": "2026-11-30T15:00:06Z"}),
}


@dataclass(frozen=True)
class Case:
    name: str
    code: str
    next: str
    status: dict[str, Any] | None = None
    spec: dict[str, Any] = field(default_factory=dict)
    events: tuple[dict[str, Any], ...] = ()
    known: dict[str, Any] = field(default_factory=dict)
    params: dict[str, Any] = field(default_factory=dict)


NO_NODE: dict[str, Any] = {"nodeName": ""}

CASES = (
    Case(
        "the cluster is away",
        "cluster_unreachable",
        "wait_or_tell_admin",
        known={"error": errors.Unreachable("https://k does not answer")},
    ),
    Case(
        "the cluster is silent",
        "cluster_unreachable",
        "wait_or_tell_admin",
        {},
        known={"cluster_silent_s": 75.0},
        params={"silent_s": 75},
    ),
    Case(
        "the credentials were revoked", "cluster_unauthorized", "ask_admin", known={"error": errors.Unauthorized("no")}
    ),
    Case(
        "the namespace is going", "namespace_terminating", "choose_other_queue", known={"namespace_terminating": True}
    ),
    Case(
        "the namespace is going (refusal)",
        "namespace_terminating",
        "choose_other_queue",
        known={"error": errors.NamespaceTerminating("because it is being terminated")},
    ),
    Case(
        "the namespace is gone",
        "namespace_missing",
        "choose_other_queue",
        known={"error": errors.NotFound('namespaces "x" not found', details={"kind": "namespaces"})},
    ),
    Case(
        "the quota refused the pod",
        "quota_exceeded",
        "free_quota",
        known={"error": error_from_status(status_body(403, "Forbidden", QUOTA_TEXT), http_status=403)},
        params={
            "quota": "queue",
            "resources": [{"resource": "requests.cpu", "requested": "2", "used": "3", "limited": "4"}],
        },
    ),
    Case(
        "the quota refused the StatefulSet's pod",
        "quota_exceeded",
        "free_quota",
        events=(
            raw_event(
                "FailedCreate",
                f"create Pod x-0 in StatefulSet x failed error: {QUOTA_TEXT}",
                involvedObject={"kind": "StatefulSet", "name": "x", "uid": "s"},
            ),
        ),
        params={"quota": "queue"},
    ),
    Case(
        "pod security",
        "forbidden_by_policy",
        "ask_admin",
        known={"error": errors.PodSecurityRefused('violates PodSecurity "restricted:latest": runAsNonRoot')},
    ),
    Case(
        "an admission webhook",
        "forbidden_by_policy",
        "ask_admin",
        known={"error": errors.BadRequest('admission webhook "x" denied the request: no')},
    ),
    Case("access control", "forbidden_by_policy", "ask_admin", known={"error": errors.Forbidden("it may not")}),
    Case(
        "a permission that the account does not have",
        "permission_missing",
        "ask_admin",
        params={"verb": "create", "resource": "statefulsets.apps"},
        known={"error": errors.PermissionDenied("cannot create", verb="create", resource="statefulsets.apps")},
    ),
    Case(
        "a refusal in an event",
        "forbidden_by_policy",
        "ask_admin",
        events=(raw_event("FailedCreate", 'pods "x-0" is forbidden: violates PodSecurity "restricted:latest"'),),
    ),
    Case(
        "the object is not valid",
        "invalid_spec",
        "change_settings",
        known={"error": errors.Invalid("no", details={"causes": [{"field": "spec.x"}]})},
        params={"fields": ["spec.x"]},
    ),
    Case(
        "the node is lost",
        "node_lost",
        "wait_or_tell_admin",
        {
            "conditions": [
                {
                    "type": "Ready",
                    "status": "False",
                    "reason": "NodeStatusUnknown",
                    "lastTransitionTime": "2026-11-30T15:00:00Z",
                    "message": "Kubelet stopped posting node status.",
                }
            ]
        },
        params={"node": "node-1", "since": datetime(2026, 11, 30, 15, tzinfo=UTC)},
    ),
    Case(
        "evicted",
        "evicted",
        "start_again",
        {
            "phase": "Failed",
            "reason": "Evicted",
            "conditions": [],
            "message": "The node was low on resource: ephemeral-storage. Threshold quantity: 1Gi",
        },
        params={"node": "node-1", "resource": "ephemeral-storage"},
    ),
    Case(
        "evicted for its own scratch",
        "disk_limit",
        "write_to_volume",
        {
            "phase": "Failed",
            "reason": "Evicted",
            "conditions": [],
            "message": 'Usage of EmptyDir volume "shm" exceeds the limit "1Gi".',
        },
    ),
    Case(
        "preempted",
        "preempted",
        "start_again",
        {
            "phase": "Failed",
            "conditions": [
                {
                    "type": "DisruptionTarget",
                    "status": "True",
                    "reason": "PreemptionByScheduler",
                    "message": "preempting to accommodate",
                }
            ],
        },
    ),
    Case(
        "ran too long",
        "deadline_exceeded",
        "raise_timeout",
        {
            "phase": "Failed",
            "reason": "DeadlineExceeded",
            "conditions": [],
            "message": "Pod was active on the node longer than the specified deadline",
        },
    ),
    Case(
        "the node refused it",
        "node_refused",
        "start_again",
        {"phase": "Failed", "reason": "OutOfcpu", "conditions": [], "containerStatuses": []},
        params={"reason": "OutOfcpu"},
    ),
    Case(
        "no node has the CPU",
        "no_node_cpu",
        "smaller_size",
        unscheduled(
            "0/3 nodes are available: 3 Insufficient cpu. preemption: 0/3 nodes are available: "
            "3 No preemption victims found for incoming pod."
        ),
        NO_NODE,
        params={"nodes": 3, "lacking": {"cpu": 3}},
    ),
    Case(
        "no node has the memory",
        "no_node_memory",
        "smaller_size",
        unscheduled("0/2 nodes are available: 1 Insufficient cpu, 2 Insufficient memory. preemption: none."),
        NO_NODE,
        params={"lacking": {"cpu": 1, "memory": 2}},
    ),
    Case(
        "no node has the GPU",
        "no_node_gpu",
        "smaller_size",
        unscheduled("0/4 nodes are available: 1 Insufficient memory, 3 Insufficient nvidia.com/gpu."),
        NO_NODE,
        params={"resource": "nvidia.com/gpu", "lacking": {"memory": 1, "nvidia.com/gpu": 3}},
    ),
    Case(
        "nodes are full of pods",
        "no_node_pods",
        "wait_or_tell_admin",
        unscheduled("0/1 nodes are available: 1 Too many pods."),
        NO_NODE,
    ),
    Case(
        "no node matches",
        "placement_mismatch",
        "ask_admin",
        unscheduled(
            "0/5 nodes are available: 2 node(s) didn't match Pod's node affinity/selector, "
            "3 node(s) had untolerated taint {nvidia.com/gpu: present}."
        ),
        NO_NODE,
        params={"nodes": 5, "selector": 2, "taint": 3, "taints": ["{nvidia.com/gpu: present}"], "volume": 0},
    ),
    Case(
        "no node matches (old text)",
        "placement_mismatch",
        "ask_admin",
        unscheduled("0/1 nodes are available: 1 node(s) had taint {a: b}, that the pod didn't tolerate."),
        NO_NODE,
        params={"taint": 1},
    ),
    Case(
        "the volume is elsewhere",
        "placement_mismatch",
        "ask_admin",
        unscheduled("0/1 nodes are available: 1 node(s) had volume node affinity conflict."),
        NO_NODE,
        params={"volume": 1},
    ),
    Case(
        "no node at all",
        "no_node_fits",
        "wait_or_tell_admin",
        unscheduled("no nodes available to schedule pods"),
        NO_NODE,
        params={"nodes": None},
    ),
    Case(
        "only an event says so",
        "no_node_cpu",
        "smaller_size",
        {"phase": "Pending", "conditions": []},
        NO_NODE,
        events=(raw_event("FailedScheduling", "0/1 nodes are available: 1 Insufficient cpu."),),
    ),
    Case(
        "the volume is missing",
        "volume_missing",
        "choose_other_volume",
        unscheduled('0/1 nodes are available: persistentvolumeclaim "data" not found.'),
        NO_NODE,
        params={"claims": ["data"]},
    ),
    Case(
        "the volume is being deleted",
        "volume_missing",
        "choose_other_volume",
        unscheduled('persistentvolumeclaim "data" is being deleted'),
        NO_NODE,
        params={"claims": ["data"]},
    ),
    Case(
        "the volume is missing among the claims",
        "volume_missing",
        "choose_other_volume",
        {"phase": "Pending"},
        NO_NODE,
        known={"claims": (claim("Bound", "a"),), "wanted_claims": ("a", "b")},
        params={"claims": ["b"]},
    ),
    Case(
        "the volume is not bound",
        "volume_not_bound",
        "wait_or_tell_admin",
        unscheduled("0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims."),
        NO_NODE,
        known={"claims": (claim(),)},
        params={"claims": ["home-abc"]},
    ),
    Case(
        "the volume could not be made",
        "volume_not_bound",
        "wait_or_tell_admin",
        {"phase": "Pending", "conditions": []},
        NO_NODE,
        events=(
            raw_event(
                "ProvisioningFailed",
                'storageclass.storage.k8s.io "fast" not found',
                involvedObject={"kind": "PersistentVolumeClaim", "name": "home-abc", "uid": "c"},
            ),
        ),
    ),
    Case(
        "the volume lost its storage",
        "volume_lost",
        "ask_admin",
        {"phase": "Pending", "conditions": []},
        NO_NODE,
        known={"claims": (claim("Lost"),)},
    ),
    Case(
        "the volume is in use elsewhere",
        "volume_busy",
        "stop_other_user",
        waiting("ContainerCreating"),
        events=(
            raw_event("FailedAttachVolume", 'Multi-Attach error for volume "pvc-1" Volume is already used by pod(s) y'),
        ),
    ),
    Case(
        "the volume cannot be mounted",
        "volume_mount_failed",
        "ask_admin",
        waiting("ContainerCreating"),
        events=(raw_event("FailedMount", 'MountVolume.SetUp failed for volume "v" : mount failed: exit status 32'),),
    ),
    Case(
        "the instance's secret is missing",
        "config_missing",
        "start_again",
        waiting("ContainerCreating"),
        events=(raw_event("FailedMount", 'MountVolume.SetUp failed for volume "mlportal" : secret "x" not found'),),
        params={"kind": "secret", "name": "x"},
    ),
    Case(
        "a config map is missing",
        "config_missing",
        "start_again",
        waiting("CreateContainerConfigError", 'configmap "c" not found'),
        params={"kind": "configmap", "name": "c"},
    ),
    Case(
        "the configuration is wrong",
        "config_error",
        "ask_admin",
        waiting("CreateContainerConfigError", "container has runAsNonRoot and image will run as root"),
    ),
    Case(
        "the sandbox fails",
        "node_trouble",
        "wait_or_tell_admin",
        waiting("ContainerCreating"),
        events=(raw_event("FailedCreatePodSandBox", "plugin type=calico failed"),),
        params={"node": "node-1"},
    ),
    Case(
        "the image is not found",
        "image_not_found",
        "fix_image",
        waiting("ImagePullBackOff", 'Back-off pulling image "team/x:9"'),
        events=(
            raw_event(
                "Failed",
                'Failed to pull image "team/x:9": rpc error: code = NotFound desc = failed to pull '
                'and unpack image "r/team/x:9": failed to resolve reference "r/team/x:9": r/team/x:9: not found',
            ),
        ),
        params={"image": "mlportal/python:1"},
    ),
    Case(
        "the image is not found (told behind the back-off)",
        "image_not_found",
        "fix_image",
        waiting(
            "ImagePullBackOff",
            'Back-off pulling image "nope/nope:1": ErrImagePull: rpc error: code = NotFound desc = failed to pull and '
            'unpack image "docker.io/nope/nope:1": docker.io/nope/nope:1: not found',
        ),
        events=(raw_event("Failed", "Error: ErrImagePull"), raw_event("Failed", "Error: ImagePullBackOff")),
    ),
    Case(
        "the image is not allowed",
        "image_denied",
        "fix_image_access",
        waiting(
            "ErrImagePull", "failed to authorize: failed to fetch anonymous token: unexpected status: 401 Unauthorized"
        ),
    ),
    Case(
        "the registry is away",
        "registry_unreachable",
        "wait_or_tell_admin",
        waiting(
            "ErrImagePull", 'failed to do request: Head "https://r/v2/x/manifests/1": dial tcp: lookup r: no such host'
        ),
    ),
    Case(
        "the image's name is wrong",
        "image_name_invalid",
        "fix_image",
        waiting("InvalidImageName", 'Failed to apply default image tag "A B": invalid reference format'),
    ),
    Case("the image cannot be pulled", "image_pull_failed", "fix_image", waiting("ErrImagePull", "unexpected thing")),
    Case(
        "the volume is full",
        "volume_full",
        "free_or_grow_volume",
        crashed(exitCode=1),
        known={"log_tail": "starting\nOSError: [Errno 28] No space left on device: '/root/.jupyter'\n"},
    ),
    Case(
        "the volume is full (message)",
        "volume_full",
        "free_or_grow_volume",
        crashed(exitCode=1, message="cp: error writing 'x': No space left on device"),
    ),
    Case(
        "shared memory is full",
        "shared_memory_full",
        "bigger_size",
        crashed(exitCode=1),
        known={"log_tail": "dd: error writing '/dev/shm/x': No space left on device"},
    ),
    Case(
        "out of memory",
        "out_of_memory",
        "bigger_size",
        crashed(exitCode=137, reason="OOMKilled"),
        params={"memory_bytes": 2 * GIB, "restarts": 3},
    ),
    Case(
        "the command does not exist",
        "command_not_found",
        "fix_command",
        crashed(exitCode=128, reason="StartError", message='exec: "nope": executable file not found in $PATH'),
    ),
    Case(
        "the image is for another processor (the runtime)",
        "image_architecture",
        "fix_image",
        crashed(exitCode=1),
        known={"log_tail": "exec /usr/local/bin/start: exec format error\n"},
    ),
    Case(
        "the image is for another processor (our entrypoint)",
        "image_architecture",
        "fix_image",
        crashed(exitCode=126, message="mlportal-entrypoint: /bin/sh: exec format error: the image is for another kind"),
    ),
    Case(
        "a program that printed it and went on",
        "crashed_at_start",
        "see_log",
        crashed(exitCode=1),
        known={"log_tail": "plugin x: exec format error\nTraceback\nValueError"},
        params={"exit_code": 1, "restarts": 3, "ran_s": 2},
    ),
    Case(
        "it crashed at its start",
        "crashed_at_start",
        "see_log",
        crashed(exitCode=1),
        known={"log_tail": "Traceback\nValueError: bad config"},
        params={"exit_code": 1, "restarts": 3, "ran_s": 2},
    ),
    Case(
        "it crashed after a while",
        "crashed",
        "see_log",
        crashed(exitCode=1, finishedAt="2026-11-30T16:00:06Z"),
        params={"ran_s": 3600},
    ),
    Case(
        "it ended although it should serve",
        "crashed_at_start",
        "see_log",
        crashed(exitCode=0, reason="Completed"),
        params={"exit_code": 0},
    ),
    Case(
        "it does not answer",
        "not_answering",
        "see_log",
        UNREADY,
        events=(raw_event("Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 503", count=40),),
        params={"failures": 40},
    ),
    Case(
        "it takes too long",
        "start_timeout",
        "start_again",
        {"phase": "Pending", "conditions": []},
        known={"waited_s": 601.0, "start_timeout_s": 600.0},
        params={"waited_s": 601, "timeout_s": 600},
    ),
)
