"""Namespaces on their way out, owners and their dependents, and the deletion of pods."""

from __future__ import annotations

from tests.conformance.servers import Server, refusal
from tests.localkube.manifests import config_map, pod


def test_a_namespace_takes_its_content_along(api, ns):
    api.post(ns / "secrets", {"metadata": {"name": "s"}})
    api.post(ns / "pods", pod(spec={"schedulerName": "nobody"}))
    api.delete(ns.path)
    api.gone(ns.path)
    assert api.get(ns / "secrets/s").code == 404


def test_a_namespace_that_is_held_refuses_new_content_and_says_what_holds_it(api, ns):
    api.post(ns / "configmaps", {"metadata": {"name": "held", "finalizers": ["a.b/c"]}})
    api.post(ns / "secrets", {"metadata": {"name": "s"}})
    deleted = api.delete(ns.path)
    assert (deleted.code, deleted.body["status"]["phase"]) == (200, "Terminating")
    refused = api.post(ns / "configmaps", config_map())
    assert refusal(refused) == (
        403,
        "Forbidden",
        f'configmaps "c" is forbidden: unable to create new content in namespace {ns.name} because it is being '
        "terminated",
    )
    assert refused.body["details"]["causes"] == [
        {
            "reason": "NamespaceTerminating",
            "message": f"namespace {ns.name} is being terminated",
            "field": "metadata.namespace",
        }
    ]
    api.gone(ns / "secrets/s")

    def texts(found):
        return {c["type"]: c["message"] for c in found["status"].get("conditions", ())}

    left = "Some content in the namespace has finalizers remaining: a.b/c in 1 resource instances"
    state = api.until(ns.path, lambda n: texts(n).get("NamespaceFinalizersRemaining") == left)
    assert texts(state)["NamespaceContentRemaining"] == (
        "Some resources are remaining: configmaps. has 1 resource instances"
    )
    assert refusal(api.post("/api/v1/namespaces", {"metadata": {"name": ns.name}}))[:2] == (409, "AlreadyExists")


def test_a_namespaces_deletion_minds_its_uid(api, ns):
    answer = api.delete(ns.path, {"preconditions": {"uid": "other"}})
    assert refusal(answer)[:2] == (409, "Conflict")
    assert api.get(ns.path).body["status"]["phase"] == "Active"


def owned(name, owner, **more):
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    }
    return {"metadata": {"name": name, "ownerReferences": [reference | more]}}


def test_dependents_go_with_their_owner_in_the_background(api, ns):
    owner = api.post(ns / "configmaps", config_map("owner")).body
    child = api.post(ns / "configmaps", owned("child", owner)).body
    api.post(ns / "secrets", owned("grandchild", child))
    api.post(ns / "configmaps", config_map("stranger"))
    assert api.delete(ns / "configmaps/owner", {"propagationPolicy": "Background"}).code == 200
    api.gone(ns / "secrets/grandchild")
    assert api.get(ns / "configmaps/stranger").code == 200


def test_a_dependent_of_two_owners_stays_with_the_second(server: Server, api, ns):
    first, second = (api.post(ns / "configmaps", config_map(name)).body for name in ("first", "second"))
    child = owned("child", first)
    child["metadata"]["ownerReferences"] += owned("x", second)["metadata"]["ownerReferences"]
    api.post(ns / "configmaps", child)
    api.post(ns / "configmaps", owned("only-child", first))
    api.delete(ns / "configmaps/first")
    api.gone(ns / "configmaps/only-child")
    assert "deletionTimestamp" not in api.get(ns / "configmaps/child").body["metadata"]
    left = server.own("the reference to an owner that is gone stays", localkube=2, kubernetes=1)
    api.until(ns / "configmaps/child", lambda c: len(c["metadata"]["ownerReferences"]) == left)
    api.delete(ns / "configmaps/second")
    api.gone(ns / "configmaps/child")


def test_an_object_whose_owner_never_was_is_collected(api, ns):
    ghost = {"metadata": {"name": "ghost", "uid": "00000000-0000-4000-8000-000000000000"}}
    api.post(ns / "configmaps", owned("lost", ghost))
    api.gone(ns / "configmaps/lost")
    assert api.get(ns / "configmaps/lost").code == 404


def test_an_owner_that_the_object_blocks_or_names_badly_is_422(api, ns):
    bad = owned("child", {"metadata": {"name": "owner", "uid": ""}})
    code, reason, text = refusal(api.post(ns / "configmaps", bad))
    assert (code, reason) == (422, "Invalid")
    assert "metadata.ownerReferences.uid" in text


def test_a_running_pods_deletion_has_two_phases(api, ns, node):
    api.post(ns / "pods", pod(finalizers=["mlportal.io/result"], spec=node.placement))
    node.runs(ns, "p")
    marked = api.delete(ns / "pods/p")
    assert (marked.code, marked.body["kind"]) == (200, "Pod")
    metadata = marked.body["metadata"]
    assert (metadata["deletionGracePeriodSeconds"], bool(metadata["deletionTimestamp"])) == (30, True)
    assert api.get(ns / "pods/p").body["status"]["phase"] == "Running"
    node.confirms(ns, "p")
    kept = api.get(ns / "pods/p").body["metadata"]
    assert (kept["deletionGracePeriodSeconds"], kept["finalizers"]) == (0, ["mlportal.io/result"])
    freed = {"metadata": {"finalizers": None, "resourceVersion": kept["resourceVersion"]}}
    assert api.patch(ns / "pods/p", freed).code == 200
    assert api.get(ns / "pods/p").code == 404


def test_a_waiting_pod_is_gone_at_once(api, ns):
    api.post(ns / "pods", pod(spec={"schedulerName": "nobody"}))
    answer = api.delete(ns / "pods/p")
    assert (answer.code, answer.body["kind"], answer.body["metadata"]["deletionGracePeriodSeconds"]) == (200, "Pod", 0)
    assert api.get(ns / "pods/p").code == 404


def test_an_ended_pod_is_gone_at_once(api, ns, node):
    api.post(ns / "pods", pod(spec=node.placement | {"restartPolicy": "Never"}))
    node.ends(ns, "p", 3)
    assert api.delete(ns / "pods/p").code == 200
    assert api.get(ns / "pods/p").code == 404


def ready(pod):
    return {c["type"]: c["status"] for c in pod["status"]["conditions"]}["Ready"] == "True"


def test_the_pods_of_a_silent_node_stay_where_they_are(server: Server, api, ns, node):
    api.post(ns / "pods", pod(spec=node.placement))
    node.runs(ns, "p")
    node.says("Unknown")
    listed = "A node that is not ready gets no taints"
    if server.own(listed, localkube=False, kubernetes=True):
        # Whether it is evicted from as well depends on how many of the others are lost.
        taint = ("node.kubernetes.io/unreachable", "NoSchedule")
        api.until(node.path, lambda n: taint in [(t["key"], t["effect"]) for t in n["spec"]["taints"]])
    else:
        api.until(ns / "pods/p", lambda p: not ready(p))
        assert [t["key"] for t in api.get(node.path).body["spec"]["taints"]] == ["conformance"]
    kept = api.get(ns / "pods/p").body
    assert (kept["status"]["phase"], "deletionTimestamp" in kept["metadata"]) == ("Running", False)
