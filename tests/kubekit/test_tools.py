"""Images that were not made for the portal: one manifest for all of them, and what is read of what they have."""

from __future__ import annotations

import pytest

from kubekit import tools
from kubekit.build import instance as build
from kubekit.diagnose import Context, diagnose
from kubekit.errors import SpecError
from kubekit.observe import observe_pod
from kubekit.specs import Mount
from tests.kubekit.samples import gpu_instance_spec, instance_spec

TOOLS = "mlportal/tools:1"


def test_the_portals_entrypoint_is_put_beside_the_image_and_run_in_place_of_its_own() -> None:
    inside = build.stateful_set(instance_spec(image="debian", tools_image=TOOLS), replicas=1)["spec"]["template"][
        "spec"
    ]
    (first,), (main,) = inside["initContainers"], inside["containers"]
    assert main["command"] == ["/opt/mlportal/bin/sh", "/opt/mlportal/entrypoint"]
    assert {"name": "tools", "mountPath": "/opt/mlportal", "readOnly": True} in main["volumeMounts"]
    assert first["image"] == TOOLS
    assert first["volumeMounts"] == [{"name": "tools", "mountPath": "/tools"}]
    assert "env" not in first
    assert first["securityContext"] == main["securityContext"]
    assert {"name": "tools", "emptyDir": {"sizeLimit": "64Mi"}} in inside["volumes"]


def test_copying_asks_for_no_more_than_the_instance_itself_and_for_no_gpu() -> None:
    spec = gpu_instance_spec()
    with_tools = build.stateful_set(instance_spec(resources=spec.resources, tools_image=TOOLS), replicas=1)
    inside = with_tools["spec"]["template"]["spec"]
    (first,), (main,) = inside["initContainers"], inside["containers"]
    assert "nvidia.com/gpu" in main["resources"]["limits"]
    for which in ("limits", "requests"):
        assert "nvidia.com/gpu" not in first["resources"][which]
        assert first["resources"][which].items() <= main["resources"][which].items()


def test_an_image_made_for_the_portal_runs_its_own_entrypoint() -> None:
    inside = build.stateful_set(instance_spec(), replicas=1)["spec"]["template"]["spec"]
    assert "initContainers" not in inside
    assert "command" not in inside["containers"][0]
    assert "tools" not in str(inside)


def test_tools_that_cannot_be_fetched_are_named_and_not_the_image() -> None:
    pulling = {"waiting": {"reason": "ErrImagePull", "message": "manifest unknown"}}
    status = {
        "phase": "Pending",
        "initContainerStatuses": [{"name": "tools", "image": "r.example/tools:1", "state": pulling}],
        "containerStatuses": [{"name": "main", "image": "debian", "state": {"waiting": {"reason": "PodInitializing"}}}],
    }
    pod = observe_pod({"metadata": {"name": "x-0", "namespace": "n", "uid": "u"}, "spec": {}, "status": status})
    found = diagnose(Context(pod=pod, image="debian"))
    assert found is not None
    assert (found.code, found.params) == ("image_not_found", {"image": "r.example/tools:1"})


@pytest.mark.parametrize("path", ["/opt/mlportal", "/opt/mlportal/bin", "/opt/venv", "/var/run"])
def test_no_volume_covers_the_portals_own_programs(path: str) -> None:
    with pytest.raises(SpecError):
        Mount(claim="data", path=path)


def test_a_wrong_reference_of_the_tools_is_refused() -> None:
    with pytest.raises(SpecError):
        instance_spec(tools_image="No Image")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("jupyterlab 4.6.6\nshell /bin/bash\n", {"jupyterlab": "4.6.6", "shell": "/bin/bash"}),
        ("none no-python \nshell /bin/sh\n", {"why": "no-python", "shell": "/bin/sh"}),
        ("none old-python 3.8\n", {"why": "old-python", "detail": "3.8"}),
        ("none broken ImportError: no x\n", {"why": "broken", "detail": "ImportError: no x"}),
        ("none no-python\njupyterlab 4.0\n", {"jupyterlab": "4.0"}),
        ("none because\n", {}),
        ("shell /bin/sh\n", {}),
        ("", {}),
        ("jupyterlab \x1b[2J\n", {}),
        ("jupyterlab " + "9" * 5000, {}),
        ("<script>\njupyterlab 4.1\nother x", {"jupyterlab": "4.1"}),
    ],
)
def test_what_an_image_has_is_read_as_a_claim(text: str, found: dict[str, str]) -> None:
    assert dict(tools.parse_found(text)) == found
