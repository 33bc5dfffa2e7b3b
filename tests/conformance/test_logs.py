"""Requests for logs that need no node to be answered."""

from __future__ import annotations

import pytest

from tests.conformance.servers import refusal
from tests.localkube.manifests import pod

WAITING = {"schedulerName": "nobody"}


@pytest.mark.parametrize("query", ["", "?previous=true", "?tailLines=3&limitBytes=100&timestamps=true"])
def test_a_pod_without_a_node_has_an_empty_log(api, ns, query):
    api.post(ns / "pods", pod(spec=WAITING))
    answer = api.get(ns / f"pods/p/log{query}")
    assert (answer.code, answer.body) == (204, "")


@pytest.mark.parametrize(
    ("query", "refused"),
    [
        ("container=other", (400, "BadRequest", "container other is not valid for pod p")),
        (
            "tailLines=-1",
            (
                422,
                "Invalid",
                'PodLogOptions "p" is invalid: tailLines: Invalid value: -1: must be greater than or equal to 0',
            ),
        ),
        (
            "limitBytes=0",
            (422, "Invalid", 'PodLogOptions "p" is invalid: limitBytes: Invalid value: 0: must be greater than 0'),
        ),
    ],
)
def test_a_log_request_that_cannot_be_is_refused(api, ns, query, refused):
    api.post(ns / "pods", pod(spec=WAITING))
    assert refusal(api.get(ns / f"pods/p/log?{query}")) == refused


def test_a_log_of_no_pod_is_404(api, ns):
    assert refusal(api.get(ns / "pods/none/log")) == (404, "NotFound", 'pods "none" not found')


def test_a_pod_of_two_containers_asks_which(api, ns):
    two = pod(spec=WAITING)
    two["spec"]["containers"].append({"name": "side", "image": "x"})
    api.post(ns / "pods", two)
    text = "a container name must be specified for pod p, choose one of: [main side]"
    assert refusal(api.get(ns / "pods/p/log")) == (400, "BadRequest", text)
    assert api.get(ns / "pods/p/log?container=side").code == 204
