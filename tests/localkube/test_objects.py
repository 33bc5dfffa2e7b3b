"""Objects, where localkube has more to show than tests/conformance asks of both servers."""

import pytest

from tests.localkube.manifests import config_map, job, pod, stateful_set

CONFIG = "/configmaps"
PATHS = [{"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "s", "port": {"number": 80}}}}]


@pytest.mark.parametrize(
    ("group", "plural", "body"),
    [
        ("", "services", {"spec": {"selector": {"a": "b"}, "ports": [{"port": 80, "targetPort": "http"}]}}),
        ("apps", "statefulsets", stateful_set(updateStrategy={"rollingUpdate": {"partition": 0}})),
        ("batch", "jobs", job()),
        ("networking.k8s.io", "ingresses", {"spec": {"rules": [{"host": "a.b", "http": {"paths": PATHS}}]}}),
        ("networking.k8s.io", "networkpolicies", {"spec": {"podSelector": {}, "policyTypes": ["Egress"]}}),
    ],
)
def test_what_was_read_can_be_put_back(api, ns, group, plural, body):
    namespace = ns.rpartition("/")[2]
    path = f"/apis/{group}/v1/namespaces/{namespace}/{plural}" if group else f"{ns}/{plural}"
    assert api.post(path, body | {"metadata": {"name": "x"}}).code == 201
    read = api.get(f"{path}/x").body
    del read["metadata"]["resourceVersion"]  # a controller may have written meanwhile
    assert api.put(f"{path}/x", read).code == 200


def test_the_deletion_of_a_whole_collection_is_501_and_removes_nothing(api, ns):
    api.post(ns + CONFIG, config_map())
    assert api.delete(ns + CONFIG).code == 501
    assert api.get(f"{ns}{CONFIG}/c").code == 200


def test_a_dry_run_answers_the_object_and_stores_nothing(api, ns):
    answer = api.post(f"{ns}{CONFIG}?dryRun=All", config_map(a="1"))
    assert (answer.code, answer.body["data"]) == (201, {"a": "1"})
    assert "resourceVersion" not in answer.body["metadata"]
    assert api.get(f"{ns}{CONFIG}/c").code == 404
    api.post(ns + CONFIG, config_map(a="1"))
    api.patch(f"{ns}{CONFIG}/c?dryRun=All", {"data": {"a": "2"}})
    assert api.delete(f"{ns}{CONFIG}/c?dryRun=All").code == 501
    assert api.get(f"{ns}{CONFIG}/c").body["data"] == {"a": "1"}


def test_an_immutable_secret_refuses_other_data(api, ns):
    api.post(ns + "/secrets", {"metadata": {"name": "s"}, "immutable": True, "stringData": {"key": "abc"}})
    answer = api.patch(f"{ns}/secrets/s", {"stringData": {"key": "def"}})
    assert answer.message == 'Secret "s" is invalid: data: Forbidden: field is immutable when `immutable` is set'


@pytest.mark.parametrize(
    ("path", "change", "field"),
    [
        (CONFIG, {"foo": 1}, "foo"),
        (CONFIG, {"metadata": {"name": "c", "foo": 1}}, "metadata.foo"),
        ("/services", {"kind": "Service", "data": None, "spec": {"externalIPs": []}}, "spec.externalIPs"),
    ],
)
def test_a_field_that_a_kind_does_not_have_here_is_501_and_stores_nothing(api, ns, path, change, field):
    answer = api.post(ns + path, config_map() | change)
    assert (answer.code, answer.message.partition(" of a ")[0]) == (
        501,
        f"localkube does not implement the field {field}",
    )
    assert api.get(f"{ns}{path}/c").code == 404


@pytest.mark.parametrize(
    ("path", "body", "what"),
    [
        ("/resourcequotas", {"spec": {"hard": {"pods": "1"}, "scopes": ["BestEffort"]}}, "spec.scopes"),
        (
            "/limitranges",
            {"spec": {"limits": [{"type": "Pod", "max": {"cpu": "1"}}]}},
            "limits but those of containers",
        ),
        ("/services", {"spec": {"type": "NodePort", "ports": [{"port": 80}]}}, "services of type NodePort"),
    ],
)
def test_what_would_only_be_stored_is_501(api, ns, path, body, what):
    answer = api.post(ns + path, {"metadata": {"name": "x"}} | body)
    assert (answer.code, what in answer.message) == (501, True)


@pytest.mark.parametrize("subresource", ["attach", "binding", "eviction"])
def test_subresources_that_nobody_needs_are_501(api, ns, subresource):
    api.post(ns + "/pods", pod())
    assert api.post(f"{ns}/pods/p/{subresource}", {}).code == 501


def test_what_the_node_only_stores_warns_and_what_it_cannot_do_is_501(api, ns):
    stored = api.post(ns + "/pods", pod(spec={"hostAliases": [{"ip": "1.2.3.4", "hostnames": ["a"]}]}))
    assert stored.warnings == ['299 - "spec.hostAliases: stored, but localkube does not act on it"']
    refused = api.post(ns + "/pods", pod("q", spec={"hostNetwork": True}))
    assert (refused.code, refused.body["reason"]) == (501, "NotImplemented")
    assert "spec.hostNetwork" in refused.message


@pytest.mark.parametrize("plural", ["deployments", "replicasets", "daemonsets"])
def test_kinds_of_a_real_server_that_are_missing_are_501_with_a_clear_text(api, plural):
    answer = api.get(f"/apis/apps/v1/namespaces/default/{plural}")
    assert (answer.code, answer.body["reason"]) == (501, "NotImplemented")
    assert answer.message.startswith("localkube does not implement")


def test_requests_without_the_token_are_401_and_health_is_open(api):
    for headers in ({"Authorization": ""}, {"Authorization": "Bearer wrong"}):
        answer = api.request("GET", "/api/v1/pods", headers=headers)
        assert (answer.code, answer.body["reason"], answer.message) == (401, "Unauthorized", "Unauthorized")
    for path in ("/livez", "/readyz", "/healthz"):
        assert api.request("GET", path, headers={"Authorization": ""}).body == "ok"


def test_kinds_wrong_methods_and_bodies_are_refused(api, ns):
    assert api.post(ns + CONFIG, b"{bad").code == 400
    assert api.post(ns + CONFIG, pod() | {"kind": "Pod", "apiVersion": "v1"}).code == 400
    assert api.post(f"{ns}{CONFIG}/c", config_map()).code == 405
    assert api.post(ns + CONFIG, config_map() | {"metadata": {"name": "c", "namespace": "other"}}).code == 400
    assert api.get("/api/v1/foos").code == 404
    assert api.get("/api/v1/pods", Accept="application/vnd.kubernetes.protobuf").code == 406
    assert api.get("/api/v1/pods", Accept="application/json;as=Table;v=v1;g=meta.k8s.io").code == 406
