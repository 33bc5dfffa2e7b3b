"""Merge patches, strategic merge patches, and server-side apply with its conflicts and ownership."""

from __future__ import annotations

import pytest

from tests.conformance.servers import Api, refusal
from tests.localkube.manifests import config_map, stateful_set

APPLY = {"Content-Type": "application/apply-patch+yaml"}
ANOTHER = "6f1d6f5e-3c3a-4a51-9df0-0a6f6f0d5a11"
MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


@pytest.fixture
def sets(ns):
    return ns.of("apps", "statefulsets")


def managers(obj):
    return {(entry["manager"], entry["operation"]): entry["fieldsV1"] for entry in obj["metadata"]["managedFields"]}


# Merge patches


def test_a_merge_patch_sets_and_removes_by_null(api, ns):
    api.post(ns / "configmaps", config_map(a="1", b="2"))
    changed = api.patch(ns / "configmaps/c", {"data": {"b": None, "c": "3"}})
    assert (changed.code, changed.body["data"]) == (200, {"a": "1", "c": "3"})


def test_a_merge_patch_replaces_whole_lists(api, sets):
    api.post(sets, stateful_set(replicas=0))
    container = {"name": "main", "image": "other:1"}
    changed = api.patch(f"{sets}/web", {"spec": {"template": {"spec": {"containers": [container]}}}}).body
    (now,) = changed["spec"]["template"]["spec"]["containers"]
    assert (now["image"], "env" in now) == ("other:1", False)


def test_a_merge_patch_with_an_old_version_is_409_and_changes_nothing(api, ns):
    made = api.post(ns / "configmaps", config_map(a="1")).body
    answer = api.patch(ns / "configmaps/c", {"metadata": {"resourceVersion": "1"}, "data": {"a": "2"}})
    assert refusal(answer) == (409, "Conflict", f'Operation cannot be fulfilled on configmaps "c": {MODIFIED}')
    assert api.get(ns / "configmaps/c").body == made
    right = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "data": {"a": "2"}}
    assert api.patch(ns / "configmaps/c", right).body["data"] == {"a": "2"}


@pytest.mark.parametrize("send", [Api.patch, Api.apply])
def test_a_patch_for_another_uid_is_422_and_changes_nothing(api, ns, send):
    made = api.apply(ns / "configmaps/c", config_map(a="1")).body
    answer = send(api, ns / "configmaps/c", config_map(a="2") | {"metadata": {"name": "c", "uid": ANOTHER}})
    text = f'ConfigMap "c" is invalid: metadata.uid: Invalid value: "{ANOTHER}": field is immutable'
    assert refusal(answer) == (422, "Invalid", text)
    assert api.get(ns / "configmaps/c").body == made
    right = config_map(a="2") | {"metadata": {"name": "c", "uid": made["metadata"]["uid"]}}
    assert api.patch(ns / "configmaps/c", right).body["data"] == {"a": "2"}


def test_an_apply_for_a_uid_that_is_gone_creates_nothing(api, ns):
    answer = api.apply(ns / "configmaps/c", config_map(a="2") | {"metadata": {"name": "c", "uid": ANOTHER}})
    assert refusal(answer) == (
        409,
        "Conflict",
        f'Operation cannot be fulfilled on configmaps "c": uid mismatch: the provided object specified uid {ANOTHER}, '
        "and no existing object was found",
    )
    assert api.get(ns / "configmaps/c").code == 404


def test_a_merge_patch_that_changes_nothing_keeps_the_version(api, ns):
    made = api.post(ns / "configmaps", config_map(a="1")).body
    again = api.patch(ns / "configmaps/c", {"data": {"a": "1"}})
    assert (again.code, again.body["metadata"]["resourceVersion"]) == (200, made["metadata"]["resourceVersion"])


def test_a_patch_of_an_unknown_type_is_415(api, ns):
    api.post(ns / "configmaps", config_map())
    answer = api.request("PATCH", ns / "configmaps/c", {"data": {}}, headers={"Content-Type": "application/json"})
    assert (answer.code, answer.body["reason"]) == (415, "UnsupportedMediaType")


# Strategic merge patches, as `kubectl` sends them


def test_a_strategic_merge_joins_containers_and_variables_by_name(api, sets):
    api.post(sets, stateful_set(replicas=0))
    container = {"name": "main", "env": [{"name": "B", "value": "2"}, {"name": "A", "$patch": "delete"}]}
    patch = {"spec": {"template": {"spec": {"containers": [container]}}}}
    merged = api.patch(f"{sets}/web", patch, "strategic-merge-patch").body["spec"]["template"]["spec"]["containers"]
    assert [(c["image"], c["env"]) for c in merged] == [("mlportal/jupyter:1", [{"name": "B", "value": "2"}])]


def test_a_strategic_merge_of_conditions_goes_by_their_type(api, ns):
    api.post(ns / "pods", {"metadata": {"name": "p"}, "spec": {"nodeName": "elsewhere", "containers": [
        {"name": "main", "image": "x"}]}})  # fmt: skip
    for kind in ("Ready", "Initialized"):
        patch = {"status": {"conditions": [{"type": kind, "status": "True"}]}}
        answer = api.patch(ns / "pods/p/status", patch, "strategic-merge-patch")
        assert answer.code == 200
    assert {c["type"] for c in answer.body["status"]["conditions"]} >= {"Ready", "Initialized"}


def test_a_strategic_merge_of_finalizers_adds(api, ns):
    api.post(ns / "configmaps", {"metadata": {"name": "c", "finalizers": ["a.b/c"]}})
    patch = {"metadata": {"finalizers": ["a.b/d"]}}
    merged = api.patch(ns / "configmaps/c", patch, "strategic-merge-patch").body["metadata"]["finalizers"]
    assert set(merged) == {"a.b/c", "a.b/d"}
    patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a.b/c", "a.b/d"]}}
    assert api.patch(ns / "configmaps/c", patch, "strategic-merge-patch").code == 200
    assert "finalizers" not in api.get(ns / "configmaps/c").body["metadata"]


# Server-side apply


def test_apply_creates_then_changes_then_changes_nothing(api, sets):
    path = f"{sets}/web"
    assert api.apply(path, stateful_set(replicas=0)).code == 201
    again = api.apply(path, stateful_set(replicas=0))
    assert (again.code, again.body["metadata"]["generation"]) == (200, 1)
    settled = api.until(path, lambda s: s["status"].get("observedGeneration") == 1)
    unchanged = api.apply(path, stateful_set(replicas=0)).body
    assert unchanged["metadata"]["resourceVersion"] == settled["metadata"]["resourceVersion"]
    changed = api.apply(path, {**stateful_set(replicas=0), "metadata": {"name": "web", "labels": {"a": "b"}}}).body
    assert (changed["metadata"]["labels"], changed["metadata"]["generation"]) == ({"a": "b"}, 1)


def test_a_second_manager_gets_409_with_the_field(api, sets):
    api.apply(f"{sets}/web", stateful_set(replicas=0))
    other = stateful_set(replicas=0)
    other["spec"]["template"]["spec"]["containers"][0]["image"] = "other:1"
    answer = api.apply(f"{sets}/web", other, manager="other")
    field = '.spec.template.spec.containers[name="main"].image'
    assert refusal(answer) == (
        409,
        "Conflict",
        f'Apply failed with 1 conflict: conflict with "mlportal": {field}',
    )
    assert answer.body["details"]["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "mlportal"', "field": field}
    ]


def test_several_conflicts_are_listed_with_the_keys_of_lists(api, sets):
    api.apply(f"{sets}/web", stateful_set(replicas=0))
    other = stateful_set(replicas=3)
    container = other["spec"]["template"]["spec"]["containers"][0]
    container["image"] = "other:1"
    container["env"][0]["value"] = "c"
    assert refusal(api.apply(f"{sets}/web", other, manager="other"))[2] == (
        'Apply failed with 3 conflicts: conflicts with "mlportal":\n'
        "- .spec.replicas\n"
        '- .spec.template.spec.containers[name="main"].image\n'
        '- .spec.template.spec.containers[name="main"].env[name="A"].value'
    )


def test_force_takes_the_field_over(api, ns):
    path = ns / "configmaps/c"
    api.apply(path, config_map(a="1", b="1"))
    assert refusal(api.apply(path, config_map(b="2"), manager="other"))[2] == (
        'Apply failed with 1 conflict: conflict with "mlportal": .data.b'
    )
    forced = api.apply(path, config_map(b="2"), manager="other", force=True).body
    assert forced["data"] == {"a": "1", "b": "2"}
    assert managers(forced) == {
        ("mlportal", "Apply"): {"f:data": {"f:a": {}}},
        ("other", "Apply"): {"f:data": {"f:b": {}}},
    }
    assert refusal(api.apply(path, config_map(a="1", b="1")))[2] == (
        'Apply failed with 1 conflict: conflict with "other": .data.b'
    )
    assert api.apply(path, config_map(a="1", b="1"), force=True).body["data"] == {"a": "1", "b": "1"}


def test_a_field_left_out_of_the_next_apply_goes(api, ns):
    api.apply(ns / "configmaps/c", config_map(a="1", b="2"))
    assert api.apply(ns / "configmaps/c", config_map(a="1")).body["data"] == {"a": "1"}


def test_a_field_that_another_manager_applies_too_stays(api, ns):
    path = ns / "configmaps/c"
    api.apply(path, config_map(a="1", b="2"))
    assert api.apply(path, config_map(b="2"), manager="other").code == 200
    assert api.apply(path, config_map(a="1")).body["data"] == {"a": "1", "b": "2"}


def test_a_variable_left_out_goes_and_what_others_set_stays(api, sets):
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
    path = ns / "configmaps/c"
    api.apply(path, config_map(a="1"))
    api.patch(f"{path}?fieldManager=edit", {"data": {"a": "2"}})
    assert refusal(api.apply(path, config_map(a="1"))) == (
        409,
        "Conflict",
        'Apply failed with 1 conflict: conflict with "edit" using v1: .data.a',
    )


def test_scaling_is_an_update_of_the_replicas_alone(api, sets):
    api.apply(f"{sets}/web", stateful_set(replicas=0))
    scaled = api.patch(f"{sets}/web/scale?fieldManager=mlportal", {"spec": {"replicas": 1}})
    assert (scaled.body["kind"], scaled.body["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert (scaled.body["spec"], scaled.body["status"]["selector"]) == ({"replicas": 1}, "app=web")
    assert refusal(api.apply(f"{sets}/web", stateful_set(replicas=0)))[2] == (
        'Apply failed with 1 conflict: conflict with "mlportal" with subresource "scale" using apps/v1: .spec.replicas'
    )
    assert api.apply(f"{sets}/web", stateful_set(replicas=0), force=True).body["spec"]["replicas"] == 0


def test_scaling_to_nothing_leaves_the_replicas_to_nobody(api, sets):
    api.apply(f"{sets}/web", stateful_set(replicas=1))
    scaled = api.patch(f"{sets}/web/scale?fieldManager=other", {"spec": {"replicas": 0}})
    assert scaled.body["spec"] == {}
    found = managers(api.get(f"{sets}/web").body)
    assert ("other", "Update") not in found
    assert "f:replicas" not in found["mlportal", "Apply"]["f:spec"]
    assert api.apply(f"{sets}/web", stateful_set(replicas=1)).body["spec"]["replicas"] == 1


@pytest.mark.parametrize(
    ("change", "query", "refused"),
    [
        (
            {},
            "",
            (
                422,
                "Invalid",
                'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch',
            ),
        ),
        (
            {"metadata": {"name": "other"}},
            "?fieldManager=m",
            (400, "BadRequest", "the name of the object (other) does not match the name on the URL (c)"),
        ),
        (
            {"metadata": {"managedFields": [{}]}},
            "?fieldManager=m",
            (400, "BadRequest", "metadata.managedFields must be nil"),
        ),
    ],
)
def test_malformed_applies_are_refused(api, ns, change, query, refused):
    answer = api.request("PATCH", ns / f"configmaps/c{query}", config_map() | change, headers=APPLY)
    assert refusal(answer) == refused


def test_an_apply_that_creates_asks_for_no_version(api, ns):
    wanted = config_map(a="1") | {"metadata": {"name": "c", "resourceVersion": "1"}}
    made = api.apply(ns / "configmaps/c", wanted)
    assert (made.code, made.body["data"]) == (201, {"a": "1"})
    assert refusal(api.apply(ns / "configmaps/c", wanted))[:2] == (409, "Conflict")


def test_an_apply_in_a_dry_run_stores_nothing(api, ns):
    answer = api.apply(ns / "configmaps/c", config_map(a="1"))
    dry = api.request("PATCH", ns / "configmaps/c?fieldManager=mlportal&dryRun=All", config_map(a="2"), headers=APPLY)
    assert (answer.code, dry.code, dry.body["data"]) == (201, 200, {"a": "2"})
    assert api.get(ns / "configmaps/c").body["data"] == {"a": "1"}
