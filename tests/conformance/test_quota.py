"""ResourceQuota: the words of each refusal, and what is counted as used."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.conformance.servers import LOCALKUBE, PATIENCE_S, Api, Server, Space, refusal
from tests.localkube.manifests import asks, config_map, pod, stateful_set

GPU = "nvidia.com/gpu"


def give(api: Api, ns: Space, **hard: str) -> None:
    """A quota `q` that counts: ``requests_cpu="1"``, ``count__pods="2"``."""
    amounts = {key.replace("__", "/").replace("_", "."): value for key, value in hard.items()}
    give_exactly(api, ns, amounts)


def give_exactly(api: Api, ns: Space, hard: dict[str, str]) -> None:
    assert api.post(ns / "resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": hard}}).code == 201
    api.until(ns / "resourcequotas/q", lambda q: q["status"].get("hard") == hard and "used" in q["status"])


def used(api: Api, ns: Space, wanted: dict[str, str]) -> None:
    """Wait for the figures: a real server's controller counts what went in its own time."""
    api.until(ns / "resourcequotas/q", lambda q: q["status"]["used"] == wanted)


def claim(name, size, **spec):
    resources = {"requests": {"storage": size}}
    return {"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": resources} | spec}


def test_what_exceeds_a_quota_is_403_with_all_the_numbers(api, ns):
    give(api, ns, requests_cpu="1", limits_memory="1Gi")
    assert refusal(api.post(ns / "pods", pod(resources=asks("2", "2Gi")))) == (
        403,
        "Forbidden",
        'pods "p" is forbidden: exceeded quota: q, requested: limits.memory=2Gi,requests.cpu=2, '
        "used: limits.memory=0,requests.cpu=0, limited: limits.memory=1Gi,requests.cpu=1",
    )


def test_a_pod_that_states_nothing_must_specify(api, ns):
    give(api, ns, requests_cpu="1", limits_memory="1Gi")
    text = 'pods "p" is forbidden: failed quota: q: must specify limits.memory for: main; requests.cpu for: main'
    assert refusal(api.post(ns / "pods", pod())) == (403, "Forbidden", text)


def test_a_create_is_used_in_the_next_answer_and_a_deletion_gives_it_back(api, ns):
    give(api, ns, pods="3", requests_cpu="1")
    api.post(ns / "pods", pod(resources=asks("250m")))
    assert api.get(ns / "resourcequotas/q").body["status"]["used"] == {"pods": "1", "requests.cpu": "250m"}
    api.delete(ns / "pods/p", {"gracePeriodSeconds": 0})
    api.gone(ns / "pods/p")
    used(api, ns, {"pods": "0", "requests.cpu": "0"})


def test_an_ended_pod_gives_everything_back_but_its_count(api, ns, node):
    give(api, ns, pods="1", count__pods="2", requests_cpu="1")
    api.post(ns / "pods", pod("a", resources=asks("1"), spec=node.placement))
    node.ends(ns, "a", 0)
    used(api, ns, {"count/pods": "1", "pods": "0", "requests.cpu": "0"})
    assert api.post(ns / "pods", pod("b", resources=asks("1"))).code == 201
    assert "requested: count/pods=1" in refusal(api.post(ns / "pods", pod("c", resources=asks("1"))))[2]


def test_a_create_that_ends_as_409_charges_a_real_quota(server: Server, api, ns):
    """The reason why the portal reads before it repeats a create."""
    give(api, ns, pods="3")
    codes = [api.post(ns / "pods", pod()).code for _ in range(4)]
    listed = "A create that ends as 409 charges no quota"
    assert codes == server.own(listed, localkube=[201, 409, 409, 409], kubernetes=[201, 409, 409, 403])
    if server.kind == LOCALKUBE:
        used(api, ns, {"pods": "1"})
    else:
        assert api.get(ns / "resourcequotas/q").body["status"]["used"] == {"pods": "3"}


def test_of_many_creates_at_once_exactly_as_many_pass_as_the_quota_has(api, ns):
    give(api, ns, pods="5")
    with ThreadPoolExecutor(8) as threads:
        codes = list(threads.map(lambda n: api.post(ns / "pods", pod(f"p{n}")).code, range(20)))
    assert sorted(codes) == [201] * 5 + [403] * 15
    used(api, ns, {"pods": "5"})


def test_gpus_count_by_their_request_and_other_keys_never(api, ns):
    hard = {f"requests.{GPU}": "1", f"limits.{GPU}": "1", GPU: "1"}
    api.post(ns / "resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": hard}})
    api.until(ns / "resourcequotas/q", lambda q: q["status"].get("used") == {f"requests.{GPU}": "0"})
    assert api.post(ns / "pods", pod("a", resources={"limits": {GPU: "1"}})).code == 201
    assert refusal(api.post(ns / "pods", pod("b", resources={"limits": {GPU: "1"}})))[2] == (
        f'pods "b" is forbidden: exceeded quota: q, requested: requests.{GPU}=1, used: requests.{GPU}=1, '
        f"limited: requests.{GPU}=1"
    )


def test_storage_is_counted_when_it_is_asked_for(api, ns):
    give(api, ns, requests_storage="10Gi", persistentvolumeclaims="1")
    path = ns / "persistentvolumeclaims"
    assert refusal(api.post(path, claim("a", "20Gi", storageClassName="nobody-has-it"))) == (
        403,
        "Forbidden",
        'persistentvolumeclaims "a" is forbidden: exceeded quota: q, requested: requests.storage=20Gi, '
        "used: requests.storage=0, limited: requests.storage=10Gi",
    )
    api.post(path, claim("a", "6Gi", storageClassName="nobody-has-it"))
    used(api, ns, {"requests.storage": "6Gi", "persistentvolumeclaims": "1"})
    assert refusal(api.post(path, claim("b", "1Gi", storageClassName="nobody-has-it")))[2].endswith(
        "exceeded quota: q, requested: persistentvolumeclaims=1, used: persistentvolumeclaims=1, "
        "limited: persistentvolumeclaims=1"
    )


def test_storage_is_counted_per_class(api, ns):
    key = "gold.storageclass.storage.k8s.io/requests.storage"
    give_exactly(api, ns, {key: "8Gi"})
    path = ns / "persistentvolumeclaims"
    assert (
        f"requested: {key}=9Gi, used: {key}=0" in refusal(api.post(path, claim("a", "9Gi", storageClassName="gold")))[2]
    )
    assert api.post(path, claim("b", "9Gi", storageClassName="silver")).code == 201
    used(api, ns, {key: "0"})


def test_lowering_a_quota_keeps_what_runs_and_refuses_the_next(api, ns):
    give(api, ns, pods="2")
    for name in "ab":
        api.post(ns / "pods", pod(name))
    api.patch(ns / "resourcequotas/q", {"spec": {"hard": {"pods": "1"}}})
    api.until(ns / "resourcequotas/q", lambda q: q["status"] == {"hard": {"pods": "1"}, "used": {"pods": "2"}})
    text = 'pods "c" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods='
    deadline = time.monotonic() + PATIENCE_S
    while (told := refusal(api.post(ns / "pods", pod("c")))[2]) != f"{text}1":
        assert told == f"{text}2"  # what admission remembers is a moment old
        assert time.monotonic() < deadline


def test_a_dry_run_meets_the_quota_and_charges_nothing(api, ns):
    give(api, ns, pods="1")
    assert api.post(ns / "pods?dryRun=All", pod()).code == 201
    assert api.get(ns / "resourcequotas/q").body["status"]["used"] == {"pods": "0"}
    api.post(ns / "pods", pod("a"))
    assert refusal(api.post(ns / "pods?dryRun=All", pod()))[:2] == (403, "Forbidden")


def test_count_keys_count_objects_of_any_kind(api, ns):
    give_exactly(api, ns, {"count/statefulsets.apps": "1", "count/secrets": "1"})
    api.post(ns / "secrets", {"metadata": {"name": "s"}})
    used(api, ns, {"count/statefulsets.apps": "0", "count/secrets": "1"})
    assert refusal(api.post(ns / "secrets", {"metadata": {"name": "t"}}))[2] == (
        'secrets "t" is forbidden: exceeded quota: q, requested: count/secrets=1, used: count/secrets=1, '
        "limited: count/secrets=1"
    )
    api.post(ns.of("apps", "statefulsets"), stateful_set(replicas=0))
    assert refusal(api.post(ns.of("apps", "statefulsets"), stateful_set("other", replicas=0)))[2].startswith(
        'statefulsets.apps "other" is forbidden: exceeded quota: q, requested: count/statefulsets.apps=1'
    )


def test_a_quota_made_after_its_objects_counts_them(api, ns):
    api.post(ns / "pods", pod(resources=asks("500m")))
    give(api, ns, pods="5", requests_cpu="2")
    used(api, ns, {"pods": "1", "requests.cpu": "500m"})


def test_a_second_quota_of_a_namespace_binds_too(api, ns):
    give(api, ns, pods="5")
    api.post(ns / "resourcequotas", {"metadata": {"name": "z"}, "spec": {"hard": {"pods": "0"}}})
    api.until(ns / "resourcequotas/z", lambda q: "used" in q["status"])
    assert refusal(api.post(ns / "pods", pod()))[2] == (
        'pods "p" is forbidden: exceeded quota: z, requested: pods=1, used: pods=0, limited: pods=0'
    )


def test_pods_of_a_stateful_set_meet_the_quota_and_the_event_has_its_words(api, ns):
    give(api, ns, pods="1")
    api.post(ns / "pods", pod("other"))
    api.post(ns.of("apps", "statefulsets"), stateful_set())
    events = api.until(ns / "events?fieldSelector=reason%3DFailedCreate", lambda e: e["items"])["items"]
    assert (events[0]["type"], events[0]["involvedObject"]["kind"]) == ("Warning", "StatefulSet")
    assert events[0]["message"] == (
        'Create Pod web-0 in StatefulSet web failed error: pods "web-0" is forbidden: '
        "exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1"
    )
    api.delete(ns / "pods/other", {"gracePeriodSeconds": 0})
    api.until(ns / "pods/web-0", lambda _: True)


@pytest.mark.parametrize("amount", ["-1", "many"])
def test_a_quota_of_no_amount_is_refused(api, ns, amount):
    answer = api.post(ns / "resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": {"pods": amount}}})
    assert answer.code in (400, 422)
    assert api.post(ns / "configmaps", config_map()).code == 201
