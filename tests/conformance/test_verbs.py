"""Get, create, update, delete: codes, reasons, words, and what is stored afterwards."""

from __future__ import annotations

import uuid

import pytest

from kubekit.credentials import Credentials, parse_kubeconfig
from tests.conformance.servers import Api, Server, refusal
from tests.localkube.manifests import config_map, pod, stateful_set


def test_a_create_answers_the_object_with_uid_version_and_time(api, ns):
    made = api.post(ns / "configmaps", config_map(a="1"))
    assert made.code == 201
    metadata = made.body["metadata"]
    assert uuid.UUID(metadata["uid"])
    assert metadata["resourceVersion"].isdigit()
    assert metadata["creationTimestamp"].endswith("Z")
    assert (made.body["kind"], made.body["apiVersion"]) == ("ConfigMap", "v1")
    assert api.get(ns / "configmaps/c").body == made.body


def test_a_second_create_is_409_already_exists(api, ns):
    api.post(ns / "configmaps", config_map())
    again = api.post(ns / "configmaps", config_map())
    assert refusal(again) == (409, "AlreadyExists", 'configmaps "c" already exists')
    assert again.body["details"] == {"name": "c", "kind": "configmaps"}


def test_a_name_taken_in_another_group_is_told_with_its_group(api, ns):
    api.post(ns.of("apps", "statefulsets"), stateful_set(replicas=0))
    again = api.post(ns.of("apps", "statefulsets"), stateful_set(replicas=0))
    assert refusal(again) == (409, "AlreadyExists", 'statefulsets.apps "web" already exists')
    assert again.body["details"] == {"name": "web", "group": "apps", "kind": "statefulsets"}


def test_generate_name_adds_five_letters(api, ns):
    name = api.post(ns / "configmaps", {"metadata": {"generateName": "run-"}}).body["metadata"]["name"]
    assert name.startswith("run-")
    assert len(name) == 9


@pytest.mark.parametrize(
    ("path", "kind", "text"),
    [
        ("/api/v1/namespaces/default/pods/none", "pods", 'pods "none" not found'),
        ("/apis/apps/v1/namespaces/default/statefulsets/none", "statefulsets", 'statefulsets.apps "none" not found'),
        ("/api/v1/namespaces/nowhere-at-all", "namespaces", 'namespaces "nowhere-at-all" not found'),
        (
            "/apis/scheduling.k8s.io/v1/priorityclasses/none",
            "priorityclasses",
            'priorityclasses.scheduling.k8s.io "none" not found',
        ),
        (
            "/apis/networking.k8s.io/v1/namespaces/default/ingresses/none",
            "ingresses",
            'ingresses.networking.k8s.io "none" not found',
        ),
    ],
)
@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_a_missing_object_is_404_with_the_qualified_resource(api, method, path, kind, text):
    answer = api.request(method, path)
    assert refusal(answer) == (404, "NotFound", text)
    assert answer.body["details"]["kind"] == kind


def test_a_patch_of_what_is_missing_is_404_and_creates_nothing(api, ns):
    answer = api.patch(ns / "configmaps/c", {"data": {"a": "1"}})
    assert refusal(answer) == (404, "NotFound", 'configmaps "c" not found')
    assert refusal(api.put(ns / "pods/p", pod() | {"kind": "Pod", "apiVersion": "v1"}))[0] == 404
    assert api.get(ns / "configmaps/c").code == 404


def test_a_create_in_a_missing_namespace_is_404_of_the_namespace(api):
    answer = api.post("/api/v1/namespaces/nowhere-at-all/configmaps", config_map())
    assert refusal(answer) == (404, "NotFound", 'namespaces "nowhere-at-all" not found')
    assert answer.body["details"]["kind"] == "namespaces"


@pytest.mark.parametrize("name", ["Upper", "a/b", "with space", "中文", 'quo"te', "-a", ""])
def test_names_that_no_kind_allows_are_422(api, ns, name):
    answer = api.post(ns / "configmaps", config_map(name))
    code, reason, _ = refusal(answer)
    assert (code, reason) == (422, "Invalid")
    assert answer.body["details"]["causes"][0]["field"] == "metadata.name"


def test_a_bad_name_is_told_in_words(api, ns):
    rule = (
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
        "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
        "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
    )
    assert refusal(api.post(ns / "configmaps", config_map("Upper"))) == (
        422,
        "Invalid",
        f'ConfigMap "Upper" is invalid: metadata.name: Invalid value: "Upper": {rule}',
    )


def test_a_service_name_of_64_characters_is_422_and_63_is_fine(api, ns):
    def service(name):
        return {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}}

    assert "must be no more than 63 characters" in api.post(ns / "services", service("x" * 64)).message
    assert api.post(ns / "services", service("x" * 63)).code == 201


def test_a_put_with_an_old_version_is_409_and_changes_nothing(api, ns):
    old = api.post(ns / "configmaps", config_map(a="1")).body
    api.patch(ns / "configmaps/c", {"data": {"a": "2"}})
    assert refusal(api.put(ns / "configmaps/c", old)) == (
        409,
        "Conflict",
        'Operation cannot be fulfilled on configmaps "c": the object has been modified; '
        "please apply your changes to the latest version and try again",
    )
    assert api.get(ns / "configmaps/c").body["data"] == {"a": "2"}


def test_an_update_that_changes_nothing_keeps_the_version(api, ns):
    made = api.post(ns / "configmaps", config_map(a="1")).body
    assert api.put(ns / "configmaps/c", made).body == made


def test_a_put_under_another_name_is_400(api, ns):
    api.post(ns / "configmaps", config_map())
    assert refusal(api.put(ns / "configmaps/c", config_map("d"))) == (
        400,
        "BadRequest",
        "the name of the object (d) does not match the name on the URL (c)",
    )


def test_a_delete_answers_success_with_the_uid(api, ns):
    made = api.post(ns / "configmaps", config_map()).body
    answer = api.delete(ns / "configmaps/c")
    assert (answer.code, answer.body) == (
        200,
        {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "details": {"name": "c", "kind": "configmaps", "uid": made["metadata"]["uid"]},
        },
    )
    assert api.get(ns / "configmaps/c").code == 404


def test_a_delete_with_a_wrong_uid_is_409_and_keeps_the_object(api, ns):
    uid = api.post(ns / "configmaps", config_map()).body["metadata"]["uid"]
    answer = api.delete(ns / "configmaps/c", {"preconditions": {"uid": "other"}})
    assert refusal(answer) == (
        409,
        "Conflict",
        'Operation cannot be fulfilled on ConfigMap "c": the UID in the precondition (other) does not match the UID '
        f"in record ({uid}). The object might have been deleted and then recreated",
    )
    assert api.get(ns / "configmaps/c").code == 200
    assert api.delete(ns / "configmaps/c", {"preconditions": {"uid": uid}}).code == 200


def test_a_delete_with_a_wrong_version_is_409_and_keeps_the_object(api, ns):
    version = api.post(ns / "configmaps", config_map()).body["metadata"]["resourceVersion"]
    answer = api.delete(ns / "configmaps/c", {"preconditions": {"resourceVersion": "1"}})
    assert refusal(answer) == (
        409,
        "Conflict",
        'Operation cannot be fulfilled on ConfigMap "c": the ResourceVersion in the precondition (1) does not match '
        f"the ResourceVersion in record ({version}). The object might have been modified",
    )
    assert api.delete(ns / "configmaps/c", {"preconditions": {"resourceVersion": version}}).code == 200


def test_a_finalizer_keeps_a_deleted_object_until_it_is_removed(api, ns):
    api.post(ns / "configmaps", {"metadata": {"name": "c", "finalizers": ["mlportal.io/result"]}})
    deleted = api.delete(ns / "configmaps/c")
    assert (deleted.code, deleted.body["kind"]) == (200, "ConfigMap")
    assert deleted.body["metadata"]["deletionTimestamp"]
    assert api.get(ns / "configmaps/c").code == 200
    freed = api.patch(ns / "configmaps/c", {"metadata": {"finalizers": None}})
    assert (freed.code, freed.body["kind"]) == (200, "ConfigMap")
    assert api.get(ns / "configmaps/c").code == 404


def test_no_finalizer_can_be_added_to_what_is_being_deleted(api, ns):
    api.post(ns / "configmaps", {"metadata": {"name": "c", "finalizers": ["a.b/c"]}})
    api.delete(ns / "configmaps/c")
    answer = api.patch(ns / "configmaps/c", {"metadata": {"finalizers": ["a.b/c", "a.b/d"]}})
    assert refusal(answer) == (
        422,
        "Invalid",
        'ConfigMap "c" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the object is '
        'being deleted, found new finalizers []string{"a.b/d"}',
    )


def test_what_is_being_deleted_takes_no_second_create(api, ns):
    api.post(ns / "configmaps", {"metadata": {"name": "c", "finalizers": ["a.b/c"]}})
    api.delete(ns / "configmaps/c")
    answer = api.post(ns / "configmaps", config_map())
    assert refusal(answer) == (
        409,
        "AlreadyExists",
        'object is being deleted: configmaps "c" already exists',
    )


def test_a_dry_run_answers_the_object_and_stores_nothing(api, ns):
    answer = api.post(ns / "configmaps?dryRun=All", config_map(a="1"))
    assert (answer.code, answer.body["data"]) == (201, {"a": "1"})
    assert "resourceVersion" not in answer.body["metadata"]
    assert api.get(ns / "configmaps/c").code == 404
    api.post(ns / "configmaps", config_map(a="1"))
    assert api.patch(ns / "configmaps/c?dryRun=All", {"data": {"a": "2"}}).body["data"] == {"a": "2"}
    assert api.get(ns / "configmaps/c").body["data"] == {"a": "1"}


def test_the_status_changes_through_its_subresource_alone(api, ns):
    api.post(ns / "pods", pod(spec={"nodeName": "elsewhere"}))
    path = ns / "pods/p"
    api.patch(path, {"status": {"phase": "Failed"}})
    assert api.get(path).body["status"]["phase"] == "Pending"
    api.patch(f"{path}/status", {"status": {"phase": "Failed"}, "spec": {"activeDeadlineSeconds": 7}})
    changed = api.get(path).body
    assert changed["status"]["phase"] == "Failed"
    assert "activeDeadlineSeconds" not in changed["spec"]


def test_a_patch_of_the_status_and_the_labels(server: Server, api, ns):
    path = ns.of("apps", "statefulsets")
    api.post(path, stateful_set(replicas=0))
    patch = {"metadata": {"labels": {"app": "other"}}, "status": {"replicas": 0}}
    changed = api.patch(f"{path}/web/status", patch).body["metadata"]["labels"]
    listed = "A write of the status changes nothing else"
    assert changed == server.own(listed, localkube={"app": "web"}, kubernetes={"app": "other"})


def test_stored_secrets_hold_base64_of_string_data(api, ns):
    made = api.post(ns / "secrets", {"metadata": {"name": "s"}, "stringData": {"key": "abc"}}).body
    assert (made["data"], made["type"]) == ({"key": "YWJj"}, "Opaque")
    assert "stringData" not in made


def test_a_secret_that_is_no_base64_is_400(api, ns):
    code, reason, text = refusal(api.post(ns / "secrets", {"metadata": {"name": "s"}, "data": {"key": "%"}}))
    assert (code, reason) == (400, "BadRequest")
    assert text.startswith('Secret in version "v1" cannot be handled as a Secret: illegal base64 data')


def test_what_no_server_understands_is_refused(api, ns):
    assert refusal(api.post(ns / "configmaps", b"{bad"))[:2] == (400, "BadRequest")
    assert refusal(api.post(ns / "configmaps", pod() | {"kind": "Pod", "apiVersion": "v1"})) == (
        400,
        "BadRequest",
        'Pod in version "v1" cannot be handled as a ConfigMap: converting (v1.Pod) to (core.ConfigMap): '
        "unknown conversion",
    )
    other = config_map() | {"metadata": {"name": "c", "namespace": "other"}}
    assert refusal(api.post(ns / "configmaps", other)) == (
        400,
        "BadRequest",
        "the namespace of the provided object does not match the namespace sent on the request",
    )
    assert refusal(api.post(ns / "configmaps/c", config_map())) == (
        405,
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
    )
    assert api.get("/api/v1/foos").code == 404
    assert api.get("/apis/nobody.example.com/v1/things").code == 404


def test_a_body_over_3_mib_is_413(api, ns):
    code, reason, text = refusal(api.post(ns / "configmaps", config_map(a="x" * (3 * 2**20))))
    assert (code, reason) == (413, "RequestEntityTooLarge")
    assert text == "Request entity too large: limit is 3145728"


def test_a_token_that_the_server_does_not_know_is_401(server: Server):
    known = parse_kubeconfig(server.kubeconfig)
    stranger = Api(Credentials(server=known.server, ca_data=known.ca_data, token="wrong"))
    assert refusal(stranger.get("/api/v1/pods")) == (401, "Unauthorized", "Unauthorized")


def test_the_server_tells_version_groups_and_rights(api):
    version = api.get("/version").body
    assert (version["major"], int(version["minor"]) >= 30) == ("1", True)
    assert api.get("/apis/apps").body["preferredVersion"] == {"groupVersion": "apps/v1", "version": "v1"}
    assert api.get("/apis/nobody.example.com").code == 404
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "create", "group": "", "resource": "pods", "namespace": "default"}},
    }
    answer = api.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
    assert (answer.code, answer.body["status"]["allowed"]) == (201, True)
