"""Creating, reading, changing and deleting objects."""

import pytest

from tests.localkube.manifests import config_map, job, pod, stateful_set

CONFIG = "/configmaps"


def test_a_create_answers_the_object_with_uid_version_and_time(api, ns):
    made = api.post(ns + CONFIG, config_map(a="1"))
    assert made.code == 201
    metadata = made.body["metadata"]
    assert metadata["uid"]
    assert metadata["resourceVersion"].isdigit()
    assert metadata["creationTimestamp"].endswith("Z")
    assert api.get(f"{ns}{CONFIG}/c").body == made.body


def test_a_second_create_is_409_already_exists(api, ns):
    api.post(ns + CONFIG, config_map())
    again = api.post(ns + CONFIG, config_map())
    assert (again.code, again.body["reason"]) == (409, "AlreadyExists")
    assert again.message == 'configmaps "c" already exists'


def test_generate_name_adds_five_letters(api, ns):
    name = api.post(ns + CONFIG, {"metadata": {"generateName": "run-"}}).body["metadata"]["name"]
    assert name.startswith("run-")
    assert len(name) == 9


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/api/v1/namespaces/default/pods/none", 'pods "none" not found'),
        ("/apis/apps/v1/namespaces/default/statefulsets/none", 'statefulsets.apps "none" not found'),
    ],
)
def test_a_missing_object_is_404_with_the_qualified_resource(api, path, text):
    answer = api.get(path)
    assert (answer.code, answer.body["reason"], answer.message) == (404, "NotFound", text)


def test_a_create_in_a_missing_namespace_is_404(api):
    answer = api.post("/api/v1/namespaces/nowhere/configmaps", config_map())
    assert (answer.code, answer.message) == (404, 'namespaces "nowhere" not found')


@pytest.mark.parametrize("name", ["Upper", "a/b", "with space", "中文", 'quo"te', "-a", ""])
def test_names_that_no_kind_allows_are_422(api, ns, name):
    answer = api.post(ns + CONFIG, config_map(name))
    assert (answer.code, answer.body["reason"]) == (422, "Invalid")
    assert answer.body["details"]["causes"][0]["field"] == "metadata.name"


def test_a_service_name_of_64_characters_is_422_and_63_is_fine(api, ns):
    def service(name):
        return {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}}

    refused = api.post(ns + "/services", service("x" * 64))
    assert "must be no more than 63 characters" in refused.message
    assert api.post(ns + "/services", service("x" * 63)).code == 201


def test_a_put_with_an_old_version_is_409_and_changes_nothing(api, ns):
    old = api.post(ns + CONFIG, config_map(a="1")).body
    api.patch(f"{ns}{CONFIG}/c", {"data": {"a": "2"}})
    answer = api.put(f"{ns}{CONFIG}/c", old)
    assert (answer.code, answer.body["reason"]) == (409, "Conflict")
    assert "the object has been modified; please apply your changes to the latest version" in answer.message
    assert api.get(f"{ns}{CONFIG}/c").body["data"] == {"a": "2"}


def test_an_update_that_changes_nothing_keeps_the_version(api, ns):
    made = api.post(ns + CONFIG, config_map(a="1")).body
    assert api.put(f"{ns}{CONFIG}/c", made).body["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


PATHS = [{"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "s", "port": {"number": 80}}}}]


@pytest.mark.parametrize(
    ("group", "plural", "body"),
    [
        ("", "services", {"spec": {"selector": {"a": "b"}, "ports": [{"port": 80, "targetPort": "http"}]}}),
        ("apps", "statefulsets", stateful_set(updateStrategy={"rollingUpdate": {"partition": 0}})),
        ("batch", "jobs", job()),
        ("networking.k8s.io", "ingresses", {"spec": {"rules": [{"host": "a.b", "http": {"paths": PATHS}}]}}),
        ("rbac.authorization.k8s.io", "roles", {"rules": [{"resources": ["pods"], "verbs": ["get"]}]}),
    ],
)
def test_what_was_read_can_be_put_back(api, ns, group, plural, body):
    namespace = ns.rpartition("/")[2]
    path = f"/apis/{group}/v1/namespaces/{namespace}/{plural}" if group else f"{ns}/{plural}"
    assert api.post(path, body | {"metadata": {"name": "x"}}).code == 201
    read = api.get(f"{path}/x").body
    del read["metadata"]["resourceVersion"]  # a controller may have written meanwhile
    assert api.put(f"{path}/x", read).code == 200


def test_a_put_under_another_name_is_400(api, ns):
    api.post(ns + CONFIG, config_map())
    answer = api.put(f"{ns}{CONFIG}/c", config_map("d"))
    assert answer.message == "the name of the object (d) does not match the name on the URL (c)"


def test_delete_answers_success_with_the_uid(api, ns):
    made = api.post(ns + CONFIG, config_map()).body
    answer = api.delete(f"{ns}{CONFIG}/c")
    assert answer.body["status"] == "Success"
    assert answer.body["details"] == {"name": "c", "kind": "configmaps", "uid": made["metadata"]["uid"]}
    assert api.get(f"{ns}{CONFIG}/c").code == 404


@pytest.mark.parametrize(
    ("preconditions", "text"),
    [
        ({"uid": "other"}, "the UID in the precondition (other) does not match the UID in record"),
        ({"resourceVersion": "1"}, "the ResourceVersion in the precondition (1) does not match"),
    ],
)
def test_a_delete_with_a_wrong_precondition_is_409_and_keeps_the_object(api, ns, preconditions, text):
    api.post(ns + CONFIG, config_map())
    answer = api.delete(f"{ns}{CONFIG}/c", {"preconditions": preconditions})
    assert answer.code == 409
    assert text in answer.message
    assert api.get(f"{ns}{CONFIG}/c").code == 200


def test_a_finalizer_keeps_a_deleted_object_until_it_is_removed(api, ns):
    api.post(ns + CONFIG, {"metadata": {"name": "c", "finalizers": ["mlportal.io/result"]}})
    assert api.delete(f"{ns}{CONFIG}/c").body["metadata"]["deletionTimestamp"]
    assert api.get(f"{ns}{CONFIG}/c").code == 200
    api.patch(f"{ns}{CONFIG}/c", {"metadata": {"finalizers": None}})
    assert api.get(f"{ns}{CONFIG}/c").code == 404


def test_no_finalizer_can_be_added_to_what_is_being_deleted(api, ns):
    api.post(ns + CONFIG, {"metadata": {"name": "c", "finalizers": ["a.b/c"]}})
    api.delete(f"{ns}{CONFIG}/c")
    answer = api.patch(f"{ns}{CONFIG}/c", {"metadata": {"finalizers": ["a.b/c", "a.b/d"]}})
    assert answer.code == 422
    assert "no new finalizers can be added if the object is being deleted" in answer.message


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


def test_the_status_changes_through_its_subresource_alone(api, ns):
    api.post(ns + "/pods", pod(annotations={"fake/hold": ""}, spec={"nodeName": "elsewhere"}))
    path = f"{ns}/pods/p"
    api.patch(path, {"status": {"phase": "Failed"}})
    assert api.get(path).body["status"]["phase"] == "Pending"
    api.patch(f"{path}/status", {"status": {"phase": "Failed"}, "metadata": {"labels": {"a": "b"}}})
    changed = api.get(path).body
    assert changed["status"]["phase"] == "Failed"
    assert "labels" not in changed["metadata"]


def test_stored_secrets_hold_base64_of_string_data(api, ns):
    made = api.post(ns + "/secrets", {"metadata": {"name": "s"}, "stringData": {"key": "abc"}}).body
    assert made["data"] == {"key": "YWJj"}
    assert "stringData" not in made
    assert made["type"] == "Opaque"


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


def test_a_body_over_3_mib_is_413(api, ns):
    assert api.post(ns + CONFIG, config_map(a="x" * (3 * 2**20))).code == 413


def test_kinds_wrong_methods_and_bodies_are_refused(api, ns):
    assert api.post(ns + CONFIG, b"{bad").code == 400
    assert api.post(ns + CONFIG, pod() | {"kind": "Pod", "apiVersion": "v1"}).code == 400
    assert api.post(f"{ns}{CONFIG}/c", config_map()).code == 405
    assert api.post(ns + CONFIG, config_map() | {"metadata": {"name": "c", "namespace": "other"}}).code == 400
    assert api.get("/api/v1/foos").code == 404
    assert api.get("/api/v1/pods", Accept="application/vnd.kubernetes.protobuf").code == 406
    assert api.get("/api/v1/pods", Accept="application/json;as=Table;v=v1;g=meta.k8s.io").code == 406
