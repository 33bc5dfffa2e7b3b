"""The manifests of docker/kubernetes, read as they are: no cluster, no kubectl."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubekit import permissions
from mlportal import env

KUBERNETES = Path(__file__).parents[2] / "docker" / "kubernetes"
FILES = sorted(path for path in KUBERNETES.glob("*/*.yaml") if path.name != "kustomization.yaml")


def documents() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in FILES:
        for document in yaml.safe_load_all(path.read_text()):
            yield f"{path.relative_to(KUBERNETES)}:{document['kind']}/{document['metadata']['name']}", document


WORKLOADS = {name: doc for name, doc in documents() if doc["kind"] in {"Deployment", "StatefulSet", "Job"}}
PROGRAMS = {name: doc for name, doc in WORKLOADS.items() if doc["kind"] == "Deployment" and name.startswith("base/")}


def kustomization(folder: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((KUBERNETES / folder / "kustomization.yaml").read_text())
    return found


def test_the_account_may_do_exactly_what_the_portal_needs() -> None:
    role = yaml.safe_load((KUBERNETES / "base" / "permissions.yaml").read_text())
    assert role["rules"] == permissions.rules()


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_a_pod_is_restricted_and_reads_only_its_image(name: str) -> None:
    pod = WORKLOADS[name]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in [*pod.get("initContainers", []), *pod["containers"]]:
        closed = container["securityContext"]
        assert closed["allowPrivilegeEscalation"] is False and closed["capabilities"] == {"drop": ["ALL"]}
        assert closed["readOnlyRootFilesystem"] is True
        assert {"cpu", "memory"} <= set(container["resources"]["requests"]) and container["resources"]["limits"]


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_a_program_waits_for_its_tables_and_says_when_it_is_ready(name: str) -> None:
    pod = PROGRAMS[name]["spec"]["template"]["spec"]
    assert pod["initContainers"][0]["args"][-1] == "wait"
    assert {"startupProbe", "readinessProbe"} <= set(pod["containers"][0])
    assert ("livenessProbe" in pod["containers"][0]) is not name.startswith("base/worker"), "see there, why not"


def test_what_runs_more_than_once_is_not_drained_away_at_once() -> None:
    kept = {doc["metadata"]["name"] for _name, doc in documents() if doc["kind"] == "PodDisruptionBudget"}
    several = [doc for doc in WORKLOADS.values() if doc["kind"] == "Deployment" and doc["spec"]["replicas"] > 1]
    assert {doc["metadata"]["name"] for doc in several} == kept


def test_what_only_tries_the_portal_gets_no_account() -> None:
    for name, doc in WORKLOADS.items():
        pod = doc["spec"]["template"]["spec"]
        assert pod["automountServiceAccountToken"] is name.startswith(("base/", "ssh/", "gateway/")), name


def test_the_default_of_no_network_covers_what_overlays_add() -> None:
    common = kustomization("base")["labels"][0]
    assert common["includeSelectors"], "the policy for all pods selects these labels"
    for name, doc in WORKLOADS.items():
        if not name.startswith("base/"):
            assert common["pairs"].items() <= doc["spec"]["template"]["metadata"]["labels"].items(), name


def test_every_object_bears_the_standard_labels() -> None:
    for name, doc in documents():
        if not name.startswith("base/") and doc["kind"] != "NetworkPolicy":
            assert kustomization("base")["labels"][0]["pairs"].items() <= doc["metadata"]["labels"].items(), name


def test_every_file_of_a_folder_is_in_its_kustomization() -> None:
    for folder in ("base", "ingress", "httproute", "ssh", "gateway", "trial"):
        files = {path.name for path in (KUBERNETES / folder).glob("*.yaml")} - {"kustomization.yaml"}
        assert files == {name for name in kustomization(folder)["resources"] if not name.startswith("..")}


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_an_image_is_renamed_where_it_is_used(name: str) -> None:
    """What `base` renames is its own: an addition's images keep their short names unless it renames them too."""
    pod = WORKLOADS[name]["spec"]["template"]["spec"]
    renamed = {row["name"] for row in kustomization(name.split("/", maxsplit=1)[0])["images"]}
    assert {part["image"] for part in [*pod.get("initContainers", []), *pod["containers"]]} <= renamed


@pytest.mark.parametrize("folder", ["base", "trial"])
def test_the_settings_of_an_overlay_are_accepted_by_the_portal(folder: str) -> None:
    literals = (row for part in kustomization(folder)["configMapGenerator"] for row in part["literals"])
    given = {"PORTAL_CLUSTER": "in-cluster", **dict(row.split("=", 1) for row in literals)}
    assert env.read(given).given_origin == given["PORTAL_ORIGIN"]


def test_no_secret_is_committed() -> None:
    ignored = set((KUBERNETES / "trial" / ".gitignore").read_text().split())
    generated = kustomization("trial")["secretGenerator"]
    made = {name for part in generated for name in (*part.get("envs", []), *part.get("files", []))}
    assert made == ignored
    assert not [name for name, doc in documents() if doc["kind"] == "Secret"]
