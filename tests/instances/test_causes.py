"""Each cause that keeps an instance from running: its state, its code, and that its sentence can be read."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from apps.core import reasons
from apps.instances import services
from apps.instances.models import Instance
from apps.instances.states import Desired, InstanceState
from apps.tenants import ledger
from apps.tenants.states import QueueState
from kubekit import diagnose
from kubekit.errors import Forbidden, NamespaceTerminating, NotFound, QuotaExceeded, Unauthorized
from tests.instances.conftest import World
from tests.instances.fakes import NODE, InstanceCluster, condition

S = InstanceState
Provoke = Callable[[InstanceCluster], object]
ENDED = {"exitCode": 1, "reason": "Error", "message": "Traceback: no module named x"}
OOM = {"exitCode": 137, "reason": "OOMKilled"}


def not_found(cluster: InstanceCluster) -> None:
    cluster.make_pod()
    pod = cluster.wait("ErrImagePull", 'failed to pull and unpack image: "mlportal/jupyter:1": not found')
    cluster.event("Failed", "Failed to pull image: not found", about=pod)


def denied(cluster: InstanceCluster) -> None:
    cluster.make_pod()
    cluster.wait("ImagePullBackOff", "pull access denied: 401 unauthorized: authentication required")


def bad_name(cluster: InstanceCluster) -> None:
    cluster.make_pod()
    cluster.wait("InvalidImageName", "couldn't parse image reference")


def registry_away(cluster: InstanceCluster) -> None:
    cluster.make_pod()
    cluster.wait("ErrImagePull", "dial tcp: lookup registry.example.org: no such host")


def no_cpu(cluster: InstanceCluster) -> None:
    cluster.unschedulable("0/3 nodes are available: 3 Insufficient cpu.")


def no_memory(cluster: InstanceCluster) -> None:
    cluster.unschedulable("0/3 nodes are available: 3 Insufficient memory.")


def no_gpu(cluster: InstanceCluster) -> None:
    cluster.unschedulable("0/3 nodes are available: 3 Insufficient nvidia.com/gpu.")


def unbound(cluster: InstanceCluster) -> None:
    cluster.unschedulable("0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims.")


def volume_full(cluster: InstanceCluster) -> None:
    cluster.make_pod()
    cluster.logs = b"OSError: [Errno 28] No space left on device: '/root/.local'"
    cluster.wait("CrashLoopBackOff", restarts=1, last={"exitCode": 1, "reason": "Error"})


def multi_attach(cluster: InstanceCluster) -> None:
    pod = cluster.make_pod()
    cluster.wait("ContainerCreating")
    cluster.event(
        "FailedAttachVolume", 'Multi-Attach error for volume "pvc-1": already exclusively attached', about=pod
    )


def mount_failed(cluster: InstanceCluster) -> None:
    pod = cluster.make_pod()
    cluster.wait("ContainerCreating")
    cluster.event("FailedMount", 'MountVolume.SetUp failed for volume "pvc-1": exit status 32', about=pod)


def out_of_memory(cluster: InstanceCluster) -> None:
    cluster.make_pod()
    cluster.wait("CrashLoopBackOff", restarts=2, last=OOM)


def crashed(cluster: InstanceCluster) -> None:
    cluster.make_pod()
    cluster.wait("CrashLoopBackOff", restarts=2, last=ENDED)


def no_command(cluster: InstanceCluster) -> None:
    cluster.make_pod()
    cluster.wait("RunContainerError", 'exec: "mlportal-entrypoint": executable file not found in $PATH')


def other_processor(cluster: InstanceCluster) -> None:
    cluster.make_pod()
    last = {"exitCode": 126, "reason": "Error", "message": "/bin/sh: exec format error: the image is for another kind"}
    cluster.wait("CrashLoopBackOff", restarts=1, last=last)


def config_missing(cluster: InstanceCluster) -> None:
    cluster.make_pod()
    cluster.wait("CreateContainerConfigError", 'secret "jupyter-1" not found')


def node_lost(cluster: InstanceCluster) -> None:
    pod = cluster.make_pod()
    cluster.run_pod()
    pod = cluster.one("Pod")
    pod["status"]["conditions"] = [condition("Ready", "Unknown", reason="NodeStatusUnknown", message="Kubelet stopped")]


def node_silent(cluster: InstanceCluster) -> None:
    """As the node controller leaves it: the pod is only not ready, the node itself is unknown."""
    cluster.make_pod()
    pod = cluster.run_pod()
    pod["status"]["conditions"] = [condition("Ready", "False")]
    cluster.event("NodeNotReady", "Node is not ready", about=pod)
    node = {"kind": "Node", "metadata": {"name": NODE}, "status": {"conditions": [condition("Ready", "Unknown")]}}
    cluster.objects["Node", None, NODE] = node


def evicted(cluster: InstanceCluster) -> None:
    pod = cluster.make_pod()
    pod["status"] = {
        "phase": "Failed",
        "reason": "Evicted",
        "message": "The node was low on resource: memory. Threshold quantity: 100Mi",
    }


def away(cluster: InstanceCluster) -> None:
    cluster.away = True


def refuse(error: Exception) -> Provoke:
    def provoke(cluster: InstanceCluster) -> None:
        cluster.refuse["StatefulSet"] = error  # type: ignore[assignment]

    return provoke


QUOTA = QuotaExceeded(
    "exceeded quota: portal, requested: requests.cpu=500m, used: requests.cpu=4, limited: requests.cpu=4",
    quota="portal",
    requested={"requests.cpu": "500m"},
    used={"requests.cpu": "4"},
    limited={"requests.cpu": "4"},
)

CAUSES: list[tuple[str, str, Provoke]] = [
    ("image_not_found", S.FAILED, not_found),
    ("image_denied", S.FAILED, denied),
    ("image_name_invalid", S.FAILED, bad_name),
    ("registry_unreachable", S.STARTING, registry_away),
    ("no_node_cpu", S.QUEUED, no_cpu),
    ("no_node_memory", S.QUEUED, no_memory),
    ("no_node_gpu", S.QUEUED, no_gpu),
    ("quota_exceeded", S.QUEUED, refuse(QUOTA)),
    ("volume_not_bound", S.STARTING, unbound),
    ("volume_full", S.FAILED, volume_full),
    ("volume_busy", S.STARTING, multi_attach),
    ("volume_mount_failed", S.STARTING, mount_failed),
    ("out_of_memory", S.FAILED, out_of_memory),
    ("crashed_at_start", S.FAILED, crashed),
    ("command_not_found", S.FAILED, no_command),
    ("image_architecture", S.FAILED, other_processor),
    ("config_missing", S.STARTING, config_missing),
    ("node_lost", S.UNREACHABLE, node_lost),
    ("node_lost", S.UNREACHABLE, node_silent),
    ("evicted", S.STARTING, evicted),
    ("cluster_unreachable", S.UNREACHABLE, away),
    ("cluster_unauthorized", S.UNREACHABLE, refuse(Unauthorized("Unauthorized", status=401))),
    ("namespace_terminating", S.FAILED, refuse(NamespaceTerminating("it is being terminated", status=403))),
    ("forbidden_by_policy", S.FAILED, refuse(Forbidden("statefulsets is forbidden", status=403))),
]


@pytest.mark.parametrize(("code", "state", "provoke"), CAUSES, ids=[code for code, _, _ in CAUSES])
def test_a_cause_is_told_in_a_sentence(world: World, code: str, state: str, provoke: Provoke) -> None:
    instance = world.create()
    if code not in {"quota_exceeded", "cluster_unauthorized", "namespace_terminating", "forbidden_by_policy"}:
        world.reconcile(instance)
    provoke(world.cluster)
    world.reconcile(instance)
    assert (instance.reason_code, instance.state) == (code, state)
    reason = instance.reason
    assert reason is not None
    assert len(reason.sentence) > 10
    assert "{" not in reason.sentence
    assert "?" not in reason.sentence
    assert reason.next
    if code not in {"volume_full", "out_of_memory"}:
        assert reason.evidence or code == "evicted"


def test_every_code_that_diagnose_can_find_has_a_wording() -> None:
    folder = Path(diagnose.__file__).parent
    texts = [file.read_text() for file in folder.glob("*.py") if file.name != "endings.py"]
    codes = {code for text in texts for code in re.findall(r'code="([a-z_]+)"', text)}
    codes |= {f"no_node_{resource}" for resource in ("cpu", "memory")}
    assert len(codes) > 25
    assert codes <= reasons.known()


def test_a_failure_takes_the_launch_away_and_frees_the_quota(world: World) -> None:
    instance = world.create()
    world.reconcile(instance)
    not_found(world.cluster)
    world.reconcile(instance)
    assert instance.state == S.FAILED
    assert instance.desired == Desired.STOPPED
    assert not instance.at_rest
    world.reconcile(instance)
    assert world.cluster.one("StatefulSet")["spec"]["replicas"] == 0
    assert ("delete", "Ingress") in world.cluster.calls
    world.cluster.remove_pod()
    world.reconcile(instance)
    assert instance.state == S.FAILED
    assert instance.reason_code == "image_not_found"
    assert instance.at_rest
    assert not instance.key
    assert ledger.held(kind="instance", object_id=instance.pk) is None


def test_a_failed_one_starts_again(world: World) -> None:
    instance = world.create()
    world.reconcile(instance)
    not_found(world.cluster)
    world.reconcile(instance)
    services.start(actor=world.actor, instance=instance)
    instance.refresh_from_db()
    assert instance.state == S.STOPPING
    assert instance.wants_to_run
    world.reconcile(instance)
    world.cluster.remove_pod()
    world.reconcile(instance)
    assert instance.state == S.STARTING
    assert instance.launch == 2
    assert not instance.reason_code


def test_no_progress_until_the_deadline_is_a_failure_with_the_cause_that_was_seen(world: World) -> None:
    instance = world.create()
    world.reconcile(instance)
    registry_away(world.cluster)
    world.reconcile(instance)
    assert instance.state == S.STARTING
    late(instance)
    world.reconcile(instance)
    assert (instance.state, instance.reason_code) == (S.FAILED, "registry_unreachable")


def test_no_progress_without_any_cause_is_a_time_out(world: World) -> None:
    instance = world.create()
    world.reconcile(instance)
    late(instance)
    world.reconcile(instance)
    assert (instance.state, instance.reason_code) == (S.FAILED, "start_timeout")
    assert "300" in instance.reason.sentence


def late(instance: Instance) -> None:
    past = timezone.now() - timedelta(seconds=1)
    Instance.objects.as_system().filter(pk=instance.pk).update(start_deadline_at=past)


def test_waiting_for_room_has_no_deadline_and_ends_when_there_is_some(world: World) -> None:
    instance = world.create()
    world.reconcile(instance)
    no_cpu(world.cluster)
    world.reconcile(instance)
    assert instance.state == S.QUEUED
    assert instance.start_deadline_at is None
    world.cluster.make_pod()
    world.reconcile(instance)
    assert instance.state == S.STARTING
    assert instance.start_deadline_at is not None


def test_a_queue_that_is_being_made_is_waited_for(world: World) -> None:
    del world.cluster.objects["Namespace", None, world.queue.namespace]
    world.queue.state = QueueState.CREATING
    world.queue.save()
    missing = NotFound("namespaces not found", status=404, details={"kind": "namespaces"})
    world.cluster.refuse["Secret"] = missing
    instance = world.create()
    world.reconcile(instance)
    assert (instance.state, instance.reason_code) == (S.STARTING, "namespace_missing")
    world.queue.state = QueueState.READY
    world.queue.save()
    world.reconcile(instance)
    assert instance.state == S.FAILED


def test_a_silent_cluster_ends_in_running_again_when_it_is_back(world: World) -> None:
    instance = world.running()
    key = instance.key.reveal()
    world.cluster.away = True
    world.reconcile(instance)
    assert instance.state == S.UNREACHABLE
    world.cluster.away = False
    world.reconcile(instance)
    assert instance.state == S.RUNNING
    assert instance.key.reveal() == key
    assert not instance.reason_code


def test_a_stop_while_the_cluster_is_silent_happens_when_it_is_back(world: World) -> None:
    instance = world.running()
    world.cluster.away = True
    services.stop(actor=world.actor, instance=instance)
    world.reconcile(instance)
    assert (instance.state, instance.reason_code) == (S.STOPPING, "cluster_unreachable")
    world.cluster.away = False
    world.reconcile(instance)
    world.cluster.remove_pod()
    world.reconcile(instance)
    assert instance.state == S.STOPPED


def test_a_program_killed_for_its_memory_says_so_after_it_came_back(world: World) -> None:
    instance = world.running()
    world.cluster.run_pod(restarts=1, last=OOM)
    world.reconcile(instance)
    assert (instance.state, instance.reason_code) == (S.RUNNING, "instance_came_back_memory")


def test_a_pod_of_an_earlier_launch_says_nothing(world: World) -> None:
    instance = world.running()
    pod = world.cluster.one("Pod")
    pod["metadata"]["labels"]["mlportal.io/generation"] = "0"
    world.reconcile(instance)
    assert instance.state == S.STARTING
