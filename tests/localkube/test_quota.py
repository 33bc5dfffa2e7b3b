"""ResourceQuota, LimitRange and priority classes: the refusals' texts, and that nothing is counted wrongly."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.localkube.manifests import asks, config_map, pod, stateful_set


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


def test_what_exceeds_a_quota_is_403_with_all_the_numbers(api, ns):
    quota(api, ns, requests_cpu="1", limits_memory="1Gi")
    answer = api.post(ns + "/pods", pod(resources=asks("2", "2Gi")))
    assert (answer.code, answer.body["reason"]) == (403, "Forbidden")
    assert answer.message == (
        'pods "p" is forbidden: exceeded quota: q, requested: limits.memory=2Gi,requests.cpu=2, '
        "used: limits.memory=0,requests.cpu=0, limited: limits.memory=1Gi,requests.cpu=1"
    )


def test_a_pod_that_states_nothing_must_specify(api, ns):
    quota(api, ns, requests_cpu="1", limits_memory="1Gi")
    text = 'pods "p" is forbidden: failed quota: q: must specify limits.memory for: main; requests.cpu for: main'
    assert api.post(ns + "/pods", pod()).message == text


def test_used_is_right_in_the_answer_after_the_create(api, ns):
    quota(api, ns, pods="3", requests_cpu="1")
    assert used(api, ns) == {"pods": "0", "requests.cpu": "0"}
    api.post(ns + "/pods", pod(resources=asks("250m")))
    assert used(api, ns) == {"pods": "1", "requests.cpu": "250m"}
    api.delete(ns + "/pods/p")
    api.gone(ns + "/pods/p")
    assert used(api, ns) == {"pods": "0", "requests.cpu": "0"}


def test_an_ended_pod_gives_everything_back_but_its_count(api, cluster, ns):
    namespace = ns.rpartition("/")[2]
    quota(api, ns, pods="1", count__pods="2", requests_cpu="1")
    api.post(ns + "/pods", pod("a", resources=asks("1")))
    cluster.call(cluster.node.end, namespace, "a", 0)
    assert used(api, ns) == {"count/pods": "1", "pods": "0", "requests.cpu": "0"}
    assert api.post(ns + "/pods", pod("b", resources=asks("1"))).code == 201
    assert "requested: count/pods=1" in api.post(ns + "/pods", pod("c", resources=asks("1"))).message


def test_a_create_that_is_a_409_charges_nothing(api, ns):
    """A real server charges it until its controller recounts (docs/localkube.md lists this difference)."""
    quota(api, ns, pods="3")
    api.post(ns + "/pods", pod())
    assert [api.post(ns + "/pods", pod()).code for _ in range(3)] == [409, 409, 409]
    assert used(api, ns) == {"pods": "1"}


def test_of_fifty_creates_at_once_exactly_as_many_pass_as_the_quota_has(api, ns):
    quota(api, ns, pods="10")
    with ThreadPoolExecutor(16) as threads:
        codes = list(threads.map(lambda n: api.post(ns + "/pods", pod(f"p{n}")).code, range(50)))
    assert sorted(codes) == [201] * 10 + [403] * 40
    assert used(api, ns) == {"pods": "10"}


def test_extended_resources_count_by_their_request_and_other_keys_never(api, ns):
    spec = {"requests.nvidia.com/gpu": "1", "limits.nvidia.com/gpu": "1", "nvidia.com/gpu": "1"}
    api.post(ns + "/resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": spec}})
    assert used(api, ns) == {"requests.nvidia.com/gpu": "0"}
    gpu = {"limits": {"nvidia.com/gpu": "1"}}
    assert api.post(ns + "/pods", pod("a", resources=gpu)).code == 201
    refused = api.post(ns + "/pods", pod("b", resources=gpu))
    assert refused.message.endswith(
        "exceeded quota: q, requested: requests.nvidia.com/gpu=1, used: requests.nvidia.com/gpu=1, "
        "limited: requests.nvidia.com/gpu=1"
    )


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


def test_lowering_a_quota_keeps_what_runs_and_refuses_the_next(api, ns):
    quota(api, ns, pods="2")
    for name in "ab":
        api.post(ns + "/pods", pod(name))
    api.patch(ns + "/resourcequotas/q", {"spec": {"hard": {"pods": "1"}}})
    assert api.get(ns + "/resourcequotas/q").body["status"] == {"hard": {"pods": "1"}, "used": {"pods": "2"}}
    assert "used: pods=2, limited: pods=1" in api.post(ns + "/pods", pod("c")).message


def test_a_dry_run_meets_the_quota_and_charges_nothing(api, ns):
    quota(api, ns, pods="1")
    assert api.post(ns + "/pods?dryRun=All", pod()).code == 201
    assert used(api, ns) == {"pods": "0"}
    api.post(ns + "/pods", pod("a"))
    assert api.post(ns + "/pods?dryRun=All", pod()).code == 403


def test_count_keys_count_objects_of_any_kind(api, ns):
    api.post(
        ns + "/resourcequotas",
        {"metadata": {"name": "q"}, "spec": {"hard": {"count/statefulsets.apps": "1", "configmaps": "1"}}},
    )
    api.post(ns + "/configmaps", config_map())
    assert used(api, ns) == {"configmaps": "1", "count/statefulsets.apps": "0"}
    assert "exceeded quota: q, requested: configmaps=1" in api.post(ns + "/configmaps", config_map("d")).message


def test_a_quota_made_after_its_objects_counts_them(api, ns):
    api.post(ns + "/pods", pod(resources=asks("500m")))
    quota(api, ns, pods="5", requests_cpu="2")
    assert used(api, ns) == {"pods": "1", "requests.cpu": "500m"}


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


def test_a_limit_range_gives_defaults_and_refuses_what_is_over_its_maximum(api, ns):
    item = {
        "type": "Container",
        "default": {"cpu": "200m"},
        "defaultRequest": {"cpu": "100m"},
        "max": {"memory": "1Gi"},
    }
    api.post(ns + "/limitranges", {"metadata": {"name": "l"}, "spec": {"limits": [item]}})
    made = api.post(ns + "/pods", pod()).body
    assert made["spec"]["containers"][0]["resources"] == {
        "limits": {"cpu": "200m", "memory": "1Gi"},
        "requests": {"cpu": "100m", "memory": "1Gi"},
    }
    refused = api.post(ns + "/pods", pod("q", resources=asks("1", "2Gi")))
    assert refused.message == 'pods "q" is forbidden: maximum memory usage per Container is 1Gi, but limit is 2Gi'


def test_a_priority_class_becomes_a_number_and_a_missing_one_is_403(api, ns):
    api.post("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "low"}, "value": -5})
    assert api.post(ns + "/pods", pod(spec={"priorityClassName": "low"})).body["spec"]["priority"] == -5
    answer = api.post(ns + "/pods", pod("q", spec={"priorityClassName": "zz"}))
    assert answer.message == 'pods "q" is forbidden: no PriorityClass with name zz was found'


@pytest.mark.parametrize(
    ("resources", "text"),
    [
        ({"requests": {"nvidia.com/gpu": "1"}}, "Limit must be set for non overcommitable resources"),
        ({"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}, "must be less than or equal to cpu limit of 1"),
        ({"limits": {"nvidia.com/gpu": "1.5"}}, "must be an integer"),
    ],
)
def test_resources_that_contradict_themselves_are_422(api, ns, resources, text):
    answer = api.post(ns + "/pods", pod(resources=resources))
    assert answer.code == 422
    assert text in answer.message
