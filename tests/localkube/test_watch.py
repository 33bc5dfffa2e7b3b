"""Lists and watches, where localkube has more to show than tests/conformance asks of both servers."""

import threading
import time

import pytest

from localkube.store import Store
from tests.localkube.conftest import Cluster
from tests.localkube.manifests import config_map, pod


def fill(api, ns, count=5):
    for number in range(count):
        labels = {"parity": "odd" if number % 2 else "even"}
        api.post(ns + "/configmaps", {"metadata": {"name": f"c{number}", "labels": labels}})


def names(events):
    return [(kind, obj["metadata"].get("name")) for kind, obj in events]


@pytest.mark.parametrize(
    ("selector", "wanted"),
    [
        ("parity=odd", ["c1", "c3"]),
        ("parity!=odd", ["c0", "c2", "c4"]),
        ("parity in (odd,even)", ["c0", "c1", "c2", "c3", "c4"]),
        ("parity notin (even)", ["c1", "c3"]),
        ("!parity", []),
        ("parity", ["c0", "c1", "c2", "c3", "c4"]),
    ],
)
def test_label_selectors_select(api, ns, selector, wanted):
    fill(api, ns)
    query = selector.replace(" ", "%20").replace("=", "%3D")
    found = api.get(f"{ns}/configmaps?labelSelector={query}").body["items"]
    assert [item["metadata"]["name"] for item in found] == wanted


def test_field_selectors_select_and_an_unknown_field_is_400(api, ns):
    api.post(ns + "/pods", pod("a"))
    api.post(ns + "/pods", pod("b", annotations={"fake/hold": ""}))
    api.until(ns + "/pods/a", lambda p: p["status"]["phase"] == "Running")
    running = api.get(f"{ns}/pods?fieldSelector=status.phase%3DRunning").body["items"]
    assert [item["metadata"]["name"] for item in running] == ["a"]
    answer = api.get(f"{ns}/pods?fieldSelector=spec.foo%3Dbar")
    assert (answer.code, answer.message) == (400, "field label not supported: spec.foo")


def test_an_unparsable_selector_or_token_is_400(api, ns):
    answer = api.get(f"{ns}/pods?labelSelector=a%20b")
    assert answer.message == "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"
    assert api.get(f"{ns}/pods?limit=1&continue=abc").message.startswith("invalid continue token")


def test_a_version_from_the_future_is_an_error_event_and_a_malformed_one_400(api, ns):
    ((kind, body),) = api.watch(f"{ns}/pods?watch=1&resourceVersion=99999999")
    assert (kind, body["code"], "Too large resource version: 99999999" in body["message"]) == ("ERROR", 504, True)
    assert api.get(f"{ns}/pods?resourceVersion=abc").code == 400
    assert api.get(f"{ns}/pods?resourceVersion=1&resourceVersionMatch=Exact").code == 501
    assert api.get(f"{ns}/pods?watch=1&sendInitialEvents=true").code == 501


def test_an_event_reaches_an_open_watch_at_once(api, ns):
    version = api.get(ns + "/configmaps").body["metadata"]["resourceVersion"]
    seen = []
    query = f"watch=1&resourceVersion={version}&timeoutSeconds=2&fieldSelector=metadata.name%3Dc"
    thread = threading.Thread(target=lambda: seen.extend(api.watch(f"{ns}/configmaps?{query}")))
    thread.start()
    time.sleep(0.3)
    api.post(ns + "/configmaps", config_map())
    thread.join(5)
    assert names(seen) == [("ADDED", "c")]


def test_a_restart_keeps_objects_and_versions_and_forgets_history(tmp_path):
    first = Cluster(tmp_path)
    path = "/api/v1/namespaces/default/configmaps"
    made = first.client.post(path, config_map(a="1")).body
    token = first.client.token
    first.stop()
    second = Cluster(tmp_path)
    try:
        assert second.client.token == token
        assert second.client.get(f"{path}/c").body == made
        newer = second.client.patch(f"{path}/c", {"data": {"a": "2"}}).body["metadata"]["resourceVersion"]
        assert int(newer) > int(made["metadata"]["resourceVersion"])
        ((kind, body),) = second.client.watch(f"{path}?watch=1&resourceVersion=1&timeoutSeconds=1")
        assert (kind, body["code"]) == ("ERROR", 410)
    finally:
        second.stop()


def test_a_second_server_on_the_same_folder_is_refused(cluster):
    with pytest.raises(Exception, match="another localkube may hold it"):
        cluster.call(Store, cluster.config.home / "store.db")
