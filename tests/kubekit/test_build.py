"""Builders: the golden files are the specification; the rest says what must hold for any specification.

After a wanted change: ``KUBEKIT_UPDATE_GOLDEN=1 pytest tests/kubekit/test_build.py`` and read the difference.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from kubekit.build import claim, instance, queue, task
from kubekit.errors import SpecError
from kubekit.names import is_dns_label
from kubekit.specs import GatewayRef, Placement, Resources, Toleration
from tests.kubekit.samples import GIB, claim_spec, gpu_instance_spec, identity, instance_spec, queue_spec, task_spec

GATEWAY = GatewayRef(namespace="gateways", name="shared")
GOLDEN = Path(__file__).parent / "golden"


def all_objects() -> dict[str, list[dict[str, Any]]]:
    gpu = gpu_instance_spec()
    return {
        "instance": [
            instance.secret(instance_spec(), {"key": "k" * 32}),
            instance.stateful_set(instance_spec(), replicas=1),
            instance.service(instance_spec()),
            instance.ingress(instance_spec()),
        ],
        "instance-httproute": [
            instance.route(instance_spec(gateway=GATEWAY)),
            instance.route(instance_spec(gateway=replace(GATEWAY, listener="web"))),
        ],
        "instance-gpu": [instance.stateful_set(gpu, replicas=0), instance.ingress(gpu)],
        "task": [task.task_pod(task_spec())],
        "claim": [
            claim.claim(claim_spec()),
            claim.claim(claim_spec(access_mode="ReadWriteMany", storage_class="nfs-fast", storage_bytes=1 << 40)),
        ],
        "queue": queue.objects(queue_spec()),
        "queue-gpu": queue.objects(
            queue_spec(
                gpus={"nvidia.com/gpu": 8, "nvidia.com/a100": 4},
                oversell_cpu=2,
                oversell_memory=1.5,
                extra_quota={"count/jobs.batch": 10},
                ingress_namespaces=("traefik",),
                allowed_ranges=("10.9.0.0/24",),
                pod_security="restricted",
            )
        ),
    }


@pytest.mark.parametrize("name", sorted(all_objects()))
def test_manifests_equal_their_golden_files(name: str) -> None:
    path = GOLDEN / f"{name}.yaml"
    objects = all_objects()[name]
    if os.environ.get("KUBEKIT_UPDATE_GOLDEN"):
        path.write_text(yaml.safe_dump_all(objects, sort_keys=True, allow_unicode=True))
    assert list(yaml.safe_load_all(path.read_text())) == objects


def pods() -> list[dict[str, Any]]:
    return [
        instance.stateful_set(instance_spec(), replicas=1)["spec"]["template"]["spec"],
        instance.stateful_set(gpu_instance_spec(), replicas=1)["spec"]["template"]["spec"],
        task.task_pod(task_spec())["spec"],
    ]


@pytest.mark.parametrize("index", range(3))
def test_every_pod_meets_the_restricted_pod_security_level(index: int) -> None:
    pod = pods()[index]
    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False
    own = pod["securityContext"]
    assert own["runAsNonRoot"] is True
    assert {own["runAsUser"], own["runAsGroup"], own["fsGroup"]} == {1000}
    assert own["seccompProfile"] == {"type": "RuntimeDefault"}
    for forbidden in ("hostNetwork", "hostPID", "hostIPC", "serviceAccountName"):
        assert forbidden not in pod
    for volume in pod["volumes"]:
        assert len(set(volume) & {"persistentVolumeClaim", "emptyDir", "secret"}) == 1, volume
    for container in pod["containers"]:
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["privileged"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert all("subPath" not in mount for mount in container["volumeMounts"])


def test_manifests_are_json_and_made_anew_each_time() -> None:
    spec = instance_spec()
    first = instance.stateful_set(spec, replicas=1)
    first["spec"]["template"]["metadata"]["labels"].clear()
    second = instance.stateful_set(spec, replicas=1)
    assert second["spec"]["template"]["metadata"]["labels"]
    for objects in all_objects().values():
        assert json.loads(json.dumps(objects)) == objects


def test_gpu_taints_are_tolerated_only_by_pods_that_ask_for_a_gpu() -> None:
    placement = Placement(gpu_taints=(Toleration(key="nvidia.com/gpu"),))
    without = task.task_pod(task_spec(placement=placement))["spec"]
    with_gpu = task.task_pod(
        task_spec(placement=placement, resources=Resources(cpu_millis=1, memory_bytes=GIB, gpus=1))
    )["spec"]
    assert "tolerations" not in without
    assert with_gpu["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    lists = with_gpu["containers"][0]["resources"]
    assert lists["limits"]["nvidia.com/gpu"] == lists["requests"]["nvidia.com/gpu"] == "1"


def test_host_users_is_left_out_unless_the_cluster_says() -> None:
    assert "hostUsers" not in task.task_pod(task_spec())["spec"]
    assert task.task_pod(task_spec(placement=Placement(host_users=False)))["spec"]["hostUsers"] is False


def test_the_key_is_a_file_and_never_an_environment_variable() -> None:
    spec = instance_spec()
    key = "s3cret-canary"
    secret = instance.secret(spec, {"key": key})
    workload = instance.stateful_set(spec, replicas=1)
    assert key not in json.dumps(secret)
    assert "secretKeyRef" not in json.dumps(workload)
    assert "envFrom" not in json.dumps(workload)
    main = workload["spec"]["template"]["spec"]["containers"][0]
    assert {"name": "mlportal", "mountPath": "/etc/mlportal", "readOnly": True} in main["volumeMounts"]


def test_a_changed_instance_is_never_restarted_behind_its_owners_back() -> None:
    assert instance.stateful_set(instance_spec(), replicas=1)["spec"]["updateStrategy"] == {"type": "OnDelete"}


def test_claims_are_plain_volumes() -> None:
    spec = instance.stateful_set(instance_spec(), replicas=1)["spec"]
    assert "volumeClaimTemplates" not in spec
    assert {"name": "volume-0", "persistentVolumeClaim": {"claimName": "home-abc"}} in spec["template"]["spec"][
        "volumes"
    ]


@pytest.mark.parametrize("replicas", [-1, 2, 10])
def test_an_instance_has_no_second_replica(replicas: int) -> None:
    with pytest.raises(ValueError, match="0 or 1"):
        instance.stateful_set(instance_spec(), replicas=replicas)


def test_a_route_carries_no_annotation_and_nothing_that_people_typed() -> None:
    for typed in ('x";return 200;#', "../../", "我的", "a\nb", "{{.}}", "$host", "*"):
        spec = instance_spec(identity=identity(name=typed))
        route = instance.ingress(spec)
        assert "annotations" not in route["metadata"]
        assert typed not in json.dumps(route["spec"], ensure_ascii=False)
        assert route["spec"]["rules"][0]["host"] == spec.host
        assert [path["path"] for path in route["spec"]["rules"][0]["http"]["paths"]] == ["/"]
        same = instance.route(instance_spec(identity=identity(name=typed), gateway=GATEWAY))
        assert "annotations" not in same["metadata"]
        assert typed not in json.dumps(same["spec"], ensure_ascii=False)
        assert same["spec"]["hostnames"] == [spec.host]


def test_service_and_workload_select_the_same_pods() -> None:
    spec = instance_spec()
    selected = instance.service(spec)["spec"]["selector"]
    workload = instance.stateful_set(spec, replicas=1)["spec"]
    assert selected == workload["selector"]["matchLabels"]
    assert selected.items() <= workload["template"]["metadata"]["labels"].items()


def test_a_program_sees_dollars_as_typed() -> None:
    spec = task_spec(env={"A": "$(HOME) $$"}, args=("$HOME", "echo $(id) $$ $X", "cost: 5$"))
    main = task.task_pod(spec)["spec"]["containers"][0]
    # The kubelet turns "$$" into "$" and "$(NAME)" into a value; all else it leaves alone.
    assert main["args"] == ["$HOME", "echo $$(id) $$$$ $$X", "cost: 5$"]
    assert {"name": "A", "value": "$$(HOME) $$$$"} in main["env"]


def test_a_task_pod_keeps_its_result_and_knows_its_attempt() -> None:
    pod = task.task_pod(task_spec())
    assert pod["metadata"]["finalizers"] == ["mlportal.io/result"]
    assert pod["metadata"]["labels"]["mlportal.io/attempt"] == "2"
    assert pod["spec"]["restartPolicy"] == "Never"
    assert pod["spec"]["activeDeadlineSeconds"] == 3600
    env = {row["name"]: row["value"] for row in pod["spec"]["containers"][0]["env"]}
    assert env["MLPORTAL_RUN_ID"].startswith("d2b4")
    assert env["MLPORTAL_ATTEMPT"] == "2"
    assert env["MLPORTAL_SCHEDULED_AT"] == "2026-11-30T15:00:00Z"


def test_letting_a_pod_go_keeps_other_peoples_finalizers() -> None:
    patch = task.without_result_finalizer(["a.example/x", "mlportal.io/result"], resource_version="7")
    assert patch == {"metadata": {"finalizers": ["a.example/x"], "resourceVersion": "7"}}
    assert task.without_result_finalizer(["mlportal.io/result"], resource_version="7")["metadata"]["finalizers"] is None


@pytest.mark.parametrize(
    "key",
    ["limits.nvidia.com/gpu", "nvidia.com/gpu", "requests.nvidia.com/gpu", "cpu", "memory", "gpu", "count/nonsense",
     "pod", "requests.cpus", "x.storageclass.storage.k8s.io/limits.storage"],
)  # fmt: skip
def test_quota_keys_that_would_be_a_silent_hole_are_refused(key: str) -> None:
    with pytest.raises(SpecError) as caught:
        queue.resource_quota(queue_spec(extra_quota={key: 1}))
    assert caught.value.code == "unknown_quota_key"


def test_a_quota_per_storage_class_is_accepted() -> None:
    key = "fast.storageclass.storage.k8s.io/requests.storage"
    assert queue.hard_limits(queue_spec(extra_quota={key: 5}))[key] == "5"


def test_gpus_are_bound_by_requests_alone() -> None:
    hard = queue.hard_limits(queue_spec(gpus={"nvidia.com/gpu": 8}))
    assert [key for key in hard if "nvidia" in key] == ["requests.nvidia.com/gpu"]


def test_oversell_raises_limits_and_never_requests() -> None:
    plain, oversold = (
        queue.hard_limits(queue_spec()),
        queue.hard_limits(queue_spec(oversell_cpu=2, oversell_memory=1.5)),
    )
    assert oversold["requests.cpu"] == plain["requests.cpu"] == plain["limits.cpu"] == "4"
    assert oversold["limits.cpu"] == "8"
    assert oversold["limits.memory"] == "12Gi"


def policies(**changes: Any) -> dict[str, dict[str, Any]]:
    return {row["metadata"]["name"]: row["spec"] for row in queue.network_policies(queue_spec(**changes))}


def test_nothing_goes_in_or_out_unless_named() -> None:
    found = policies(outside=False)
    assert set(found) == {"default-deny", "allow-dns"}
    assert found["default-deny"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}


def test_the_outside_is_open_and_the_inside_of_the_cluster_is_not() -> None:
    blocks = [row["ipBlock"] for row in policies()["allow-outside"]["egress"][0]["to"]]
    assert {block["cidr"] for block in blocks} == {"0.0.0.0/0", "::/0"}
    closed = [network for block in blocks for network in block["except"]]
    assert {"10.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"} <= set(closed)


def test_no_rule_of_any_policy_is_open_to_everybody_by_an_empty_list() -> None:
    for outside in (True, False):
        for allowed in ((), ("10.9.0.0/24",)):
            for spec in policies(outside=outside, allowed_ranges=allowed, ingress_namespaces=("t",)).values():
                for rule in (*spec.get("egress", ()), *spec.get("ingress", ())):
                    assert rule.get("to") or rule.get("from"), rule


def test_only_the_ingress_controller_may_enter_and_only_instances() -> None:
    entrance = policies(ingress_namespaces=("traefik",))["allow-entrance"]
    assert entrance["podSelector"]["matchLabels"] == {"mlportal.io/install": "test", "mlportal.io/kind": "instance"}
    assert entrance["ingress"] == [
        {"from": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "traefik"}}}]}
    ]


def shape(value: Any) -> Any:
    """A manifest with every text taken out: what is left must not depend on what people typed."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [shape(inner) for inner in value]
    return type(value).__name__


LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


@settings(max_examples=150, deadline=None)
@given(st.text(min_size=1, max_size=90).filter(lambda text: text.strip()))
def test_no_typed_name_changes_the_shape_of_a_manifest(typed: str) -> None:
    """Hostile names may end up in one annotation, and nowhere else but as a slug."""

    def objects(name: str) -> list[dict[str, Any]]:
        own = identity(name=name)
        spec = instance_spec(identity=own)
        run = task_spec(identity=identity("attempt", name=name, attempt=1), flow=name, node=name)
        return [
            instance.secret(spec, {"key": "k"}),
            instance.stateful_set(spec, replicas=1),
            instance.service(spec),
            instance.ingress(spec),
            instance.route(replace(spec, gateway=GATEWAY)),
            claim.claim(claim_spec(identity=own)),
            task.task_pod(run),
            *queue.objects(queue_spec(identity=identity("queue", name=name))),
        ]

    made = objects(typed)
    assert shape(made) == shape(objects("plain"))
    for obj in made:
        metadata = obj["metadata"]
        assert is_dns_label(metadata["name"])
        assert all(LABEL_VALUE.fullmatch(value) for value in metadata["labels"].values())
        assert set(metadata.get("annotations", {})) <= {"mlportal.io/name"}
