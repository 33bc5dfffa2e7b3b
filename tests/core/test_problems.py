"""Every error of the API has one form: problem+json with a code, a sentence and a next step."""

from __future__ import annotations

import base64

import pytest
from django.test import Client

from apps.tenants import tokens
from apps.tenants.api import QueueViewSet
from tests.tenants import make

pytestmark = pytest.mark.django_db


@pytest.fixture
def client() -> Client:
    _row, text = tokens.create(actor=make.actor(make.admin()), name="t")
    return Client(headers={"Authorization": f"Bearer {text}"})


def problem(answer, status: int, code: str) -> dict:
    assert answer.status_code == status
    assert answer["Content-Type"] == "application/problem+json"
    body = answer.json()
    assert (body["status"], body["code"], body["type"]) == (status, code, f"urn:mlportal:error:{code}")
    assert body["title"]
    assert body["detail"]
    return body


@pytest.mark.parametrize("method", ["get", "post", "put", "patch", "delete", "options"])
@pytest.mark.parametrize("path", ["/api/v1/nonsense", "/api/v2/queues", "/api/v1/queues/xyz", "/api/v1/queues/"])
def test_an_address_that_is_none(client: Client, method: str, path: str) -> None:
    assert problem(getattr(client, method)(path), 404, "not_found")["next"]


def test_a_method_that_is_none(client: Client) -> None:
    body = problem(client.put("/api/v1/queues"), 405, "method_not_allowed")
    assert body["detail"]


def test_a_body_that_is_no_json(client: Client) -> None:
    problem(client.post("/api/v1/queues", "a=1", content_type="text/plain"), 415, "unsupported_media_type")
    problem(client.post("/api/v1/queues", "{", content_type="application/json"), 400, "parse_error")


@pytest.mark.parametrize(
    "body", ["[" * 100_000, '{"a":' * 100_000, '{"name": "x", "more": ' + "[" * 800 + "]" * 800 + "}"]
)
@pytest.mark.parametrize("path", ["queues", "flows", "tokens"])
def test_a_body_that_is_nested_without_end_is_no_fault_of_ours(client: Client, path: str, body: str) -> None:
    answer = client.post(f"/api/v1/{path}", body, content_type="application/json")
    assert answer.status_code in {400, 422}
    assert answer.json()["next"]


def test_a_body_that_is_too_large(client: Client) -> None:
    body = '{"name": "' + "a" * 3_000_000 + '"}'
    assert problem(client.post("/api/v1/queues", body, content_type="application/json"), 413, "too_large")["next"]


def test_what_the_framework_refuses_says_what_to_do_too(client: Client) -> None:
    for answer in (
        client.put("/api/v1/queues"),
        client.get("/api/v1/queues", headers={"Accept": "text/csv"}),
        client.post("/api/v1/queues", "{", content_type="application/json"),
        client.post("/api/v1/queues", "a=1", content_type="text/plain"),
        client.post("/api/v1/queues", "[]", content_type="application/json"),
        client.post("/api/v1/queues", '{"nmae": 1}', content_type="application/json"),
    ):
        assert answer.json()["next"]


def test_a_list_in_a_field_points_at_the_field(client: Client) -> None:
    body = {"image": "x", "size": "x", "queue": "x", "volumes": [1]}
    found = problem(client.post("/api/v1/instances", body, content_type="application/json"), 422, "invalid")
    assert [error["pointer"] for error in found["errors"]] == ["/volumes/0"]


def test_bad_filters_sorts_limits_and_cursors(client: Client) -> None:
    for query, code in (
        ("sort=nonsense", "sort_unknown"),
        ("limit=0", "limit_invalid"),
        ("limit=9999", "limit_invalid"),
        ("limit=٣", "limit_invalid"),
        ("limit=" + "9" * 5000, "limit_invalid"),
        ("cursor=nonsense", "cursor_invalid"),
        ("cursor=" + base64.urlsafe_b64encode(b"[" * 20_000).decode(), "cursor_invalid"),
        ("nmae=x", "filter_unknown"),
    ):
        body = problem(client.get(f"/api/v1/queues?{query}"), 422, code)
        assert body["errors"][0]["pointer"] == f"/{query.split('=')[0]}"


def test_a_fault_of_ours_is_logged_whole_and_told_without_its_inside(client: Client, monkeypatch, caplog) -> None:
    def fail(self: object, rows: object) -> None:
        raise RuntimeError("the inside")

    monkeypatch.setattr(QueueViewSet, "prepare", fail)
    body = problem(client.get("/api/v1/queues"), 500, "internal")
    assert "the inside" not in str(body)
    assert "the inside" in caplog.text
