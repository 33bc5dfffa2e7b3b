"""Where pods go, and the sentences when they go nowhere."""

import pytest

from tests.localkube.conftest import Cluster
from tests.localkube.fake_node import node_object
from tests.localkube.manifests import asks, pod

NS = "/api/v1/namespaces/default"


@pytest.fixture
def empty(tmp_path):
    """A cluster whose only node is its own: 4 CPUs, 8 GiB, 2 GPUs."""
    cluster = Cluster(tmp_path)
    yield cluster.client
    cluster.stop()


def unschedulable(api, name="p"):
    found = api.until(f"{NS}/pods/{name}", lambda p: p["status"].get("conditions"))
    (condition,) = found["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("PodScheduled", "False", "Unschedulable")
    return condition["message"]


@pytest.mark.parametrize(
    ("manifest", "reason"),
    [
        (pod(resources=asks("64")), "1 Insufficient cpu"),
        (pod(resources=asks("1", "64Gi")), "1 Insufficient memory"),
        (pod(resources=asks("64", "64Gi")), "1 Insufficient cpu, 1 Insufficient memory"),
        (pod(resources=asks(**{"nvidia.com/gpu": "3"})), "1 Insufficient nvidia.com/gpu"),
        (pod(spec={"nodeSelector": {"gpu": "v100"}}), "1 node(s) didn't match Pod's node affinity/selector"),
    ],
)
def test_a_pod_that_fits_no_node_says_what_is_missing(empty, manifest, reason):
    empty.post(NS + "/pods", manifest)
    text = unschedulable(empty)
    assert text == (
        f"0/1 nodes are available: {reason}. no new claims to deallocate, preemption: "
        "0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    )
    events = empty.until(NS + "/events", lambda b: b["items"])["items"]
    assert [(e["type"], e["reason"], e["message"]) for e in events] == [("Warning", "FailedScheduling", text)]


def test_a_full_node_has_no_preemption_victims(empty):
    empty.post(NS + "/pods", pod("first", resources=asks("3")))
    empty.post(NS + "/pods", pod(resources=asks("3")))
    assert unschedulable(empty).endswith("1 No preemption victims found for incoming pod.")


def test_a_waiting_pod_goes_when_room_comes_by_a_deleted_an_ended_pod_or_a_new_node(tmp_path):
    cluster = Cluster(tmp_path)
    api = cluster.client
    try:
        for name in ("a", "b"):
            api.post(NS + "/pods", pod(name, resources=asks("2")))
        for name in ("c", "d", "e"):
            api.post(NS + "/pods", pod(name, resources=asks("2")))
            unschedulable(api, name)
        api.delete(NS + "/pods/a")
        api.until(NS + "/pods/c", lambda p: p["spec"].get("nodeName"))
        cluster.call(cluster.node.end, "default", "b", 0)
        api.until(NS + "/pods/d", lambda p: p["spec"].get("nodeName"))
        api.post("/api/v1/nodes", node_object("second"))
        api.patch("/api/v1/nodes/second/status", {"status": node_object("second")["status"]})
        placed = api.until(NS + "/pods/e", lambda p: p["spec"].get("nodeName"))
        assert placed["spec"]["nodeName"] == "second"
    finally:
        cluster.stop()


def test_the_higher_priority_goes_first(empty):
    empty.post("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "high"}, "value": 10})
    empty.post(NS + "/pods", pod("holder", resources=asks("4")))
    empty.post(NS + "/pods", pod("low", resources=asks("4")))
    empty.post(NS + "/pods", pod("high", resources=asks("4"), spec={"priorityClassName": "high"}))
    unschedulable(empty, "high")
    empty.delete(NS + "/pods/holder")
    empty.until(NS + "/pods/high", lambda p: p["spec"].get("nodeName"))
    assert "nodeName" not in empty.get(NS + "/pods/low").body["spec"]


def add_node(api, name, **more):
    node = node_object(name)
    node["metadata"]["labels"] |= more.pop("labels", {})
    api.post("/api/v1/nodes", node | {"spec": more})
    api.patch(f"/api/v1/nodes/{name}/status", {"status": node["status"]})


def test_selectors_and_taints_choose_the_node(empty):
    add_node(
        empty, "gpu-node", labels={"gpu": "v100"}, taints=[{"key": "only", "value": "gpu", "effect": "NoSchedule"}]
    )
    empty.post(NS + "/pods", pod("intolerant", spec={"nodeSelector": {"gpu": "v100"}}))
    text = unschedulable(empty, "intolerant")
    assert text.startswith(
        "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, "
        "1 node(s) had untolerated taint(s)."
    )
    tolerations = [{"key": "only", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"}]
    empty.post(NS + "/pods", pod("picky", spec={"tolerations": tolerations, "nodeSelector": {"gpu": "v100"}}))
    assert empty.until(NS + "/pods/picky", lambda p: p["spec"].get("nodeName"))["spec"]["nodeName"] == "gpu-node"


def test_a_cordoned_node_takes_nothing_new(empty):
    empty.patch("/api/v1/nodes/localkube", {"spec": {"unschedulable": True}})
    empty.post(NS + "/pods", pod())
    assert "1 node(s) were unschedulable" in unschedulable(empty)
    empty.patch("/api/v1/nodes/localkube", {"spec": {"unschedulable": None}})
    empty.until(NS + "/pods/p", lambda p: p["status"]["phase"] == "Running")


def test_a_pod_waits_for_its_claim_and_goes_when_it_is_bound(empty):
    volumes = [{"name": "home", "persistentVolumeClaim": {"claimName": "home"}}]
    empty.post(NS + "/pods", pod(spec={"volumes": volumes}))
    assert 'persistentvolumeclaim "home" not found' in unschedulable(empty)
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    empty.post(NS + "/persistentvolumeclaims", {"metadata": {"name": "home"}, "spec": spec})
    empty.until(NS + "/pods/p", lambda p: p["status"]["phase"] == "Running")


def test_a_silent_node_takes_nothing_new_and_its_pods_are_not_ready(empty):
    add_node(empty, "far", labels={"far": "yes"})
    empty.post(NS + "/pods", pod("there", spec={"nodeSelector": {"far": "yes"}}))
    empty.until(f"{NS}/pods/there", lambda p: p["spec"].get("nodeName"))
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    empty.patch(f"{NS}/pods/there/status", {"status": {"phase": "Running", "conditions": [ready]}})
    empty.patch("/api/v1/nodes/far/status", {"status": {"conditions": [ready | {"status": "Unknown"}]}})
    empty.until(f"{NS}/pods/there", lambda p: p["status"]["conditions"][0]["status"] == "False")
    assert "NodeNotReady" in [event["reason"] for event in empty.get(NS + "/events").body["items"]]
    empty.post(NS + "/pods", pod("late", spec={"nodeSelector": {"far": "yes"}}))
    assert "1 node(s) had untolerated taint(s)" in unschedulable(empty, "late")


def test_the_pods_of_a_deleted_node_go_with_it(empty):
    add_node(empty, "far", labels={"far": "yes"})
    empty.post(NS + "/pods", pod(spec={"nodeSelector": {"far": "yes"}}, finalizers=["mlportal.io/result"]))
    empty.until(NS + "/pods/p", lambda p: p["spec"].get("nodeName"))
    empty.delete("/api/v1/nodes/far")
    lost = empty.until(NS + "/pods/p", lambda p: p["metadata"].get("deletionTimestamp"))
    assert lost["status"]["phase"] == "Failed"
    conditions = {c["type"]: c.get("message") for c in lost["status"]["conditions"]}
    assert conditions["DisruptionTarget"] == "PodGC: node no longer exists"
