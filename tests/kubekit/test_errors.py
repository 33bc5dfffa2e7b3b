"""Every Status a server sends becomes one error with a stable code (bodies as a real 1.36 server sends them)."""

from __future__ import annotations

import time
from typing import Any

import pytest

from kubekit import errors
from kubekit.errors import Invalid, KubeError, QuotaExceeded, TooManyRequests, error_from_status, quota_from_message
from tests.kubekit.fakes import status_body

QUOTA = (
    'pods "p" is forbidden: exceeded quota: queue, requested: pods=1,requests.cpu=500m, '
    "used: pods=3,requests.cpu=3800m, limited: pods=3,requests.cpu=4"
)
TERMINATING = 'pods "p" is forbidden: unable to create new content in namespace ns because it is being terminated'
SECURITY = (
    'pods "p" is forbidden: violates PodSecurity "baseline:latest": '
    "hostNetwork (pod must not set spec.hostNetwork=true)"
)


@pytest.mark.parametrize(
    ("code", "reason", "message", "kind", "word", "retryable"),
    [
        (400, "BadRequest", "bad", errors.BadRequest, "bad_request", False),
        (401, "Unauthorized", "Unauthorized", errors.Unauthorized, "unauthorized", False),
        (403, "Forbidden", 'pods is forbidden: User "u" cannot list', errors.Forbidden, "forbidden", False),
        (403, "Forbidden", QUOTA, errors.QuotaExceeded, "quota_exceeded", False),
        (403, "Forbidden", TERMINATING, errors.NamespaceTerminating, "namespace_terminating", False),
        (403, "Forbidden", SECURITY, errors.PodSecurityRefused, "pod_security", False),
        (404, "NotFound", 'pods "p" not found', errors.NotFound, "not_found", False),
        (405, "MethodNotAllowed", "no", errors.NotImplementedByCluster, "not_supported", False),
        (409, "AlreadyExists", 'pods "p" already exists', errors.AlreadyExists, "already_exists", False),
        (409, "Conflict", "the object has been modified", errors.Conflict, "conflict", False),
        (410, "Expired", "too old resource version: 1 (5)", errors.Gone, "gone", True),
        (410, "Gone", "gone", errors.Gone, "gone", True),
        (415, "UnsupportedMediaType", "no", errors.BadRequest, "bad_request", False),
        (422, "Invalid", "invalid", errors.Invalid, "invalid", False),
        (429, "TooManyRequests", "slow", errors.TooManyRequests, "too_many_requests", True),
        (500, "InternalError", "etcdserver: leader changed", errors.ServerError, "server_error", True),
        (500, "ServerTimeout", "try again", errors.ServerTimeout, "server_timeout", True),
        (501, "", "not here", errors.NotImplementedByCluster, "not_supported", False),
        (503, "ServiceUnavailable", "no endpoints", errors.ServerError, "server_error", True),
        (504, "Timeout", "timed out", errors.ServerTimeout, "server_timeout", True),
    ],
)
def test_each_status_has_its_error(
    code: int, reason: str, message: str, kind: type[KubeError], word: str, retryable: bool
) -> None:
    found = error_from_status(status_body(code, reason, message), http_status=code)
    assert type(found) is kind
    assert (found.code, found.status, found.reason, found.message) == (word, code, reason, message)
    assert found.retryable is retryable


@pytest.mark.parametrize(
    ("message", "verb", "resource"),
    [
        (
            'pods is forbidden: User "u" cannot list resource "pods" in API group "" in the namespace "n"',
            "list",
            "pods",
        ),
        (
            'x is forbidden: User "u" cannot patch resource "statefulsets/scale" in API group "apps" in the namespace',
            "patch",
            "statefulsets.apps/scale",
        ),
        (
            'nodes is forbidden: User "u" cannot watch resource "nodes" in API group "" at the cluster scope',
            "watch",
            "nodes",
        ),
    ],
)
def test_a_refusal_by_access_control_says_which_verb_on_what(message: str, verb: str, resource: str) -> None:
    found = error_from_status(status_body(403, "Forbidden", message), http_status=403)
    assert isinstance(found, errors.PermissionDenied)
    assert (found.verb, found.resource, found.code) == (verb, resource, "permission_denied")


def test_codes_are_unique() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, KubeError)]
    assert len({kind.code for kind in kinds}) == len(kinds)


def test_a_quota_refusal_is_read_to_the_figure() -> None:
    found = error_from_status(status_body(403, "Forbidden", QUOTA, name="p", kind="pods"), http_status=403)
    assert isinstance(found, QuotaExceeded)
    assert found.quota == "queue"
    assert found.requested == {"pods": "1", "requests.cpu": "500m"}
    assert found.used == {"pods": "3", "requests.cpu": "3800m"}
    assert found.limited == {"pods": "3", "requests.cpu": "4"}
    assert not found.maybe_done


def test_a_quota_refusal_is_also_read_out_of_an_event() -> None:
    found = quota_from_message(f"create Pod x-0 in StatefulSet x failed error: {QUOTA}")
    assert found is not None
    assert found.limited["pods"] == "3"
    assert quota_from_message("something else") is None


def test_an_invalid_object_names_its_fields() -> None:
    causes = [{"reason": "FieldValueInvalid", "message": "must be positive", "field": "spec.x"}, {"field": "spec.y"}]
    found = error_from_status(status_body(422, "Invalid", "no", causes=causes), http_status=422)
    assert isinstance(found, Invalid)
    assert [cause.field for cause in found.causes] == ["spec.x", "spec.y"]
    assert found.causes[0].message == "must be positive"
    assert Invalid("no details").causes == ()


def test_a_missing_namespace_is_seen_in_the_details() -> None:
    body = status_body(404, "NotFound", 'namespaces "ns" not found', name="ns", kind="namespaces")
    assert error_from_status(body, http_status=404).details["kind"] == "namespaces"


@pytest.mark.parametrize(("method", "maybe"), [("GET", False), ("POST", True), ("PATCH", True), ("DELETE", True)])
@pytest.mark.parametrize("code", [500, 503, 504])
def test_only_a_write_that_met_a_server_error_may_have_happened(method: str, maybe: bool, code: int) -> None:
    assert error_from_status({}, http_status=code, method=method).maybe_done is maybe


@pytest.mark.parametrize("code", [400, 401, 403, 404, 409, 422, 429])
def test_a_refused_write_did_not_happen(code: int) -> None:
    assert not error_from_status({}, http_status=code, method="POST").maybe_done


def test_the_time_to_wait_comes_from_header_details_or_a_second() -> None:
    def wait(header: float | None, **details: Any) -> float:
        found = error_from_status(
            status_body(429, "TooManyRequests", "", **details), http_status=429, retry_after_s=header
        )
        assert isinstance(found, TooManyRequests)
        return found.retry_after_s

    assert [wait(7.0, retryAfterSeconds=3), wait(None, retryAfterSeconds=3), wait(None)] == [7.0, 3.0, 1.0]


def test_an_empty_body_still_gives_a_sentence() -> None:
    assert "500" in error_from_status({}, http_status=500).message


def test_a_hostile_text_costs_no_time() -> None:
    began = time.process_time()
    for text in ("exceeded quota: a, requested: " * 50_000, "exceeded quota: a, requested: b" + ", used: " * 100_000):
        assert quota_from_message(text) is None
    assert time.process_time() - began < 0.5
