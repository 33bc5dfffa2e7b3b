"""Lists: pages, selectors by labels and fields, and what is no selector."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from tests.conformance.servers import refusal
from tests.localkube.manifests import pod


@pytest.fixture
def filled(api, ns):
    """Five config maps, in turn even and odd."""
    for number in range(5):
        labels = {"parity": "odd" if number % 2 else "even"}
        api.post(ns / "configmaps", {"metadata": {"name": f"c{number}", "labels": labels}})
    return ns


def names(answer):
    assert answer.code == 200, answer
    return [item["metadata"]["name"] for item in answer.body["items"]]


def test_pages_give_every_object_once_and_the_count_that_is_left(api, filled):
    path = filled / "configmaps?labelSelector=parity&limit=2"
    first = api.get(path).body
    assert first["kind"] == "ConfigMapList"
    seen, token = [item["metadata"]["name"] for item in first["items"]], first["metadata"]["continue"]
    while token:
        page = api.get(f"{path}&continue={quote(token)}").body
        assert page["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
        seen += [item["metadata"]["name"] for item in page["items"]]
        token = page["metadata"].get("continue")
    assert seen == [f"c{number}" for number in range(5)]


def test_items_of_a_list_name_no_kind(api, filled):
    item = api.get(filled / "configmaps?labelSelector=parity").body["items"][0]
    assert ("kind" in item, "apiVersion" in item) == (False, False)


@pytest.mark.parametrize(
    ("selector", "wanted"),
    [
        ("parity=odd", "13"),
        ("parity==odd", "13"),
        ("parity in (odd,even)", "01234"),
        ("parity notin (even),parity", "13"),
        ("parity,parity!=odd", "024"),
        ("parity", "01234"),
        ("parity=odd,parity=even", ""),
    ],
)
def test_label_selectors_select(api, filled, selector, wanted):
    found = names(api.get(filled / f"configmaps?labelSelector={quote(selector)}"))
    assert found == [f"c{number}" for number in wanted]


def test_field_selectors_select(api, filled, node):
    assert names(api.get(filled / "configmaps?fieldSelector=metadata.name%3Dc3")) == ["c3"]
    for name in "ab":
        api.post(filled / "pods", pod(name, spec=node.placement))
    node.runs(filled, "a")
    node.takes(filled, "b")
    assert names(api.get(filled / "pods?fieldSelector=status.phase%3DRunning")) == ["a"]
    assert names(api.get(filled / f"pods?fieldSelector=spec.nodeName%3D{node.name},metadata.name!=a")) == ["b"]


def test_events_are_found_by_the_object_they_are_about(api, ns):
    for name in "ab":
        about = {"kind": "Pod", "name": name, "namespace": ns.name, "apiVersion": "v1"}
        event = {"metadata": {"name": f"e-{name}"}, "involvedObject": about, "reason": "R", "message": "m",
                 "type": "Normal", "source": {"component": "test"}}  # fmt: skip
        assert api.post(ns / "events", event).code == 201
    assert names(api.get(ns / "events?fieldSelector=involvedObject.name%3Da")) == ["e-a"]
    assert names(api.get(ns / "events?fieldSelector=involvedObject.name%3Db,involvedObject.kind%3DPod")) == ["e-b"]


@pytest.mark.parametrize(
    ("query", "refused"),
    [
        ("fieldSelector=spec.foo%3Dbar", (400, "BadRequest", "field label not supported: spec.foo")),
        (
            "labelSelector=a%20b",
            (
                400,
                "BadRequest",
                "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt",
            ),
        ),
    ],
)
def test_what_is_no_selector_is_400(api, ns, query, refused):
    assert refusal(api.get(ns / f"pods?{query}")) == refused


def test_a_token_that_is_none_is_400(server, api, ns):
    code, reason, text = refusal(api.get(ns / "pods?limit=1&continue=abc"))
    whole = "invalid continue token: continue key is not valid: "
    assert (code, reason, text[: len(whole)]) == (400, "BadRequest", whole)
    python = "'utf-8' codec can't decode byte 0xb7 in position 1: invalid start byte"
    go = "invalid character 'i' looking for beginning of value"
    listed = "errors of decoding carry Python's words where Go's would be"
    assert text[len(whole) :] == server.own(listed, localkube=python, kubernetes=go)


def test_a_list_of_all_namespaces_holds_this_ones(api, filled):
    here = f"fieldSelector=metadata.namespace%3D{filled.name}"
    assert names(api.get(f"/api/v1/configmaps?labelSelector=parity%3Dodd&{here}")) == ["c1", "c3"]
