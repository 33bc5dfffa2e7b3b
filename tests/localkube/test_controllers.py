"""StatefulSets, jobs, services, claims, namespaces, owners and events."""

import pytest

from tests.localkube.conftest import Cluster
from tests.localkube.manifests import config_map, job, pod, stateful_set


def group(ns, kind):
    name = ns.rpartition("/")[2]
    root = {"statefulsets": "apps", "jobs": "batch", "endpointslices": "discovery.k8s.io"}[kind]
    return f"/apis/{root}/v1/namespaces/{name}/{kind}"


def reasons(api, ns):
    return [event["reason"] for event in api.get(ns + "/events").body["items"]]


def pod_names(api, ns):
    return [item["metadata"]["name"] for item in api.get(ns + "/pods").body["items"]]


# StatefulSets


def test_a_stateful_set_makes_its_pods_in_order_and_says_so(api, ns):
    sets = group(ns, "statefulsets")
    api.post(sets, stateful_set(replicas=3))
    status = api.until(f"{sets}/web", lambda s: s["status"].get("readyReplicas") == 3)["status"]
    assert pod_names(api, ns) == ["web-0", "web-1", "web-2"]
    assert status["updateRevision"] == status["currentRevision"]
    made = api.get(f"{ns}/pods/web-1").body
    assert made["metadata"]["ownerReferences"][0]["name"] == "web"
    assert made["metadata"]["labels"]["apps.kubernetes.io/pod-index"] == "1"
    assert (made["spec"]["hostname"], made["spec"]["subdomain"]) == ("web-1", "web")
    messages = [e["message"] for e in api.get(ns + "/events").body["items"] if e["reason"] == "SuccessfulCreate"]
    assert "Create Pod web-0 in StatefulSet web successful" in messages


def test_the_next_pod_waits_for_the_one_before_it_unless_parallel(api, cluster, ns):
    sets, namespace = group(ns, "statefulsets"), ns.rpartition("/")[2]
    held = stateful_set(replicas=2)
    held["spec"]["template"]["metadata"]["annotations"] = {"fake/hold": ""}
    api.post(sets, held)
    api.until(ns + "/pods/web-0", lambda p: p["spec"].get("nodeName"))
    assert pod_names(api, ns) == ["web-0"]
    cluster.call(cluster.node.run, namespace, "web-0")
    api.until(ns + "/pods/web-1", lambda p: True)
    both = stateful_set("par", replicas=2, podManagementPolicy="Parallel")
    both["spec"]["template"]["metadata"]["annotations"] = {"fake/hold": ""}
    api.post(sets, both)
    api.until(ns + "/pods/par-1", lambda p: True)


def test_scaling_down_ends_the_highest_pods(api, ns):
    sets = group(ns, "statefulsets")
    api.post(sets, stateful_set(replicas=3))
    api.until(f"{sets}/web", lambda s: s["status"].get("readyReplicas") == 3)
    api.patch(f"{sets}/web/scale", {"spec": {"replicas": 1}})
    api.gone(ns + "/pods/web-1")
    assert pod_names(api, ns) == ["web-0"]


def test_a_new_template_replaces_the_pods_and_a_deleted_or_failed_one_comes_back(api, cluster, ns):
    sets, namespace = group(ns, "statefulsets"), ns.rpartition("/")[2]
    api.post(sets, stateful_set(replicas=2))
    before = api.until(f"{sets}/web", lambda s: s["status"].get("readyReplicas") == 2)
    changed = stateful_set(replicas=2)["spec"]["template"]
    changed["spec"]["containers"][0]["image"] = "other:2"
    api.patch(f"{sets}/web", {"spec": {"template": changed}})
    after = api.until(
        f"{sets}/web", lambda s: s["status"].get("updatedReplicas") == s["status"].get("readyReplicas") == 2
    )
    assert after["status"]["currentRevision"] != before["status"]["currentRevision"]
    old = api.get(ns + "/pods/web-0").body
    assert old["spec"]["containers"][0]["image"] == "other:2"
    cluster.call(cluster.node.end, namespace, "web-0", 1)
    new = api.until(ns + "/pods/web-0", lambda p: p["metadata"]["uid"] != old["metadata"]["uid"])
    api.delete(ns + "/pods/web-0")
    api.until(ns + "/pods/web-0", lambda p: p["metadata"]["uid"] != new["metadata"]["uid"])


# Jobs


def test_a_job_completes_once_its_pods_succeeded(api, cluster, ns):
    jobs, namespace = group(ns, "jobs"), ns.rpartition("/")[2]
    api.post(jobs, job(completions=2, parallelism=1))
    for number in range(2):
        items = api.until(ns + "/pods", lambda b: any(p["status"]["phase"] == "Running" for p in b["items"]))["items"]
        running = next(p["metadata"]["name"] for p in items if p["status"]["phase"] == "Running")
        cluster.call(cluster.node.end, namespace, running, 0)
        api.until(f"{jobs}/job", lambda j, n=number: j["status"].get("succeeded") == n + 1)
    done = api.until(f"{jobs}/job", lambda j: j["status"].get("completionTime"))
    types = {c["type"]: c["status"] for c in done["status"]["conditions"]}
    assert types == {"SuccessCriteriaMet": "True", "Complete": "True"}
    assert "active" not in done["status"]
    assert "Completed" in reasons(api, ns)
    assert all(
        "finalizers" not in p["metadata"] or not p["metadata"]["finalizers"]
        for p in api.get(ns + "/pods").body["items"]
    )


def test_a_job_fails_by_its_backoff_limit_and_by_its_deadline(api, cluster, ns):
    jobs, namespace = group(ns, "jobs"), ns.rpartition("/")[2]
    api.post(jobs, job(backoffLimit=0))
    name = api.until(ns + "/pods", lambda b: b["items"] and b["items"][0]["status"]["phase"] == "Running")["items"][0]
    cluster.call(cluster.node.end, namespace, name["metadata"]["name"], 3)
    failed = api.until(f"{jobs}/job", lambda j: any(c["type"] == "Failed" for c in j["status"].get("conditions", [])))
    condition = next(c for c in failed["status"]["conditions"] if c["type"] == "Failed")
    assert condition["message"] == "Job has reached the specified backoff limit"
    assert failed["status"]["failed"] == 1
    api.post(jobs, job("late", activeDeadlineSeconds=1))
    late = api.until(f"{jobs}/late", lambda j: any(c["type"] == "Failed" for c in j["status"].get("conditions", [])))
    assert late["status"]["conditions"][0]["reason"] == "DeadlineExceeded"


# Services


def test_endpoints_follow_the_ready_pods(api, ns):
    spec = {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": "http"}]}
    service = api.post(ns + "/services", {"metadata": {"name": "web"}, "spec": spec}).body
    assert service["spec"]["clusterIP"].startswith("127.96.")
    api.post(group(ns, "statefulsets"), stateful_set())
    slices = group(ns, "endpointslices")
    (found,) = api.until(slices, lambda b: b["items"] and b["items"][0]["endpoints"])["items"]
    assert found["endpoints"][0]["addresses"] == ["127.200.0.1"]
    assert found["endpoints"][0]["conditions"] == {"ready": True, "serving": True, "terminating": False}
    assert found["ports"] == [{"port": 8888, "protocol": "TCP"}]
    api.patch(group(ns, "statefulsets") + "/web/scale", {"spec": {"replicas": 0}})
    api.until(slices, lambda b: not b["items"][0]["endpoints"])
    api.delete(ns + "/services/web")
    api.until(slices, lambda b: not b["items"])


def test_two_services_have_two_addresses_and_none_stays_none(api, ns):
    def make(name, **spec):
        body = {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]} | spec}
        return api.post(ns + "/services", body).body["spec"]["clusterIP"]

    assert make("a") != make("b")
    assert make("c", clusterIP="None") == "None"


# Claims


def claim(name="home", size="1Gi", **spec):
    return {
        "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}} | spec,
    }


def test_a_claim_gets_a_volume_of_its_own_and_grows_but_never_shrinks(api, ns):
    path = ns + "/persistentvolumeclaims"
    assert api.post(path, claim()).body["spec"]["storageClassName"] == "standard"
    bound = api.until(f"{path}/home", lambda c: c["status"]["phase"] == "Bound")
    volume = f"/api/v1/persistentvolumes/{bound['spec']['volumeName']}"
    assert api.get(volume).body["spec"]["claimRef"]["uid"] == bound["metadata"]["uid"]
    api.patch(f"{path}/home", {"spec": {"resources": {"requests": {"storage": "2Gi"}}}})
    api.until(f"{path}/home", lambda c: c["status"]["capacity"] == {"storage": "2Gi"})
    shrunk = api.patch(f"{path}/home", {"spec": {"resources": {"requests": {"storage": "1Gi"}}}})
    assert "field can not be less than status.capacity" in shrunk.message
    api.delete(f"{path}/home")
    api.gone(volume)


def test_a_claim_in_use_stays_until_its_pod_is_gone(api, ns):
    path = ns + "/persistentvolumeclaims"
    api.post(path, claim())
    volumes = [{"name": "home", "persistentVolumeClaim": {"claimName": "home"}}]
    api.post(ns + "/pods", pod(spec={"volumes": volumes}))
    api.until(ns + "/pods/p", lambda p: p["status"]["phase"] == "Running")
    assert api.delete(f"{path}/home").body["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
    assert api.get(f"{path}/home").code == 200
    api.delete(ns + "/pods/p")
    api.gone(f"{path}/home")


# Deletions, events, custom resources


def test_foreground_and_orphaning_deletions_are_501_and_delete_nothing(api, ns):
    api.post(ns + "/configmaps", config_map("owner"))
    for policy in ("Foreground", "Orphan"):
        refused = api.delete(ns + "/configmaps/owner", {"propagationPolicy": policy})
        assert (refused.code, f"propagationPolicy {policy}" in refused.message) == (501, True)
    assert api.get(ns + "/configmaps/owner").code == 200


@pytest.fixture
def brief(tmp_path):
    cluster = Cluster(tmp_path, event_ttl_s=1.5)
    yield cluster.client
    cluster.stop()


def test_events_expire(brief):
    ns = "/api/v1/namespaces/default"
    brief.post(ns + "/pods", pod())
    brief.until(ns + "/events", lambda b: b["items"])
    brief.until(ns + "/events", lambda b: not b["items"])


def test_a_custom_resource_is_served_and_goes_with_its_definition(api, ns):
    definition = {
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing", "shortNames": ["th"]},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {"properties": {"name": {"type": "object"}}}},
                }
            ],
        },
    }
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    assert api.post(path, definition).code == 201
    conditions = api.until(f"{path}/things.example.com", lambda d: d.get("status"))["status"]["conditions"]
    assert {c["type"] for c in conditions} >= {"Established", "NamesAccepted"}
    things = f"/apis/example.com/v1/namespaces/{ns.rpartition('/')[2]}/things"
    made = api.post(
        things, {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": {"a": 1}}
    )
    assert made.body["spec"] == {"a": 1}
    api.patch(f"{things}/t/status", {"status": {"done": True}})
    assert api.get(f"{things}/t").body["status"] == {"done": True}
    assert any(r["name"] == "things" for r in api.get("/apis/example.com/v1").body["resources"])
    api.delete(f"{path}/things.example.com")
    assert api.get(things).code == 404
