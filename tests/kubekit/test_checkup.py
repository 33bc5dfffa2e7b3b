"""What each line of a check says about what was read and what was tried. Pure: no cluster."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kubekit.build import probe
from kubekit.build.probe import ProbeSpec
from kubekit.checkup import Line, facts, tried
from kubekit.checkup.tried import ClaimTrial, NetworkTrial
from kubekit.errors import Forbidden, Invalid, NotFound, ServerError, SpecError
from kubekit.permissions import NEEDED

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def named(name: str, **annotations: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "annotations": {key.replace("__", "/"): v for key, v in annotations.items()}}}


def default(name: str, key: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "annotations": {key: "true"}}}


def verdict(line: Line) -> tuple[str, str]:
    return line.code, line.result


# --- version -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("minor", "code"),
    [("29", "good"), ("36", "good"), ("29+", "good"), ("28", "too_old"), ("9", "too_old"), ("28+", "too_old")],
)
def test_one_version_too_old_is_refused_and_the_oldest_is_not(minor: str, code: str) -> None:
    line = facts.version({"major": "1", "minor": minor, "gitVersion": f"v1.{minor}.0"})
    assert verdict(line) == (f"version_{code}", "good" if code == "good" else "missing")
    assert line.params["oldest"] == "1.29"


@pytest.mark.parametrize(
    ("text", "old"),
    [
        ("v1.28.15", True),
        ("v1.29.0-eks-123", False),
        ("v1.36.3+k3s1", False),
        ("", False),
        ("weird", False),
        ("v2.0.0", False),
    ],
)
def test_a_stored_version_is_judged_like_the_server_s_own(text: str, old: bool) -> None:
    assert facts.too_old(facts.parse_version(text)) is old


def test_a_version_that_nobody_can_read_is_unknown_and_not_too_old() -> None:
    assert verdict(facts.version({"major": "one", "minor": "many"})) == ("version_unreadable", "unknown")


@pytest.mark.parametrize(
    ("days", "code", "result"),
    [(None, "lasting", "good"), (365, "until", "good"), (13, "soon", "missing"), (-1, "soon", "missing")],
)
def test_credentials_that_end_soon_are_told_with_the_day(days: int | None, code: str, result: str) -> None:
    line = facts.login(NOW + timedelta(days=days) if days is not None else None, NOW)
    assert verdict(line) == (f"login_{code}", result)
    assert bool(line.command) == (result == "missing")


# --- permissions -------------------------------------------------------------------------------------------------


def test_a_missing_verb_is_named_with_the_command_that_grants_it() -> None:
    pods = next(entry for entry in NEEDED if entry.kind == "Pod" and not entry.subresource)
    line = facts.permission(pods, ["watch"], account="system:serviceaccount:a:b", exposure="ingress")
    assert verdict(line) == ("permission_missing", "missing")
    assert line.params["missing"] == "watch"
    assert "--serviceaccount=a:b" in line.command
    assert verdict(facts.permission(pods, [], account="", exposure="ingress")) == ("permission_good", "good")


def test_what_only_the_check_reads_is_not_missing() -> None:
    optional = next(entry for entry in NEEDED if entry.optional)
    assert facts.permission(optional, ["list"], account="jane", exposure="ingress").result == "note"


# --- classes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("classes", "chosen", "code", "command"),
    [
        ([], "", "none", ""),
        ([named("slow")], "", "no_default", "kubectl annotate storageclass slow "),
        ([named("slow")], "slow", "good", ""),
        ([named("slow")], "fast", "not_there", ""),
        ([named("slow"), default("fast", facts.DEFAULT_STORAGE)], "", "good", ""),
        ([default("slow", facts.DEFAULT_INGRESS)], "", "no_default", "kubectl annotate storageclass slow "),
    ],
)
def test_the_class_for_volumes(classes: list[dict[str, Any]], chosen: str, code: str, command: str) -> None:
    line = facts.default_storage(classes, chosen=chosen)
    assert line.code == f"storage_class_{code}"
    assert line.result == ("good" if code == "good" else "missing")
    assert line.command.startswith(command) and bool(line.command) == bool(command)


def test_an_ingress_class_is_missing_only_where_instances_are_reached_by_one() -> None:
    assert facts.ingress([], chosen="", needed=True).result == "missing"
    assert facts.ingress([], chosen="", needed=False).result == "note"
    line = facts.ingress([named("traefik")], chosen="", needed=True)
    assert line.command == "kubectl annotate ingressclass traefik ingressclass.kubernetes.io/is-default-class=true"


def test_a_gateway_counts_in_version_1_and_with_a_controller_behind_it() -> None:
    accepted = {**named("envoy"), "status": {"conditions": [{"type": "Accepted", "status": "True"}]}}
    waiting = {**named("envoy"), "status": {"conditions": [{"type": "Accepted", "status": "Unknown"}]}}
    assert verdict(facts.gateway(["v1", "v1beta1"], [accepted], needed=True)) == ("gateway_good", "good")
    assert verdict(facts.gateway(["v1beta1"], [accepted], needed=True)) == ("gateway_none", "missing")
    assert verdict(facts.gateway([], [], needed=False)) == ("gateway_none", "note")
    assert verdict(facts.gateway(["v1"], [waiting], needed=True)) == ("gateway_no_controller", "missing")


def test_metrics_are_there_empty_not_served_or_silent() -> None:
    assert verdict(facts.metrics(3, nodes=4)) == ("metrics_good", "good")
    assert verdict(facts.metrics(0, nodes=4)) == ("metrics_empty", "note")
    line = facts.metrics(NotFound("no such group"), nodes=4)
    assert verdict(line) == ("metrics_none", "note")
    assert line.command.startswith("kubectl apply -f https://")
    assert verdict(facts.metrics(ServerError("down"), nodes=4)) == ("metrics_silent", "unknown")


# --- GPUs --------------------------------------------------------------------------------------------------------


def node(
    name: str, gpus: str | None = "8", *, model: str = "", taint: bool = True, card: bool = False
) -> dict[str, Any]:
    labels = {**({"nvidia.com/gpu.product": model} if model else {})}
    if card:
        labels["feature.node.kubernetes.io/pci-10de.present"] = "true"
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}] if taint else []},
        "status": {"allocatable": {"cpu": "4", "hugepages-2Mi": "0", **({"nvidia.com/gpu": gpus} if gpus else {})}},
    }


def test_gpus_are_counted_by_model() -> None:
    lines = facts.gpus([node("a", model="V100"), node("b", model="A100"), node("c", model="A100"), node("d", "1")])
    assert [(line.code, line.params["model"], line.params["count"], line.params["nodes"]) for line in lines] == [
        ("gpu_unnamed", "", 1, 1),
        ("gpu_model", "A100", 16, 2),
        ("gpu_model", "V100", 8, 1),
    ]


def test_a_gpu_node_without_a_taint_and_a_card_without_a_plugin_are_told_with_the_command() -> None:
    by_code = {line.code: line for line in facts.gpus([node("open", taint=False), node("bare", None, card=True)])}
    assert by_code["gpu_open"].command == "kubectl taint nodes open nvidia.com/gpu=present:NoSchedule"
    assert by_code["gpu_no_plugin"].result == "missing"
    assert by_code["gpu_no_plugin"].params["nodes"] == "bare"


def test_a_cluster_without_gpus_says_none() -> None:
    assert [verdict(line) for line in facts.gpus([node("plain", None)])] == [("gpu_none", "note")]


def test_priority_classes_are_listed_without_the_system_s_own() -> None:
    classes = [{"metadata": {"name": "system-node-critical"}, "value": 2}, {"metadata": {"name": "low"}, "value": -5}]
    assert facts.priorities(classes).params["names"] == "low (-5)"
    assert facts.priorities(classes[:1]).code == "priority_none"


# --- clocks ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("apart_s", "code"), [(0, "good"), (4, "good"), (-4, "good"), (3600, "ahead"), (-3600, "behind"), (60, "ahead")]
)
def test_a_clock_that_is_an_hour_off_is_told_with_its_direction(apart_s: int, code: str) -> None:
    line = facts.clock(NOW + timedelta(seconds=apart_s), NOW)
    assert line.code == f"clock_{code}"
    assert line.result == ("good" if code == "good" else "missing")
    assert line.params.get("seconds", abs(apart_s)) == abs(apart_s)


def test_a_stamp_that_is_none_is_unknown() -> None:
    assert facts.clock(None, NOW).result == "unknown"


# --- what was tried ----------------------------------------------------------------------------------------------

GOOD, BAD = ClaimTrial(bound=True), ClaimTrial(bound=False, said=("ProvisioningFailed: no shared volumes",))


@pytest.mark.parametrize(
    ("once", "many", "used", "expected"),
    [
        (GOOD, GOOD, True, ("storage_good", "good")),
        (GOOD, BAD, True, ("storage_partly", "note")),
        (BAD, BAD, True, ("storage_fails", "missing")),
        (BAD, BAD, False, ("storage_fails", "note")),
    ],
)
def test_a_storage_class_is_judged_by_the_volumes_that_came(
    once: ClaimTrial, many: ClaimTrial, used: bool, expected: tuple[str, str]
) -> None:
    line = tried.storage("fast", {"ReadWriteOnce": once, "ReadWriteMany": many}, used=used)
    assert verdict(line) == expected
    assert bool(line.evidence) == (many is BAD)


def test_pod_security_is_believed_only_when_the_server_refuses() -> None:
    assert verdict(tried.pod_security(Forbidden("violates PodSecurity"), level="baseline")) == (
        "pod_security_good",
        "good",
    )
    assert verdict(tried.pod_security(None, level="baseline")) == ("pod_security_ignored", "missing")
    assert verdict(tried.pod_security(Invalid("no"), level="baseline")) == ("pod_security_other", "note")
    assert tried.pod_security(ServerError("no"), level="baseline").result == "unknown"


@pytest.mark.parametrize(
    ("uid_map", "code"),
    [
        ("         0          0 4294967295\n", "ignored"),
        ("         0 3282370560      65536\n", "good"),
        ("      1000          0          1\n", "good"),
        ("", "fails"),
        ("not a map", "fails"),
    ],
)
@pytest.mark.parametrize("wanted", [True, False])
def test_user_namespaces_are_judged_by_the_map_and_not_by_the_field(uid_map: str, code: str, wanted: bool) -> None:
    line = tried.user_namespaces(uid_map, why=["it was refused"], wanted=wanted)
    if code == "good":
        assert verdict(line) == (("user_namespaces_good", "good") if wanted else ("user_namespaces_unused", "note"))
    else:
        assert verdict(line) == (f"user_namespaces_{code}", "missing" if wanted else "note")


FULL: dict[str, Any] = {"ran": True, "open_before": True, "alive": True, "open_after": True}


@pytest.mark.parametrize(
    ("trial", "expected"),
    [
        (NetworkTrial(**FULL, shut={"into": True, "out": True}, seconds=1.24), ("network_enforced", "good")),
        (NetworkTrial(**FULL, shut={"into": False, "out": False}), ("network_stored", "missing")),
        (NetworkTrial(**FULL, shut={"into": True, "out": False}), ("network_only_into", "missing")),
        (NetworkTrial(**FULL, shut={"into": False, "out": True}), ("network_only_out", "missing")),
        (NetworkTrial(why=("ErrImagePull: no such image",)), ("network_no_pods", "unknown")),
        (NetworkTrial(ran=True), ("network_no_path", "unknown")),
        (
            NetworkTrial(**{**FULL, "open_after": False}, shut={"into": True, "out": True}),
            ("network_unclear", "unknown"),
        ),
        (NetworkTrial(**{**FULL, "alive": False}, shut={"into": False, "out": False}), ("network_unclear", "unknown")),
        (NetworkTrial(**{**FULL, "alive": False}, shut={"into": True, "out": True}), ("network_unclear", "unknown")),
    ],
)
def test_network_policy_is_enforced_only_when_all_three_looks_say_so(
    trial: NetworkTrial, expected: tuple[str, str]
) -> None:
    line = tried.network(trial)
    assert verdict(line) == expected
    assert bool(line.command) == (line.result == "missing")


def test_knocks_are_believed_once_the_last_few_agree() -> None:
    assert tried.knocks(b"up\nopen\nopen\nopen\n").all("open")
    assert not tried.knocks(b"up\nopen\nopen\n").all("open")
    assert not tried.knocks(b"open\nopen\nshut\n").all("open")
    assert tried.knocks(b"open\nopen\nshut\nshut\nshut\nsh").all("shut")
    assert tried.knocks(b"open\nnoise\n\xff\nshut\n").count == 2
    assert not tried.knocks(b"").all("open")


# --- what is put up ----------------------------------------------------------------------------------------------

SPEC = ProbeSpec(install="p1", id="0b5f2a52-6f6e-4a48-8f5b-0d7f0f6b6a11", image="mlportal/python:1")


def test_everything_that_is_put_up_says_whose_it_is_and_pods_end_by_themselves() -> None:
    pods = [probe.talker(SPEC, probe.GUARDED), probe.mapped(SPEC), probe.mounting(SPEC, 0, ["claim-0-rwo"])]
    others = [probe.namespace(SPEC), probe.policy(SPEC, in_force=True)]
    others.append(probe.claim(SPEC, "claim-0-rwo", storage_class="fast", access_mode="ReadWriteOnce"))
    for made in (*pods, *others):
        labels = made["metadata"]["labels"]
        assert (labels["mlportal.io/install"], labels["mlportal.io/kind"]) == ("p1", "probe")
        assert labels["mlportal.io/id"] == SPEC.id
        assert labels["app.kubernetes.io/managed-by"] == "mlportal"
    assert all(pod["spec"]["activeDeadlineSeconds"] == probe.POD_DEADLINE_S for pod in pods)
    assert all(pod["spec"]["securityContext"]["runAsNonRoot"] for pod in pods)
    assert probe.mapped(SPEC)["spec"]["hostUsers"] is False


def test_the_policy_selects_one_of_the_two_and_nobody_when_it_is_out_of_force() -> None:
    guarded = probe.talker(SPEC, probe.GUARDED)["metadata"]["labels"]
    free = probe.talker(SPEC, probe.FREE)["metadata"]["labels"]
    for in_force in (True, False):
        wanted = probe.policy(SPEC, in_force=in_force)["spec"]["podSelector"]["matchLabels"].items()
        assert (wanted <= guarded.items()) is in_force
        assert not wanted <= free.items()


def test_each_run_has_a_namespace_of_its_own_and_a_bad_image_is_refused() -> None:
    other = ProbeSpec(install="p1", id="another", image="mlportal/python:1")
    assert other.namespace != SPEC.namespace
    with pytest.raises(SpecError):
        ProbeSpec(install="p1", id="x", image="not an image")
