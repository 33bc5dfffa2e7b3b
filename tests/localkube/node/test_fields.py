"""Which fields of a pod are acted on, stored with a warning, or refused; and that the documentation says the same."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from localkube.node import fields
from localkube.node.fields import ACTED_ON, STORED, check_pod

DOCUMENT = Path(__file__).parents[3] / "docs" / "localkube.md"


def pod(**spec: Any) -> Any:
    return {"spec": {"containers": [{"name": "main", "image": "x"}], **spec}}


def container(**changes: Any) -> Any:
    return pod(containers=[{"name": "main", "image": "x", **changes}])


def test_a_plain_pod_is_neither_warned_of_nor_refused() -> None:
    full = container(
        env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
        resources={"limits": {"cpu": "1", "nvidia.com/gpu": "1"}},
        readinessProbe={"httpGet": {"path": "/", "port": 80, "scheme": "HTTP"}},
        securityContext={"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        volumeMounts=[{"name": "v", "mountPath": "/root"}],
    )
    full["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    assert check_pod(full) == ([], [])


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (pod(volumes=[{"name": "v", "hostPath": {"path": "/"}}]), "spec.volumes[0].hostPath"),
        (pod(volumes=[{"name": "v"}]), "spec.volumes[0]"),
        (pod(hostNetwork=True), "spec.hostNetwork"),
        (pod(hostPID=True), "spec.hostPID"),
        (pod(ephemeralContainers=[{"name": "d"}]), "spec.ephemeralContainers"),
        (container(securityContext={"privileged": True}), "spec.containers[0].securityContext.privileged"),
        (container(securityContext={"capabilities": {"add": ["SYS_ADMIN"]}}), "capabilities.add"),
        (container(lifecycle={"preStop": {"exec": {"command": ["x"]}}}), "spec.containers[0].lifecycle"),
        (container(volumeMounts=[{"name": "v", "mountPath": "/x", "subPathExpr": "$(A)"}]), "subPathExpr"),
        (container(volumeMounts=[{"name": "v", "mountPath": "/x", "subPath": "a"}]), "volumeMounts[0].subPath"),
        (container(readinessProbe={"exec": {"command": ["x"]}}), "readinessProbe.exec"),
        (container(readinessProbe={"httpGet": {"port": 1, "scheme": "HTTPS"}}), "spec.containers[0].readinessProbe"),
        (container(livenessProbe={"httpGet": {"port": 1}}), "spec.containers[0].livenessProbe"),
        (container(envFrom=[{"secretRef": {"name": "s"}}]), "spec.containers[0].envFrom"),
        (container(env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.x"}}}]), "fieldPath spec.x"),
        (pod(initContainers=[{"name": "i", "image": "x"}]), "spec.initContainers"),
    ],
)
def test_what_is_not_implemented_is_refused_by_name(spec: Any, field: str) -> None:
    _, refusals = check_pod(spec)
    assert any(field in refusal for refusal in refusals)


def test_stored_fields_are_warned_of_with_their_place() -> None:
    spec = container(securityContext={"seccompProfile": {"type": "RuntimeDefault"}})
    spec["spec"]["runtimeClassName"] = "x"
    warnings, refusals = check_pod(spec)
    assert refusals == []
    assert [text.partition(":")[0] for text in warnings] == [
        "spec.containers[0].securityContext.seccompProfile",
        "spec.runtimeClassName",
    ]


def test_disabled_features_pass_whatever_their_name() -> None:
    assert check_pod(pod(hostNetwork=False, hostIPC=False, overhead=None, readinessGates=[])) == ([], [])


def _documented(column: int) -> set[str]:
    section = DOCUMENT.read_text().partition("### Pod fields")[2].partition("\n### ")[0]
    found = set()
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) == 3 and cells[0].startswith("`"):
            place = cells[0].strip("`")
            prefix = "" if place == "spec" else f"{place}."
            found |= {prefix + name for name in re.findall(r"`([^`]+)`", cells[column])}
    return found


def test_the_documentation_lists_exactly_these_fields() -> None:
    assert _documented(1) == set(fields.paths(ACTED_ON))
    assert _documented(2) == set(fields.paths(STORED))
