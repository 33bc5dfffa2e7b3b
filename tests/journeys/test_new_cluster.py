"""J9: a cluster that the portal has never seen, from a pasted kubeconfig to JupyterLab open in an instance on it.

KUBECONFIG=… CLUSTER_INGRESS=… MLPORTAL_TEST_NETWORK_POLICY=enforced|stored \
    python -m pytest -m cluster tests/journeys/test_new_cluster.py
(with kubectl in the PATH; the cluster's nodes must have the images mlportal/python:1 and mlportal/jupyter:1)
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from playwright.sync_api import Page, expect

from kubekit.client import Cluster
from kubekit.credentials import parse_kubeconfig
from kubekit.permissions import NEEDED
from tests.clusters.account import Account
from tests.install.installing import PORT, gateway
from tests.journeys.lab import press, run_in_terminal
from tests.journeys.portal import Portal, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.browser, pytest.mark.slow, pytest.mark.xdist_group("portal")]

STANDARD = {f"app.kubernetes.io/{word}" for word in ("name", "instance", "component", "part-of", "managed-by")}
OURS = {f"mlportal.io/{word}" for word in ("install", "kind", "id", "generation")}
#: What the portal itself writes as annotations; controllers of the cluster add their own under their own names.
ANNOTATIONS = {"mlportal.io/name", "mlportal.io/refreshed"}
PATIENCE_MS = 180_000


@pytest.fixture
def server() -> Iterator[Cluster]:
    found = Cluster(parse_kubeconfig(Path(os.environ["KUBECONFIG"]).read_text(encoding="utf-8")))
    yield found
    found.close()


@pytest.fixture
def account(server: Cluster) -> Iterator[Account]:
    with Account(server) as made:
        yield made


def kubectl(*words: str) -> list[dict[str, Any]]:
    """The objects that kubectl shows a person."""
    program = shutil.which("kubectl")
    assert program, "kubectl is not in the PATH"
    answer = subprocess.run([program, *words, "-o", "yaml"], capture_output=True, text=True, timeout=60, check=True)
    items: list[dict[str, Any]] = yaml.safe_load(answer.stdout)["items"]
    return items


def test_j9_a_pasted_kubeconfig_its_check_a_queue_and_an_instance_that_opens(
    portal: Portal, page: Page, account: Account, server: Cluster
) -> None:
    tag = uuid4().hex[:6]
    page.goto("/clusters")
    page.get_by_role("link", name="Register a cluster").first.click()
    page.get_by_label("Name", exact=True).fill(f"far-{tag}")
    page.get_by_label("Kubeconfig").fill(account.kubeconfig)
    page.get_by_label("Domain of the instances").fill("far.localhost")
    page.get_by_label("Reached by").select_option("http")
    expect(page.get_by_label("Namespace of the Gateway")).to_be_hidden()
    page.locator("#form summary").click()
    page.get_by_label("Port", exact=True).fill(str(PORT))
    page.get_by_role("button", name="Register").click()
    page.wait_for_url(re.compile(r"/clusters/[0-9a-f-]{36}$"))
    cluster = page.url.rsplit("/", 1)[1]

    the_check_page_tells_line_by_line(page)
    expect(page.locator("#object-header")).to_contain_text("connected", timeout=PATIENCE_MS)

    page.goto("/queues/new")
    page.get_by_label("Name", exact=True).fill(f"far-{tag}")
    page.get_by_label("Cluster", exact=True).select_option(cluster)
    page.get_by_role("button", name="Make the queue").click()
    page.wait_for_url(re.compile(r"/queues/[0-9a-f-]{36}$"))
    queue = page.url.rsplit("/", 1)[1]
    wait_until("ready queue", lambda: portal.api("GET", f"queues/{queue}").json["state"] == "ready", seconds=120)
    expect(page.locator("#object-header")).to_contain_text("ready", timeout=PATIENCE_MS)
    namespace = str(portal.api("GET", f"queues/{queue}").json["namespace"])

    try:
        a_task_runs_there(portal, page, queue, tag)
        instance = an_instance_opens_there(portal, page, queue, tag)
        by_ingress = what_kubectl_shows(portal, page, instance, namespace, "Ingress")
        reads_naturally(by_ingress, "Ingress")
        gateway(account.name, namespaces={"from": "All"})
        the_gateway_is_chosen_instead(page, cluster, account.name)
        by_route = what_kubectl_shows(portal, page, instance, namespace, "HTTPRoute")
        reads_naturally(by_route, "HTTPRoute")
        assert "Ingress" not in {one["kind"] for one in by_route}
        expect(it_opens(page, instance).locator(".jp-DirListing-itemText", has_text="far.txt")).to_be_visible()
    finally:
        removed_leaves_nothing(portal, page, server, cluster, queue, namespace)


def the_check_page_tells_line_by_line(page: Page) -> None:
    """It was asked for by the registration; its lines come while one looks."""
    page.get_by_role("link", name="Check", exact=True).click()
    page.wait_for_url("**/check")
    expect(page.locator("#check-state")).to_contain_text("done", timeout=PATIENCE_MS)
    lines = page.locator("#check-lines tbody tr")
    expect(lines.filter(has_text="May ")).to_have_count(len(NEEDED))
    for what in (
        "Kubernetes version", "Credentials", "Storage class for volumes", "Ingress class", "Gateway API",
        "Metrics of nodes", "GPUs", "Priority classes", "Clocks", "Pod Security, tried", "User namespaces, tried",
    ):  # fmt: skip
        expect(lines.filter(has_text=what).first).to_be_visible()
    expect(page.locator('tr[data-code="permission_good"]')).to_have_count(len(NEEDED))
    known = os.environ.get("MLPORTAL_TEST_NETWORK_POLICY", "")
    assert known in ("enforced", "stored"), "MLPORTAL_TEST_NETWORK_POLICY must say what the cluster does"
    network = lines.filter(has_text="Network policies, tried by pods")
    expect(network).to_contain_text({"enforced": "Enforced: two pods met", "stored": "Stored only"}[known])
    if known == "stored":
        expect(network.locator("[data-copy]")).to_be_visible()
        expect(page.locator("#check-state")).to_contain_text("missing")
    page.get_by_role("button", name="Check again").click()
    expect(page.locator("#check-state")).not_to_contain_text("done")
    expect(page.locator("#check-state")).to_contain_text("done", timeout=PATIENCE_MS)


def a_task_runs_there(portal: Portal, page: Page, queue: str, tag: str) -> None:
    flow = portal.api(
        "POST",
        "flows",
        {
            "name": f"answer-{tag}",
            "queue": queue,
            "nodes": [
                {"name": "main", "executor": "container", "image": "python", "size": "small",
                 "command": ["python", "-c", "print(6*7)"]},
            ],
        },
    )  # fmt: skip
    assert flow.status == 201, flow.body
    run = portal.api("POST", f"flows/{flow.json['id']}/run").json["id"]
    page.goto(f"/runs/{run}")
    expect(page.locator("#object-header")).to_contain_text("succeeded", timeout=PATIENCE_MS)
    expect(page.locator("pre").filter(has_text="42").first).to_be_visible()
    assert portal.api("DELETE", f"flows/{flow.json['id']}").status < 400


def an_instance_opens_there(portal: Portal, page: Page, queue: str, tag: str) -> str:
    """Made, started, entered with one click, worked in: all on the cluster that the portal had never seen."""
    wanted = {"name": f"lab-{tag}", "image": "jupyter", "size": "small", "queue": queue}
    made = portal.api("POST", "instances", wanted)
    assert made.status == 201, made.body
    instance = str(made.json["id"])
    page.goto(f"/instances/{instance}")
    expect(page.get_by_role("button", name="Open JupyterLab")).to_be_visible(timeout=PATIENCE_MS)
    lab = it_opens(page, instance)
    expect(lab.locator(".jp-LauncherCard").first).to_be_visible(timeout=PATIENCE_MS)
    run_in_terminal(lab, "echo here > /root/far.txt", expect_file=("far.txt",))
    lab.close()
    return instance


def it_opens(page: Page, instance: str) -> Page:
    """JupyterLab in its own tab, at the cluster's own entrance."""
    page.goto(f"/instances/{instance}")
    with page.context.expect_page() as opened:
        page.get_by_role("button", name="Open JupyterLab").click()
    lab: Page = opened.value
    lab.wait_for_url("**/lab**", timeout=PATIENCE_MS)
    assert re.match(rf"http://i-[0-9a-f]+\.far\.localhost{f':{PORT}' if PORT != 80 else ''}/lab", lab.url), lab.url
    expect(lab.locator(".jp-DirListing-content").first).to_be_visible(timeout=PATIENCE_MS)
    return lab


def the_gateway_is_chosen_instead(page: Page, cluster: str, namespace: str) -> None:
    """On the settings page, while the instance runs."""
    page.goto(f"/clusters/{cluster}/settings")
    page.get_by_label("Route of an instance").select_option("httproute")
    page.get_by_label("Namespace of the Gateway").fill(namespace)
    page.get_by_label("Gateway", exact=True).fill("gateway")
    page.get_by_role("button", name="Save").click()
    page.wait_for_url(re.compile(r"/clusters/[0-9a-f-]{36}$"))
    expect(page.get_by_text(f"{namespace}/gateway")).to_be_visible()


def what_kubectl_shows(portal: Portal, page: Page, instance: str, namespace: str, route: str) -> list[dict[str, Any]]:
    """All kinds that the portal makes for an instance, and on the portal's page the pod that kubectl shows."""
    kinds = {"Pod", "StatefulSet", "Service", route, "PersistentVolumeClaim", "ResourceQuota"}
    others = {"Ingress", "HTTPRoute"} - {route}

    def shown() -> list[dict[str, Any]] | None:
        found = kubectl("get", "all,ingress,httproute,pvc,quota", "-n", namespace)
        there = {one["kind"] for one in found}
        return found if kinds <= there and not there & others else None

    objects: list[dict[str, Any]] = wait_until("every object in kubectl", shown, seconds=120)
    (pod,) = [one for one in objects if one["kind"] == "Pod"]
    assert pod["metadata"]["labels"]["mlportal.io/id"] == instance
    page.goto(f"/instances/{instance}")
    where = page.locator("section", has=page.get_by_role("heading", name="Where it runs"))
    expect(where).to_contain_text(pod["metadata"]["name"])
    expect(where).to_contain_text(namespace)
    expect(where).to_contain_text(pod["spec"]["nodeName"])
    key = str(portal.api("GET", f"instances/{instance}/key").json["key"])
    text = yaml.safe_dump(objects)
    assert len(key) > 20 and key not in text and b64encode(key.encode()).decode() not in text
    return objects


def reads_naturally(objects: list[dict[str, Any]], route: str) -> None:
    """Standard labels, owners, and nothing that a person would not have written."""
    by_kind = {one["kind"]: one for one in objects}
    for one in objects:
        metadata = one["metadata"]
        labels, where = metadata["labels"], f"{one['kind']} {metadata['name']}"
        assert labels.keys() >= STANDARD | OURS, where
        assert (labels["app.kubernetes.io/part-of"], labels["app.kubernetes.io/managed-by"]) == ("mlportal", "mlportal")
        own = {key for key in metadata.get("annotations", {}) if "mlportal" in key or "last-applied" in key}
        assert own <= ANNOTATIONS, where
        assert "managedFields" not in metadata, where
    (owner,) = by_kind["Pod"]["metadata"]["ownerReferences"]
    workload = by_kind["StatefulSet"]["metadata"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("StatefulSet", workload["uid"], True)
    assert by_kind[route]["metadata"].get("annotations", {}).keys().isdisjoint(ANNOTATIONS)
    for kind in ("StatefulSet", "Service", route):
        assert by_kind[kind]["metadata"]["name"] == workload["name"]
    # What outlives its instance, or bounds the queue, belongs to nobody who could take it along.
    for kind in ("PersistentVolumeClaim", "ResourceQuota", "StatefulSet"):
        assert "ownerReferences" not in by_kind[kind]["metadata"], kind
    hard = by_kind["ResourceQuota"]["spec"]["hard"]
    assert hard["requests.cpu"] == "4" and hard["pods"] == "200"


def removed_leaves_nothing(
    portal: Portal, page: Page, server: Cluster, cluster: str, queue: str, namespace: str
) -> None:
    """Instances, volumes, queue and cluster go from the portal; then nothing of it is in the cluster."""
    for one in portal.api("GET", f"instances?queue={queue}").json["items"]:
        assert portal.api("DELETE", f"instances/{one['id']}").status < 400
    for volume in portal.api("GET", f"volumes?queue={queue}").json["items"]:
        wait_until(
            "volume that may go",
            lambda volume=volume: portal.api("DELETE", f"volumes/{volume['id']}").status < 400,
            seconds=120,
        )

    def queue_goes() -> bool:
        answer = portal.api("DELETE", f"queues/{queue}")
        return answer.status < 400 or answer.status == 404

    wait_until("queue that may go", queue_goes, seconds=120)
    wait_until(
        "queue that is gone",
        lambda: portal.api("GET", f"queues/{queue}").json.get("state") in (None, "deleted"),
        seconds=120,
    )
    page.goto(f"/clusters/{cluster}")
    press(page, "Remove")
    page.wait_for_url("**/clusters")
    names = [raw["metadata"]["name"] for raw in server.list("Namespace")]
    assert namespace not in names
    assert not [name for name in names if name.startswith("mlp-check-")]
