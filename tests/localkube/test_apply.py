"""Server-side apply, its conflicts and ownership, and the three kinds of patch."""

import pytest

from tests.localkube.manifests import config_map, stateful_set


@pytest.fixture
def sets(ns):
    return f"/apis/apps/v1/namespaces/{ns.rpartition('/')[2]}/statefulsets"


def managers(obj):
    return {(entry["manager"], entry["operation"]): entry["fieldsV1"] for entry in obj["metadata"]["managedFields"]}


def test_apply_creates_then_changes_then_changes_nothing(api, sets):
    path = f"{sets}/web"
    made = api.apply(path, stateful_set(replicas=0))
    assert made.code == 201
    again = api.apply(path, stateful_set(replicas=0))
    settled = api.until(path, lambda s: s["status"].get("observedGeneration") == 1)
    assert again.code == 200
    assert again.body["metadata"]["generation"] == 1
    assert (
        api.apply(path, stateful_set(replicas=0)).body["metadata"]["resourceVersion"]
        == settled["metadata"]["resourceVersion"]
    )
    changed = api.apply(path, stateful_set(replicas=2)).body
    assert (changed["spec"]["replicas"], changed["metadata"]["generation"]) == (2, 2)


def test_a_second_manager_gets_409_with_the_field(api, sets):
    api.apply(f"{sets}/web", stateful_set(replicas=1))
    answer = api.apply(f"{sets}/web", stateful_set(replicas=3), manager="other")
    assert (answer.code, answer.body["reason"]) == (409, "Conflict")
    assert answer.message == 'Apply failed with 1 conflict: conflict with "mlportal": .spec.replicas'
    assert answer.body["details"]["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "mlportal"', "field": ".spec.replicas"}
    ]


def test_several_conflicts_are_listed_with_the_keys_of_lists(api, sets):
    api.apply(f"{sets}/web", stateful_set())
    other = stateful_set(replicas=3)
    container = other["spec"]["template"]["spec"]["containers"][0]
    container["image"] = "other:1"
    container["env"][0]["value"] = "c"
    answer = api.apply(f"{sets}/web", other, manager="other")
    assert answer.message.startswith('Apply failed with 3 conflicts: conflicts with "mlportal":\n- .spec.replicas\n')
    assert '- .spec.template.spec.containers[name="main"].env[name="A"].value' in answer.message


def test_force_takes_the_field_over(api, sets):
    api.apply(f"{sets}/web", stateful_set(replicas=1))
    forced = api.apply(f"{sets}/web", {**stateful_set(), "spec": {"replicas": 3}}, manager="other", force=True)
    assert forced.body["spec"]["replicas"] == 3
    owners = managers(forced.body)
    assert "f:replicas" not in owners["mlportal", "Apply"]["f:spec"]
    assert owners["other", "Apply"]["f:spec"] == {"f:replicas": {}}
    back = api.apply(f"{sets}/web", stateful_set(replicas=1))
    assert back.message == 'Apply failed with 1 conflict: conflict with "other": .spec.replicas'


def test_a_field_left_out_of_the_next_apply_goes(api, ns):
    path = f"{ns}/configmaps/c"
    api.apply(path, config_map(a="1", b="2"))
    assert api.apply(path, config_map(a="1")).body["data"] == {"a": "1"}


def test_a_field_that_another_manager_applies_too_stays(api, ns):
    path = f"{ns}/configmaps/c"
    api.apply(path, config_map(a="1", b="2"))
    assert api.apply(path, config_map(b="2"), manager="other").code == 200
    assert api.apply(path, config_map(a="1")).body["data"] == {"a": "1", "b": "2"}


def test_a_container_variable_left_out_goes_and_what_others_set_stays(api, sets):
    path = f"{sets}/web"
    manifest = stateful_set(replicas=0)
    variables = manifest["spec"]["template"]["spec"]["containers"][0]["env"]
    variables.append({"name": "B", "value": "2"})
    api.apply(path, manifest)
    patch = {"spec": {"template": {"spec": {"containers": [{"name": "main", "env": [{"name": "C", "value": "3"}]}]}}}}
    api.patch(path, patch, "strategic-merge-patch")
    del variables[1]
    changed = api.apply(path, manifest).body["spec"]["template"]["spec"]["containers"][0]
    assert {v["name"]: v["value"] for v in changed["env"]} == {"A": "b", "C": "3"}


def test_a_change_by_update_takes_ownership_and_conflicts_by_its_version(api, ns):
    path = f"{ns}/configmaps/c"
    api.apply(path, config_map(a="1"))
    api.patch(f"{path}?fieldManager=edit", {"data": {"a": "2"}})
    answer = api.apply(path, config_map(a="1"))
    assert answer.message == 'Apply failed with 1 conflict: conflict with "edit" using v1: .data.a'


def test_scaling_is_an_update_of_the_replicas_alone(api, sets):
    api.apply(f"{sets}/web", stateful_set(replicas=0))
    scaled = api.patch(f"{sets}/web/scale?fieldManager=kubectl", {"spec": {"replicas": 1}})
    assert (scaled.body["kind"], scaled.body["spec"]) == ("Scale", {"replicas": 1})
    assert scaled.body["status"]["selector"] == "app=web"
    answer = api.apply(f"{sets}/web", stateful_set(replicas=0))
    assert '"kubectl" with subresource "scale" using apps/v1: .spec.replicas' in answer.message


@pytest.mark.parametrize(
    ("change", "query", "code", "text"),
    [
        ({}, "", 422, "fieldManager: Required value: is required for apply patch"),
        ({"metadata": {"name": "other"}}, "?fieldManager=m", 400, "the name of the object (other) does not match"),
        ({"metadata": {"managedFields": [{}]}}, "?fieldManager=m", 400, "metadata.managedFields must be nil"),
        ({"kind": None}, "?fieldManager=m", 400, "invalid object type"),
    ],
)
def test_malformed_applies_are_refused(api, ns, change, query, code, text):
    body = {key: value for key, value in (config_map() | change).items() if value is not None}
    headers = {"Content-Type": "application/apply-patch+yaml"}
    answer = api.request("PATCH", f"{ns}/configmaps/c{query}", body, headers=headers)
    assert answer.code == code
    assert text in answer.message


def test_immutable_fields_of_a_stateful_set_are_422(api, sets):
    api.post(sets, stateful_set(replicas=0))
    answer = api.patch(f"{sets}/web", {"spec": {"serviceName": "other"}})
    assert answer.code == 422
    assert answer.message == (
        'StatefulSet.apps "web" is invalid: spec: Forbidden: updates to statefulset spec for fields other than '
        "'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', "
        "'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
    )


def test_merge_patch_removes_by_null_and_strategic_merge_joins_lists_by_key(api, ns, sets):
    api.post(ns + "/configmaps", config_map(a="1", b="2"))
    assert api.patch(f"{ns}/configmaps/c", {"data": {"b": None}}).body["data"] == {"a": "1"}
    api.post(sets, stateful_set(replicas=0))
    container = {"name": "main", "env": [{"name": "B", "value": "2"}, {"name": "A", "$patch": "delete"}]}
    patch = {"spec": {"template": {"spec": {"containers": [container]}}}}
    merged = api.patch(f"{sets}/web", patch, "strategic-merge-patch").body["spec"]["template"]["spec"]["containers"]
    assert [(c["image"], c["env"]) for c in merged] == [("mlportal/jupyter:1", [{"name": "B", "value": "2"}])]


def test_a_json_patch_is_501_and_a_patch_of_an_unknown_kind_415(api, ns):
    api.post(ns + "/configmaps", config_map())
    refused = api.patch(f"{ns}/configmaps/c", [], "json-patch")
    assert (refused.code, refused.message) == (501, "localkube does not implement JSON patches (send a merge patch)")
    headers = {"Content-Type": "application/json"}
    assert api.request("PATCH", f"{ns}/configmaps/c", {"data": {}}, headers=headers).code == 415
