"""Watches: what they tell, and every way in which they end."""

from __future__ import annotations

import time

import pytest

from tests.conformance.servers import LOCALKUBE, Server, new_name, refusal
from tests.localkube.manifests import config_map


def names(events):
    return [(kind, obj["metadata"].get("name")) for kind, obj in events]


def version(api, ns):
    return api.get(ns / "configmaps?labelSelector=w").body["metadata"]["resourceVersion"]


def labelled(name="c", parity="even"):
    return {"metadata": {"name": name, "labels": {"w": "1", "parity": parity}}}


def test_a_watch_from_a_list_sees_every_change_in_order_and_ends_in_time(api, ns):
    since = version(api, ns)
    api.post(ns / "configmaps", labelled())
    api.patch(ns / "configmaps/c", {"data": {"a": "2"}})
    api.delete(ns / "configmaps/c")
    began = time.monotonic()
    events = api.watch(ns / f"configmaps?watch=1&labelSelector=w&resourceVersion={since}&timeoutSeconds=1")
    assert time.monotonic() - began >= 0.9
    assert names(events) == [("ADDED", "c"), ("MODIFIED", "c"), ("DELETED", "c")]
    versions = [int(obj["metadata"]["resourceVersion"]) for _, obj in events]
    assert versions == sorted(set(versions))
    assert versions[0] > int(since)
    assert {(obj["kind"], obj["apiVersion"]) for _, obj in events} == {("ConfigMap", "v1")}


def test_a_watch_without_a_version_begins_with_what_there_is(api, ns):
    for name in ("c0", "c1"):
        api.post(ns / "configmaps", labelled(name))
    events = api.watch(ns / "configmaps?watch=1&labelSelector=w&timeoutSeconds=1")
    assert names(events) == [("ADDED", "c0"), ("ADDED", "c1")]


def test_a_watch_with_a_selector_sees_objects_enter_and_leave_it(api, ns):
    api.post(ns / "configmaps", labelled())
    since = version(api, ns)
    for parity in ("odd", "even", "odd"):
        api.patch(ns / "configmaps/c", {"metadata": {"labels": {"parity": parity}}})
    query = f"watch=1&resourceVersion={since}&labelSelector=parity%3Deven&timeoutSeconds=1"
    events = api.watch(ns / f"configmaps?{query}")
    assert names(events) == [("DELETED", "c"), ("ADDED", "c"), ("DELETED", "c")]
    assert events[-1][1]["metadata"]["labels"]["parity"] == "even"
    assert int(events[-1][1]["metadata"]["resourceVersion"]) > int(events[1][1]["metadata"]["resourceVersion"])


def test_a_watch_of_one_name_sees_no_other_and_one_of_a_namespace_no_other_namespace(api, ns):
    since = api.get("/api/v1/configmaps?limit=1").body["metadata"]["resourceVersion"]
    api.post("/api/v1/namespaces/default/configmaps", config_map(f"elsewhere-{ns.name}"))
    for name in "cd":
        api.post(ns / "configmaps", labelled(name))
    api.delete(f"/api/v1/namespaces/default/configmaps/elsewhere-{ns.name}")
    query = f"watch=1&resourceVersion={since}&timeoutSeconds=1"
    assert names(api.watch(ns / f"configmaps?{query}&labelSelector=w")) == [("ADDED", "c"), ("ADDED", "d")]
    assert names(api.watch(ns / f"configmaps?{query}&fieldSelector=metadata.name%3Dd")) == [("ADDED", "d")]


def test_a_deletion_shows_the_object_as_it_was_last(api, ns):
    api.post(ns / "configmaps", labelled() | {"data": {"a": "1"}})
    since = version(api, ns)
    api.delete(ns / "configmaps/c")
    ((kind, gone),) = api.watch(ns / f"configmaps?watch=1&labelSelector=w&resourceVersion={since}&timeoutSeconds=1")
    assert (kind, gone["data"]) == ("DELETED", {"a": "1"})
    assert int(gone["metadata"]["resourceVersion"]) > int(since)


def test_a_watch_ends_with_a_bookmark_of_a_version_to_go_on_from(api, ns):
    since = version(api, ns)
    query = "watch=1&allowWatchBookmarks=true&timeoutSeconds=4"
    *_, (kind, mark) = api.watch(ns / f"configmaps?{query}&labelSelector=w&resourceVersion={since}")
    assert (kind, mark["kind"], mark["apiVersion"]) == ("BOOKMARK", "ConfigMap", "v1")
    assert int(mark["metadata"]["resourceVersion"]) >= int(since)
    api.post(ns / "configmaps", labelled())
    since = mark["metadata"]["resourceVersion"]
    events = api.watch(ns / f"configmaps?watch=1&labelSelector=w&resourceVersion={since}&timeoutSeconds=1")
    assert names(events) == [("ADDED", "c")]


@pytest.fixture
def things(api, ns):
    """The path of a kind that the server has known for a moment only."""
    group = f"{new_name()}.example.com"
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    names = {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"}
    definition = {"metadata": {"name": f"things.{group}"},
                  "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]}}  # fmt: skip
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    assert api.post(definitions, definition).code == 201
    api.until(ns.of(group, "things"), lambda _: True)
    yield ns.of(group, "things")
    api.delete(f"{definitions}/things.{group}")


def test_a_version_older_than_the_history_is_a_410_event_inside_200(server: Server, api, ns, things):
    """A real server's history of a kind begins with the kind; localkube's is short, here for the last 100 changes."""
    api.post(ns / "configmaps", config_map())
    if server.kind == LOCALKUBE:
        for number in range(110):
            api.patch(ns / "configmaps/c", {"data": {"a": str(number)}})
    ((kind, body),) = api.watch(f"{things}?watch=1&resourceVersion=1&timeoutSeconds=5")
    assert (kind, body["kind"], body["status"]) == ("ERROR", "Status", "Failure")
    assert (body["code"], body["reason"]) == (410, "Expired")
    assert body["message"].startswith("too old resource version: 1 (")


def test_a_version_that_is_still_to_come_is_a_504_event_or_waits(server: Server, api, ns):
    events = api.watch(ns / "configmaps?watch=1&resourceVersion=999999999&timeoutSeconds=1")
    seen = [(kind, body["code"], body["reason"]) for kind, body in events]
    listed = "a real server keeps it waiting"
    assert seen == server.own(listed, localkube=[("ERROR", 504, "Timeout")], kubernetes=[])


def test_a_version_that_is_no_number_is_400(server: Server, api, ns):
    text = 'invalid resource version: resourceVersion: Invalid value: "abc": strconv.ParseUint: parsing "abc": '
    assert refusal(api.get(ns / "configmaps?resourceVersion=abc")) == (400, "BadRequest", text + "invalid syntax")
    watched = api.get(ns / "configmaps?watch=1&resourceVersion=abc").code
    assert watched == server.own("a watch from no number is 400", localkube=400, kubernetes=500)


def test_streamed_lists_are_for_the_real_server(server: Server, api, ns):
    """The portal lists and watches: clients that ask for `sendInitialEvents` fall back to that."""
    api.post(ns / "configmaps", labelled())
    query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    answer = api.get(ns / f"configmaps?{query}&labelSelector=w&timeoutSeconds=1")
    refused = "streamed lists (`sendInitialEvents`; clients fall back to list and watch)"
    assert answer.code == server.own(refused, localkube=501, kubernetes=200)
    if server.kind != LOCALKUBE:
        first, mark, *_ = api.watch(ns / f"configmaps?{query}&labelSelector=w&timeoutSeconds=1")
        assert (first[0], mark[0]) == ("ADDED", "BOOKMARK")
        assert mark[1]["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true"
