"""ResourceQuota with claims that are bound and pods that run; the rest is in tests/conformance."""

from tests.localkube.manifests import pod, stateful_set


def quota(api, ns, name="q", **hard):
    amounts = {key.replace("__", "/").replace("_", "."): value for key, value in hard.items()}
    assert api.post(ns + "/resourcequotas", {"metadata": {"name": name}, "spec": {"hard": amounts}}).code == 201


def used(api, ns, name="q"):
    return api.get(f"{ns}/resourcequotas/{name}").body["status"]["used"]


def claim(name, size):
    return {
        "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}},
    }


def test_storage_is_counted_per_class_and_when_a_claim_grows(api, ns):
    hard = {"requests.storage": "10Gi", "standard.storageclass.storage.k8s.io/requests.storage": "8Gi"}
    api.post(ns + "/resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": hard}})
    assert "requested: requests.storage=20Gi" in api.post(ns + "/persistentvolumeclaims", claim("a", "20Gi")).message
    path = ns + "/persistentvolumeclaims"
    api.post(path, claim("a", "6Gi"))
    api.until(f"{path}/a", lambda c: c["status"]["phase"] == "Bound")
    grown = api.patch(f"{path}/a", {"spec": {"resources": {"requests": {"storage": "9Gi"}}}})
    assert (grown.code, "standard.storageclass.storage.k8s.io/requests.storage=3Gi" in grown.message) == (403, True)
    api.patch(f"{path}/a", {"spec": {"resources": {"requests": {"storage": "8Gi"}}}})
    assert set(used(api, ns).values()) == {"8Gi"}


def test_pods_of_a_stateful_set_meet_the_quota_and_come_when_there_is_room(api, ns):
    namespace = ns.rpartition("/")[2]
    quota(api, ns, pods="1")
    api.post(ns + "/pods", pod("other"))
    sets = f"/apis/apps/v1/namespaces/{namespace}/statefulsets"
    api.post(sets, stateful_set())
    api.until(f"{ns}/events", lambda e: any(i["reason"] == "FailedCreate" for i in e["items"]))
    event = next(i for i in api.get(f"{ns}/events").body["items"] if i["reason"] == "FailedCreate")
    assert event["message"] == (
        'Create Pod web-0 in StatefulSet web failed error: pods "web-0" is forbidden: '
        "exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1"
    )
    api.delete(ns + "/pods/other")
    api.until(f"{sets}/web", lambda s: s["status"].get("readyReplicas") == 1)
