"""Specifications refuse what must not reach a cluster, with a code and the field at fault."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from kubekit.errors import SpecError
from kubekit.specs import Identity, Mount, Placement, Resources, Toleration
from tests.kubekit.samples import GIB, claim_spec, identity, instance_spec, queue_spec, task_spec


def refused(make: Callable[..., Any], **changes: Any) -> tuple[str, str]:
    with pytest.raises(SpecError) as caught:
        make(**changes)
    return caught.value.code, caught.value.field


def resources(**changes: Any) -> Resources:
    return Resources(**{"cpu_millis": 1000, "memory_bytes": GIB, **changes})


@pytest.mark.parametrize(
    ("changes", "code", "field"),
    [
        ({"cpu_millis": 0}, "bad_cpu", "cpu_millis"),
        ({"cpu_millis": -1}, "bad_cpu", "cpu_millis"),
        ({"memory_bytes": 0}, "bad_memory", "memory_bytes"),
        ({"gpus": -1}, "bad_gpus", "gpus"),
        ({"gpu_resource": "gpu"}, "bad_gpu_resource", "gpu_resource"),
        ({"gpu_resource": "requests.nvidia.com/gpu"}, "bad_gpu_resource", "gpu_resource"),
        ({"gpu_resource": "kubernetes.io/gpu"}, "bad_gpu_resource", "gpu_resource"),
        ({"cpu_request_millis": 1001}, "bad_cpu", "cpu_request_millis"),
        ({"cpu_request_millis": 0}, "bad_cpu", "cpu_request_millis"),
        ({"memory_request_bytes": GIB + 1}, "bad_memory", "memory_request_bytes"),
        ({"shm_bytes": GIB + 1}, "bad_shm", "shm_bytes"),
    ],
)
def test_sizes(changes: dict[str, Any], code: str, field: str) -> None:
    assert refused(resources, **changes) == (code, field)


def test_a_size_requests_all_of_itself_unless_told_otherwise() -> None:
    plain, less = resources(), resources(cpu_request_millis=100, memory_request_bytes=5)
    assert (plain.requested_cpu_millis, plain.requested_memory_bytes) == (1000, GIB)
    assert (less.requested_cpu_millis, less.requested_memory_bytes) == (100, 5)
    assert plain.shared_memory_bytes == GIB // 2


@pytest.mark.parametrize(
    "path",
    ["", "data", "/", "//data", "/data/", "/data/../etc", "/data//x", "/a:b", "/a\nb", "/etc", "/etc/mlportal",
     "/proc/x", "/dev/shm", "/usr/lib", "/opt/venv/bin", "/sys/fs", "/" + "a" * 255],
)  # fmt: skip
def test_paths_that_no_volume_may_have(path: str) -> None:
    assert refused(Mount, claim="c", path=path)[0] in ("bad_path", "reserved_path")


@pytest.mark.parametrize("path", ["/root", "/data", "/root/projects", "/mnt/我的数据", "/opt/models", "/home/a b"])
def test_paths_that_a_volume_may_have(path: str) -> None:
    assert Mount(claim="c", path=path).path == path


def test_two_volumes_at_one_path() -> None:
    mounts = (Mount(claim="a", path="/data"), Mount(claim="b", path="/data"))
    assert refused(instance_spec, mounts=mounts) == ("path_used_twice", "mounts")


def test_one_claim_both_writable_and_read_only() -> None:
    mounts = (Mount(claim="a", path="/x"), Mount(claim="a", path="/y", read_only=True))
    assert refused(task_spec, mounts=mounts) == ("mixed_read_only", "mounts")


@pytest.mark.parametrize("claim", ["", "A", "a/b", "../x", "a" * 64, "a_b"])
def test_claims_need_legal_names(claim: str) -> None:
    assert refused(Mount, claim=claim, path="/data") == ("bad_name", "claim")


@pytest.mark.parametrize(
    "image",
    ["", "UPPER/x:1", "a b", "a\nb", "-x", "x:", "http://x/y", "x@sha256:12", "a" * 600, "x:1 --privileged", "$(id)"],
)
def test_images_that_are_no_reference(image: str) -> None:
    assert refused(instance_spec, image=image) == ("bad_image", "image")


@pytest.mark.parametrize(
    "image",
    [
        "python",
        "mlportal/jupyter:1",
        "registry.example:5000/team/x:V1.2_a",
        f"x/y@sha256:{'a' * 64}",
        f"x:1@sha256:{'0' * 64}",
    ],
)
def test_images_that_are(image: str) -> None:
    assert instance_spec(image=image).image == image


@pytest.mark.parametrize(
    ("changes", "code", "field"),
    [
        ({"namespace": "Bad_Name"}, "bad_name", "namespace"),
        ({"host": "a b"}, "bad_host", "host"),
        ({"host": "x.example/evil"}, "bad_host", "host"),
        ({"public_host": "x;y"}, "bad_host", "public_host"),
        ({"portal_origin": "javascript:alert(1)"}, "bad_origin", "portal_origin"),
        ({"portal_origin": "http://x/path"}, "bad_origin", "portal_origin"),
        ({"port": 0}, "bad_port", "port"),
        ({"port": 65536}, "bad_port", "port"),
        ({"ready_path": "no"}, "bad_path", "ready_path"),
        ({"env": {"1X": "y"}}, "bad_env", "env"),
        ({"env": {"A B": "y"}}, "bad_env", "env"),
        ({"env": {"A": "x\0y"}}, "bad_env", "env"),
        ({"env": {"MLPORTAL_HOST": "evil"}}, "reserved_env", "env"),
        ({"ingress_class": "a b"}, "bad_name", "ingress_class"),
        ({"image_pull_policy": "Sometimes"}, "bad_pull_policy", "image_pull_policy"),
        ({"grace_s": -1}, "bad_grace", "grace_s"),
    ],
)
def test_instances(changes: dict[str, Any], code: str, field: str) -> None:
    assert refused(instance_spec, **changes) == (code, field)


@pytest.mark.parametrize(
    ("changes", "code", "field"),
    [
        ({"identity": identity("attempt")}, "attempt_missing", "identity"),
        ({"deadline_s": 0}, "bad_deadline", "deadline_s"),
        ({"scheduled_at": ""}, "scheduled_at_missing", "scheduled_at"),
        ({"args": ("a\0b",)}, "bad_command", "command"),
        ({"working_dir": "relative"}, "bad_path", "working_dir"),
        ({"working_dir": "/a/../b"}, "bad_path", "working_dir"),
    ],
)
def test_tasks(changes: dict[str, Any], code: str, field: str) -> None:
    assert refused(task_spec, **changes) == (code, field)


@pytest.mark.parametrize(
    ("changes", "code", "field"),
    [
        ({"cpu_millis": -1}, "negative_quota", "cpu_millis"),
        ({"pods": -1}, "negative_quota", "pods"),
        ({"gpus": {"nvidia.com/gpu": -1}}, "negative_quota", "gpus"),
        ({"gpus": {"limits.nvidia.com/gpu": 1}}, "bad_gpu_resource", "gpus"),
        ({"gpus": {"gpu": 1}}, "bad_gpu_resource", "gpus"),
        ({"oversell_cpu": 0.5}, "bad_oversell", "oversell_cpu"),
        ({"oversell_memory": 0}, "bad_oversell", "oversell_memory"),
        ({"pod_security": "privileged"}, "bad_pod_security", "pod_security"),
        ({"ingress_namespaces": ("A B",)}, "bad_name", "ingress_namespaces"),
        ({"blocked_ranges": ("everything",)}, "bad_range", "blocked_ranges"),
        ({"allowed_ranges": ("10.0.0.1/8",)}, "bad_range", "allowed_ranges"),
        ({"blocked_ranges": ("fc00::/7",)}, "bad_range", "blocked_ranges"),
    ],
)
def test_queues(changes: dict[str, Any], code: str, field: str) -> None:
    assert refused(queue_spec, **changes) == (code, field)


def test_claims() -> None:
    assert refused(claim_spec, storage_bytes=0) == ("bad_storage", "storage_bytes")
    assert refused(claim_spec, access_mode="ReadWriteTwice") == ("bad_access_mode", "access_mode")
    assert refused(claim_spec, storage_class="a b") == ("bad_name", "storage_class")


@pytest.mark.parametrize("name", ["system-cluster-critical", "system-node-critical", "system-x"])
def test_priority_classes_of_the_system_are_never_given(name: str) -> None:
    assert refused(Placement, priority_class=name) == ("system_priority", "priority_class")


def test_placements() -> None:
    assert refused(Placement, node_selector={"a b": "x"})[0] == "bad_node_selector"
    assert refused(Placement, node_selector={"a": "x y"})[0] == "bad_node_selector"
    assert refused(Placement, image_pull_secrets=("A B",))[0] == "bad_name"
    assert refused(Toleration, key="k", effect="Never")[0] == "bad_toleration"


@pytest.mark.parametrize(
    ("changes", "code", "field"),
    [
        ({"install": ""}, "bad_label", "install"),
        ({"install": "a b"}, "bad_label", "install"),
        ({"kind": "Instance"}, "bad_label", "kind"),
        ({"id": "a/b"}, "bad_id", "id"),
        ({"generation": -1}, "bad_generation", "generation"),
        ({"name": " "}, "empty_name", "name"),
        ({"attempt": -1}, "bad_attempt", "attempt"),
    ],
)
def test_identities(changes: dict[str, Any], code: str, field: str) -> None:
    assert refused(identity, **changes) == (code, field)


def test_specifications_cannot_be_changed_afterwards() -> None:
    given = {"A": "1"}
    spec = instance_spec(env=given)
    given["B"] = "2"
    assert dict(spec.env) == {"A": "1"}
    with pytest.raises(TypeError):
        spec.env["C"] = "3"  # type: ignore[index]
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.image = "x"  # type: ignore[misc]


def test_fields_are_given_by_name_only() -> None:
    with pytest.raises(TypeError):
        Identity("test", "instance", "x", 1, "n")  # type: ignore[misc]


def test_a_queue_never_reuses_a_namespace() -> None:
    one = queue_spec(identity=identity("queue", name="team"))
    other = queue_spec(identity=identity("queue", name="team", id="00000000-0000-0000-0000-000000000001"))
    assert one.namespace != other.namespace
