"""LimitRange, priority classes, and what a pod, a claim and a namespace must be."""

from __future__ import annotations

import pytest

from tests.conformance.servers import Server, new_name, refusal
from tests.localkube.manifests import asks, config_map, pod


def limits(api, ns, **item):
    answer = api.post(
        ns / "limitranges", {"metadata": {"name": "l"}, "spec": {"limits": [{"type": "Container"} | item]}}
    )
    assert answer.code == 201, answer


def test_a_limit_range_gives_defaults(api, ns):
    limits(api, ns, default={"cpu": "200m", "memory": "1Gi"}, defaultRequest={"cpu": "100m"})
    made = api.post(ns / "pods", pod()).body
    assert made["spec"]["containers"][0]["resources"] == {
        "limits": {"cpu": "200m", "memory": "1Gi"},
        "requests": {"cpu": "100m", "memory": "1Gi"},
    }
    own = api.post(ns / "pods", pod("q", resources=asks("1", "2Gi"))).body
    assert own["spec"]["containers"][0]["resources"] == asks("1", "2Gi")


def test_a_maximum_and_a_minimum_refuse_in_words(api, ns):
    limits(api, ns, max={"memory": "1Gi"}, min={"cpu": "10m"})
    assert refusal(api.post(ns / "pods", pod(resources=asks("1", "2Gi")))) == (
        403,
        "Forbidden",
        'pods "p" is forbidden: maximum memory usage per Container is 1Gi, but limit is 2Gi',
    )
    assert refusal(api.post(ns / "pods", pod(resources=asks("1m", "1Gi")))) == (
        403,
        "Forbidden",
        'pods "p" is forbidden: minimum cpu usage per Container is 10m, but request is 1m',
    )


def test_a_priority_class_becomes_a_number_and_a_missing_one_is_403(api, ns):
    path, name = "/apis/scheduling.k8s.io/v1/priorityclasses", new_name()
    made = api.post(path, {"metadata": {"name": name}, "value": -5})
    assert (made.code, made.body["preemptionPolicy"]) == (201, "PreemptLowerPriority")
    try:
        assert api.post(ns / "pods", pod(spec={"priorityClassName": name})).body["spec"]["priority"] == -5
        assert refusal(api.patch(f"{path}/{name}", {"value": 7})) == (
            422,
            "Invalid",
            f'PriorityClass.scheduling.k8s.io "{name}" is invalid: value: Forbidden: may not be changed in an update.',
        )
    finally:
        api.delete(f"{path}/{name}")
    assert refusal(api.post(ns / "pods", pod("q", spec={"priorityClassName": name}))) == (
        403,
        "Forbidden",
        f'pods "q" is forbidden: no PriorityClass with name {name} was found',
    )
    assert api.post(ns / "pods", pod("r")).body["spec"]["priority"] == 0


@pytest.mark.parametrize(
    ("resources", "text"),
    [
        (
            {"requests": {"nvidia.com/gpu": "1"}},
            "spec.containers[0].resources.limits: Required value: Limit must be set for non overcommitable resources",
        ),
        (
            {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}},
            'spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1',
        ),
        (
            {"limits": {"nvidia.com/gpu": "1.5"}},
            'spec.containers[0].resources.limits[nvidia.com/gpu]: Invalid value: "1500m": must be an integer',
        ),
    ],
)
def test_resources_that_contradict_themselves_are_422(api, ns, resources, text):
    code, reason, told = refusal(api.post(ns / "pods", pod(resources=resources)))
    assert (code, reason) == (422, "Invalid")
    assert told.startswith('Pod "p" is invalid: ')
    assert text in told


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"containers": []}, 'Pod "p" is invalid: spec.containers: Required value'),
        (
            {"containers": [{"name": "main"}]},
            'Pod "p" is invalid: spec.containers[0].image: Required value',
        ),
        (
            {"containers": [{"name": "main", "image": "x", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]},
            'Pod "p" is invalid: spec.containers[0].volumeMounts[0].name: Not found: "v"',
        ),
        (
            {"restartPolicy": "Sometimes"},
            'Pod "p" is invalid: spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", '
            '"OnFailure", "Never"',
        ),
        (
            {"activeDeadlineSeconds": 0},
            'Pod "p" is invalid: spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, '
            "inclusive",
        ),
    ],
)
def test_a_pod_that_cannot_be_is_422_with_its_field(api, ns, spec, text):
    assert refusal(api.post(ns / "pods", pod(spec=spec))) == (422, "Invalid", text)


def test_a_pods_spec_is_immutable_but_for_a_few_fields(api, ns):
    api.post(ns / "pods", pod(spec={"nodeName": "elsewhere"}))
    code, reason, text = refusal(api.patch(ns / "pods/p", {"spec": {"terminationGracePeriodSeconds": 7}}))
    assert (code, reason) == (422, "Invalid")
    assert text.startswith(
        'Pod "p" is invalid: spec: Forbidden: pod updates may not change fields other than '
        "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
        "`spec.tolerations` (only additions to existing tolerations),"
        "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
    )
    assert api.patch(ns / "pods/p", {"spec": {"activeDeadlineSeconds": 5}}).code == 200


def test_a_pod_gets_its_defaults(server: Server, api, ns):
    made = api.post(ns / "pods", pod(resources=asks())).body
    assert made["status"]["phase"] == "Pending"
    spec = made["spec"]
    defaults = (spec["restartPolicy"], spec["terminationGracePeriodSeconds"], spec["schedulerName"])
    assert defaults == ("Always", 30, "default-scheduler")
    found = {(t["key"], t["tolerationSeconds"]) for t in spec.get("tolerations", ())}
    lost = {("node.kubernetes.io/not-ready", 300), ("node.kubernetes.io/unreachable", 300)}
    listed = "Pods get no default tolerations and no QoS class"
    assert found == server.own(listed, localkube=set(), kubernetes=lost)
    assert made["status"].get("qosClass") == server.own(listed, localkube=None, kubernetes="Guaranteed")


def claim(**spec):
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {"metadata": {"name": "home"}, "spec": wanted | spec}


def test_a_claim_of_an_unknown_class_waits_and_says_why(api, ns):
    made = api.post(ns / "persistentvolumeclaims", claim(storageClassName="nobody-has-it")).body
    assert made["status"] == {"phase": "Pending"}
    (event, *_) = api.until(ns / "events", lambda b: b["items"])["items"]
    assert (event["type"], event["reason"], event["message"]) == (
        "Warning",
        "ProvisioningFailed",
        'storageclass.storage.k8s.io "nobody-has-it" not found',
    )
    assert event["involvedObject"]["name"] == "home"


def test_a_claim_cannot_change_before_it_is_bound(api, ns):
    api.post(ns / "persistentvolumeclaims", claim(storageClassName="nobody-has-it"))
    larger = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
    code, reason, text = refusal(api.patch(ns / "persistentvolumeclaims/home", larger))
    assert (code, reason) == (422, "Invalid")
    assert text.startswith(
        'PersistentVolumeClaim "home" is invalid: spec: Forbidden: spec is immutable after creation except '
        "resources.requests and volumeAttributesClassName for bound claims"
    )


def test_a_claim_of_no_mode_or_no_size_is_422(api, ns):
    code, reason, text = refusal(api.post(ns / "persistentvolumeclaims", claim(accessModes=[])))
    assert (code, reason) == (422, "Invalid")
    assert "spec.accessModes: Required value: at least 1 access mode is required" in text
    code, reason, text = refusal(api.post(ns / "persistentvolumeclaims", claim(resources={})))
    assert (code, reason) == (422, "Invalid")
    assert "spec.resources[storage]: Required value" in text


def test_an_ingress_of_a_bad_host_is_422(api, ns):
    backend = {"service": {"name": "s", "port": {"number": 80}}}
    rule = {"host": "Not_A_Host", "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}
    answer = api.post(ns.of("networking.k8s.io", "ingresses"), {"metadata": {"name": "i"}, "spec": {"rules": [rule]}})
    code, reason, text = refusal(answer)
    assert (code, reason) == (422, "Invalid")
    assert text.startswith('Ingress.networking.k8s.io "i" is invalid: spec.rules[0].host: Invalid value: "Not_A_Host"')


def test_labels_that_are_none_are_422(api, ns):
    code, reason, text = refusal(
        api.post(ns / "configmaps", config_map() | {"metadata": {"name": "c", "labels": {"a": "b c"}}})
    )
    assert (code, reason) == (422, "Invalid")
    assert text.startswith('ConfigMap "c" is invalid: metadata.labels: Invalid value: "b c": a valid label must be')
