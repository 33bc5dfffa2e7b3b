"""StatefulSets of none and one, Jobs, and where pods go; the test plays the node."""

from __future__ import annotations

import pytest

from tests.conformance.servers import refusal
from tests.localkube.manifests import asks, job, pod, stateful_set


@pytest.fixture
def sets(ns):
    return ns.of("apps", "statefulsets")


def placed(manifest, node):
    manifest["spec"]["template"]["spec"] |= node.placement
    return manifest


# StatefulSets


def test_one_replica_makes_one_pod_and_says_so(api, ns, sets, node):
    made = api.apply(f"{sets}/web", placed(stateful_set(), node)).body
    node.runs(ns, "web-0")
    status = api.until(f"{sets}/web", lambda s: s["status"].get("readyReplicas") == 1)["status"]
    assert status["replicas"] == status["updatedReplicas"] == 1
    assert status["updateRevision"] == status["currentRevision"]
    own = api.get(ns / "pods/web-0").body
    (owner,) = own["metadata"]["ownerReferences"]
    assert owner == {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "name": "web",
        "uid": made["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    labels = own["metadata"]["labels"]
    assert labels["apps.kubernetes.io/pod-index"] == "0"
    assert labels["statefulset.kubernetes.io/pod-name"] == "web-0"
    assert labels["controller-revision-hash"] == status["updateRevision"]
    assert (own["spec"]["hostname"], own["spec"]["subdomain"]) == ("web-0", "web")
    events = api.until(ns / "events?fieldSelector=reason%3DSuccessfulCreate", lambda b: b["items"])["items"]
    assert [e["message"] for e in events] == ["Create Pod web-0 in StatefulSet web successful"]


def test_no_replicas_end_the_pod_and_the_next_start_is_another(api, ns, sets, node):
    api.apply(f"{sets}/web", placed(stateful_set(), node))
    first = node.runs(ns, "web-0")
    api.patch(f"{sets}/web/scale", {"spec": {"replicas": 0}})
    marked = api.until(ns / "pods/web-0", lambda p: p["metadata"].get("deletionTimestamp"))
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 30
    node.confirms(ns, "web-0")
    api.until(f"{sets}/web", lambda s: s["status"]["replicas"] == 0)
    assert api.get(ns / "pods").body["items"] == []
    api.patch(f"{sets}/web/scale", {"spec": {"replicas": 1}})
    assert node.runs(ns, "web-0")["metadata"]["uid"] != first["metadata"]["uid"]


def test_a_pod_that_was_deleted_or_has_failed_comes_again(api, ns, sets, node):
    api.apply(f"{sets}/web", placed(stateful_set(), node))
    first = node.runs(ns, "web-0")["metadata"]["uid"]
    api.delete(ns / "pods/web-0", {"gracePeriodSeconds": 0})
    second = api.until(ns / "pods/web-0", lambda p: p["metadata"]["uid"] != first)["metadata"]["uid"]
    node.ends(ns, "web-0", 1)
    third = api.until(ns / "pods/web-0", lambda p: p["metadata"]["uid"] != second)["metadata"]["uid"]
    assert len({first, second, third}) == 3


def test_on_delete_a_new_template_waits_for_the_next_start(api, ns, sets, node):
    manifest = placed(stateful_set(updateStrategy={"type": "OnDelete"}), node)
    api.apply(f"{sets}/web", manifest)
    before = node.runs(ns, "web-0")
    manifest["spec"]["template"]["spec"]["containers"][0]["image"] = "other:2"
    api.apply(f"{sets}/web", manifest)
    status = api.until(f"{sets}/web", lambda s: s["status"].get("observedGeneration") == 2)["status"]
    assert status["updateRevision"] != status["currentRevision"]
    kept = api.get(ns / "pods/web-0").body
    assert (kept["metadata"]["uid"], "deletionTimestamp" in kept["metadata"]) == (before["metadata"]["uid"], False)
    api.delete(ns / "pods/web-0", {"gracePeriodSeconds": 0})
    after = api.until(ns / "pods/web-0", lambda p: p["metadata"]["uid"] != before["metadata"]["uid"])
    assert after["spec"]["containers"][0]["image"] == "other:2"


def test_a_deleted_set_takes_its_pod_along(api, ns, sets, node):
    api.apply(f"{sets}/web", placed(stateful_set(), node))
    node.runs(ns, "web-0")
    answer = api.delete(f"{sets}/web", {"propagationPolicy": "Background"})
    assert (answer.code, answer.body["status"]) == (200, "Success")
    assert api.get(f"{sets}/web").code == 404
    node.confirms(ns, "web-0")
    api.gone(ns / "pods/web-0")


@pytest.mark.parametrize("change", [{"serviceName": "other"}, {"podManagementPolicy": "Parallel"}])
def test_immutable_fields_are_422(api, sets, change):
    api.post(sets, stateful_set(replicas=0))
    assert refusal(api.patch(f"{sets}/web", {"spec": change})) == (
        422,
        "Invalid",
        'StatefulSet.apps "web" is invalid: spec: Forbidden: updates to statefulset spec for fields other than '
        "'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', "
        "'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
    )


def test_a_template_that_its_selector_misses_is_422(api, sets):
    manifest = stateful_set(replicas=0)
    manifest["spec"]["template"]["metadata"]["labels"] = {"app": "other"}
    code, reason, text = refusal(api.post(sets, manifest))
    assert (code, reason) == (422, "Invalid")
    assert text.startswith('StatefulSet.apps "web" is invalid: spec.template.metadata.labels: Invalid value: ')
    assert text.endswith("`selector` does not match template `labels`")


def test_a_set_of_fewer_than_none_is_422(api, sets):
    assert refusal(api.post(sets, stateful_set(replicas=-1)))[2] == (
        'StatefulSet.apps "web" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0'
    )


# Jobs


@pytest.fixture
def jobs(ns):
    return ns.of("batch", "jobs")


def only_pod(api, ns):
    return api.until(ns / "pods", lambda b: b["items"])["items"][0]["metadata"]["name"]


def conditions(found):
    return {c["type"]: c for c in found["status"].get("conditions", ()) if c["status"] == "True"}


def test_a_job_completes_once_its_pod_succeeded(api, ns, jobs, node):
    made = api.post(jobs, placed(job(), node)).body
    assert (made["spec"]["backoffLimit"], made["spec"]["completions"], made["spec"]["parallelism"]) == (6, 1, 1)
    name = only_pod(api, ns)
    running = node.runs(ns, name)
    assert running["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "job"
    assert running["metadata"]["finalizers"] == ["batch.kubernetes.io/job-tracking"]
    node.ends(ns, name, 0)
    done = api.until(f"{jobs}/job", lambda j: "Complete" in conditions(j))
    assert set(conditions(done)) == {"SuccessCriteriaMet", "Complete"}
    assert (done["status"]["succeeded"], "completionTime" in done["status"]) == (1, True)
    assert "finalizers" not in api.get(ns / f"pods/{name}").body["metadata"]


def test_a_job_fails_by_its_backoff_limit(api, ns, jobs, node):
    api.post(jobs, placed(job(backoffLimit=0), node))
    name = only_pod(api, ns)
    node.runs(ns, name)
    node.ends(ns, name, 3)
    failed = api.until(f"{jobs}/job", lambda j: "Failed" in conditions(j))
    told = conditions(failed)["Failed"]
    assert (told["reason"], told["message"]) == (
        "BackoffLimitExceeded",
        "Job has reached the specified backoff limit",
    )
    assert failed["status"]["failed"] == 1


def test_a_job_fails_by_its_deadline(api, ns, jobs, node):
    api.post(jobs, placed(job(activeDeadlineSeconds=1), node))
    failed = api.until(f"{jobs}/job", lambda j: "FailureTarget" in conditions(j))
    told = conditions(failed)["FailureTarget"]
    assert (told["reason"], told["message"]) == (
        "DeadlineExceeded",
        "Job was active longer than specified deadline",
    )


def test_a_jobs_template_is_immutable(api, jobs):
    api.post(jobs, job())
    change = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "other"}]}}}}
    code, reason, text = refusal(api.patch(f"{jobs}/job", change))
    assert (code, reason) == (422, "Invalid")
    assert text.startswith('Job.batch "job" is invalid: spec.template: Invalid value: ')
    assert text.endswith(": field is immutable")


def test_a_job_that_restarts_always_is_422(api, jobs):
    manifest = job()
    manifest["spec"]["template"]["spec"]["restartPolicy"] = "Always"
    assert refusal(api.post(jobs, manifest))[2] == (
        'Job.batch "job" is invalid: spec.template.spec.restartPolicy: Required value: '
        'valid values: "OnFailure", "Never"'
    )


# The scheduler


EVERYWHERE = {"tolerations": [{"operator": "Exists"}]}


def unschedulable(api, ns, name="p"):
    def found(body):
        return [c for c in body["status"].get("conditions", ()) if c.get("reason") == "Unschedulable"]

    (condition,) = found(api.until(ns / f"pods/{name}", found))
    assert (condition["type"], condition["status"]) == ("PodScheduled", "False")
    events = api.until(ns / f"events?fieldSelector=involvedObject.name%3D{name}", lambda b: b["items"])["items"]
    assert (events[0]["type"], events[0]["reason"]) == ("Warning", "FailedScheduling")
    assert events[0]["message"] == condition["message"]
    return condition["message"]


@pytest.mark.parametrize(
    ("resources", "missing"),
    [
        (asks("64"), "1 Insufficient cpu"),
        (asks("1", "64Gi"), "1 Insufficient memory"),
        (asks("64", "64Gi"), "1 Insufficient cpu, 1 Insufficient memory"),
        (asks(**{"nvidia.com/gpu": "3"}), "1 Insufficient nvidia.com/gpu"),
    ],
)
def test_a_pod_that_fits_no_node_says_what_is_missing(api, ns, node, resources, missing):
    api.post(ns / "pods", pod(resources=resources, spec=node.placement | EVERYWHERE))
    text = unschedulable(api, ns)
    count = int(text.partition("/")[2].partition(" ")[0])  # of the moment: nodes come and go
    others = f", {count - 1} node(s) didn't match Pod's node affinity/selector" if count > 1 else ""
    assert text.startswith(f"0/{count} nodes are available: {missing}{others}. ")
    assert text.endswith("Preemption is not helpful for scheduling.")


def test_a_selector_that_no_node_has_says_so(api, ns, node):
    api.post(ns / "pods", pod(spec={"nodeSelector": {"conformance": "nobody"}} | EVERYWHERE))
    text = unschedulable(api, ns)
    count = text.partition("/")[2].partition(" ")[0]
    assert text.startswith(
        f"0/{count} nodes are available: {count} node(s) didn't match Pod's node affinity/selector. "
    )


def test_a_taint_that_the_pod_does_not_tolerate_says_so(api, ns, node):
    selector = {"nodeSelector": node.placement["nodeSelector"]}
    api.post(ns / "pods", pod(spec=selector))
    assert " node(s) had untolerated taint(s)" in unschedulable(api, ns)


def test_a_pod_waits_for_its_claim_in_words(api, ns, node):
    volumes = [{"name": "home", "persistentVolumeClaim": {"claimName": "home"}}]
    api.post(ns / "pods", pod(spec=node.placement | {"volumes": volumes}))
    text = unschedulable(api, ns).partition(" nodes are available: ")[2]
    assert text.startswith('persistentvolumeclaim "home" not found. ')


def test_a_waiting_pod_goes_when_room_comes(api, ns, node):
    for name in "ab":
        api.post(ns / "pods", pod(name, resources=asks("3"), spec=node.placement))
        if name == "a":
            node.runs(ns, "a")
    assert "1 Insufficient cpu" in unschedulable(api, ns, "b")
    node.ends(ns, "a", 0)
    node.takes(ns, "b")


def test_a_cordoned_node_takes_nothing_new(api, ns, node):
    api.patch(node.path, {"spec": {"unschedulable": True}})
    api.post(ns / "pods", pod(spec=node.placement))
    assert "1 node(s) were unschedulable" in unschedulable(api, ns)
    api.patch(node.path, {"spec": {"unschedulable": None}})
    node.takes(ns, "p")
