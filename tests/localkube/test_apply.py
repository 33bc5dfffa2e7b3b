"""Applies and patches that are refused; what both servers do alike is in tests/conformance."""

import pytest

from tests.localkube.manifests import config_map


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


def test_a_json_patch_is_501_and_a_patch_of_an_unknown_kind_415(api, ns):
    api.post(ns + "/configmaps", config_map())
    refused = api.patch(f"{ns}/configmaps/c", [], "json-patch")
    assert (refused.code, refused.message) == (501, "localkube does not implement JSON patches (send a merge patch)")
    headers = {"Content-Type": "application/json"}
    assert api.request("PATCH", f"{ns}/configmaps/c", {"data": {}}, headers=headers).code == 415
