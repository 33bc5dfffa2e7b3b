"""Bodies that no manifest should have: each is refused in words, stored by nobody, and harms nobody else."""

import copy
import random

import pytest

from tests.localkube.manifests import asks, config_map, job, pod, stateful_set

VALUES = [
    None,
    0,
    -1,
    1.5,
    True,
    "",
    "x",
    "a b",
    "\ud800",
    "é" * 70,
    [],
    [1],
    [None],
    {},
    {"a": 1},
    10**30,
    [{}],
    ["x"],
]
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
PATHS = [
    {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "s", "port": {"number": 80}}}},
]
BODIES = {
    "pods": pod(
        resources=asks(),
        labels={"a": "b"},
        spec={
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
            "tolerations": [{"key": "a", "operator": "Exists"}],
            "nodeSelector": {"a": "b"},
        },
    ),
    "services": {
        "metadata": {"name": "x"},
        "spec": {"selector": {"a": "b"}, "ports": [{"port": 80, "targetPort": "h"}]},
    },
    "persistentvolumeclaims": {"metadata": {"name": "x"}, "spec": CLAIM},
    "resourcequotas": {"metadata": {"name": "x"}, "spec": {"hard": {"pods": "9"}}},
    "limitranges": {"metadata": {"name": "x"}, "spec": {"limits": [{"type": "Container", "max": {"cpu": "9"}}]}},
    "secrets": {"metadata": {"name": "x"}, "data": {"a": "YQ=="}, "stringData": {"b": "c"}},
    "configmaps": config_map("x", a="b"),
    "events": {"metadata": {"name": "x"}, "involvedObject": {"kind": "Pod"}, "lastTimestamp": "2026-01-01T00:00:00Z"},
    "statefulsets": stateful_set("x"),
    "jobs": job("x", completions=1),
    "ingresses": {"metadata": {"name": "x"}, "spec": {"rules": [{"host": "a.b", "http": {"paths": PATHS}}]}},
}
GROUPS = {"statefulsets": "apps", "jobs": "batch", "ingresses": "networking.k8s.io"}


def places(value, at=()):
    if at:
        yield at
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*at, key))


def replaced(body, place, value):
    out = copy.deepcopy(body)
    holder = out
    for key in place[:-1]:
        holder = holder[key]
    holder[place[-1]] = value
    return out


@pytest.mark.parametrize("plural", BODIES)
def test_no_wrong_value_anywhere_in_a_body_is_a_server_error(api, cluster, ns, plural, caplog):
    namespace = ns.rpartition("/")[2]
    group = GROUPS.get(plural)
    path = f"/apis/{group}/v1/namespaces/{namespace}/{plural}" if group else f"{ns}/{plural}"
    chosen = random.Random(plural)
    answers = 0
    for place in places(BODIES[plural]):
        for value in chosen.sample(VALUES, 3):
            answer = api.post(path, replaced(BODIES[plural], place, value))
            assert answer.code < 500 or answer.code == 501, (place, value, answer)
            answers += 1
            if answer.code == 201:
                listed = api.get(path)
                assert listed.code == 200, (place, value, listed)
                api.delete(f"{path}/{answer.body['metadata']['name']}?gracePeriodSeconds=0")
    assert answers > 10
    assert api.post(ns + "/configmaps", config_map("still-works")).code == 201
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"data": {"a": 1}}, "json: cannot unmarshal number into Go struct field ConfigMap.data of type string"),
        ({"immutable": "yes"}, "json: cannot unmarshal string into Go struct field ConfigMap.immutable of type bool"),
        ({"data": []}, "json: cannot unmarshal array into Go struct field ConfigMap.data of type map[string]string"),
    ],
)
def test_a_field_of_the_wrong_type_is_400_in_the_decoders_words(api, ns, body, text):
    answer = api.post(ns + "/configmaps", config_map() | body)
    assert (answer.code, answer.message) == (400, f'ConfigMap in version "v1" cannot be handled as a ConfigMap: {text}')


def test_numbers_json_does_not_have_and_bottomless_nesting_are_400(api, ns):
    assert api.post(ns + "/configmaps", b'{"metadata": {"name": "c"}, "data": NaN}').code == 400
    assert api.post(ns + "/configmaps", b'{"data":' * 100_000 + b"1" + b"}" * 100_000).code == 400
