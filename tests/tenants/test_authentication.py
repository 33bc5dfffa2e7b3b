"""Who gets into the REST API, and how everyone else is told no."""

from __future__ import annotations

import base64
from datetime import timedelta

import pytest
from django.core.cache import cache
from django.test import Client
from django.utils import timezone

from apps.core.errors import Invalid
from apps.core.models import AuditEntry
from apps.tenants import passwords, tokens
from apps.tenants.models import ApiToken
from tests.tenants import make

pytestmark = pytest.mark.django_db
PASSWORD = "correct horse battery"


@pytest.fixture(autouse=True)
def _fresh_cache():
    cache.clear()


def bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


def basic(name: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}


def post(client: Client, body: str, headers: dict[str, str]):
    return client.post("/api/v1/tokens", body, content_type="application/json", headers=headers)


@pytest.fixture
def person():
    return make.user(password=PASSWORD)


@pytest.fixture
def token(person):
    return tokens.create(actor=make.actor(person), name="ci")


def refused(answer, *words: str, status: int = 401, code: str = "not_authenticated") -> None:
    assert answer.status_code == status
    assert answer["Content-Type"] == "application/problem+json"
    problem = answer.json()
    assert problem["code"] == code
    assert problem["status"] == status
    for word in words:
        assert word in problem["detail"], problem["detail"]


def test_a_password_makes_a_token_that_works_and_is_stored_as_a_digest_alone(client: Client, person) -> None:
    made = client.post(
        "/api/v1/tokens", {"name": "laptop"}, content_type="application/json", headers=basic(person.username, PASSWORD)
    )
    assert made.status_code == 201
    text = made.json()["token"]
    listed = client.get("/api/v1/tokens", headers=bearer(text))
    assert [item["name"] for item in listed.json()["items"]] == ["laptop"]
    assert "token" not in listed.json()["items"][0]
    row = ApiToken.objects.as_system().get()
    assert text not in str(row.__dict__)
    assert row.last_used_at is not None


def test_the_name_may_be_left_out(client: Client, person) -> None:
    made = client.post("/api/v1/tokens", headers=basic(person.username, PASSWORD))
    assert made.status_code in {201, 415}, made.content
    made = client.post(
        "/api/v1/tokens", "{}", content_type="application/json", headers=basic(person.username, PASSWORD)
    )
    assert made.json()["name"] == "api"


def test_no_credentials_is_a_401_that_says_what_to_send(client: Client) -> None:
    answer = client.get("/api/v1/tokens")
    refused(answer)
    assert answer["WWW-Authenticate"] == 'Bearer realm="mlportal"'
    assert "Bearer" in answer.json()["next"]


def test_expired_revoked_unknown_and_deactivated_are_told_apart(client: Client, person, token) -> None:
    row, text = token
    refused(client.get("/api/v1/tokens", headers=bearer(text + "x")), "not known")
    rows = ApiToken.objects.as_system().filter(pk=row.pk)
    rows.update(expires_at=timezone.now() - timedelta(seconds=1))
    refused(client.get("/api/v1/tokens", headers=bearer(text)), "expired")
    rows.update(expires_at=timezone.now() + timedelta(days=1))
    tokens.revoke(actor=make.actor(person), token=row)
    refused(client.get("/api/v1/tokens", headers=bearer(text)), "revoked")
    rows.update(revoked_at=None)
    person.is_active = False
    person.save()
    refused(client.get("/api/v1/tokens", headers=bearer(text)), "deactivated")


@pytest.mark.parametrize("header", ["Token abc", "Basic YTpi", "Negotiate x", "Bearer", "bearer  ", "\xffabc"])
def test_another_scheme_is_refused_even_with_a_session(client: Client, person, header: str) -> None:
    client.force_login(person)
    refused(client.get("/api/v1/tokens", headers={"Authorization": header}))


def test_basic_is_for_making_tokens_only(client: Client, person) -> None:
    refused(client.get("/api/v1/tokens", headers=basic(person.username, PASSWORD)), "Bearer")
    refused(client.get("/api/v1/audit", headers=basic(person.username, PASSWORD)), "Bearer")


def test_a_wrong_password_is_told_what_helps_and_that_is_no_token(client: Client, person) -> None:
    answer = post(client, "{}", basic(person.username, "no"))
    refused(answer, "do not fit")
    assert "password" in answer.json()["next"]
    assert "token" not in answer.json()["next"].lower()


def test_guessing_is_stopped_after_ten_failures_and_the_right_password_does_not_help_then(client, person) -> None:
    for _ in range(10):
        answer = client.post(
            "/api/v1/tokens", "{}", content_type="application/json", headers=basic(person.username, "no")
        )
        refused(answer, "do not fit")
    answer = client.post(
        "/api/v1/tokens", "{}", content_type="application/json", headers=basic(person.username, PASSWORD)
    )
    refused(answer, status=429, code="too_many_attempts")


def test_a_session_needs_the_csrf_token_to_write(person) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(person)
    assert client.get("/api/v1/tokens").status_code == 200
    refused(client.post("/api/v1/tokens", "{}", content_type="application/json"), status=403, code="permission_denied")


def test_a_bearer_token_needs_no_csrf_token(token) -> None:
    client = Client(enforce_csrf_checks=True)
    answer = client.post("/api/v1/tokens", "{}", content_type="application/json", headers=bearer(token[1]))
    assert answer.status_code == 201


def test_what_a_token_does_is_audited_with_the_token(client, token) -> None:
    row, text = token
    client.post("/api/v1/tokens", {"name": "second"}, content_type="application/json", headers=bearer(text))
    entry = AuditEntry.objects.as_system().order_by("-pk").first()
    assert (entry.verb, entry.token_id, entry.actor_id) == ("token.create", row.pk, row.user_id)


def test_a_scoped_token_does_what_its_scopes_name_and_nothing_else(client, person) -> None:
    _row, text = tokens.create(actor=make.actor(person), name="reader", scopes=["token:read"])
    assert client.get("/api/v1/tokens", headers=bearer(text)).status_code == 200
    refused(client.get("/api/v1/audit", headers=bearer(text)), "audit:read", status=403, code="scope_missing")
    answer = client.post("/api/v1/tokens", "{}", content_type="application/json", headers=bearer(text))
    refused(answer, status=403, code="scope_missing")


def test_a_scope_may_name_one_object(client, person, token) -> None:
    other, _ = tokens.create(actor=make.actor(person), name="other")
    _row, text = tokens.create(actor=make.actor(person), name="one", scopes=[f"token:read:{other.pk}"])
    assert client.get(f"/api/v1/tokens/{other.pk}", headers=bearer(text)).status_code == 200
    refused(client.get(f"/api/v1/tokens/{token[0].pk}", headers=bearer(text)), status=403, code="scope_missing")
    refused(client.get("/api/v1/tokens", headers=bearer(text)), status=403, code="scope_missing")


@pytest.mark.parametrize("scope", ["flow:run:" + "-" * 36, "flow:run:" + "a" * 36, "flow:run:1"])
def test_a_scope_that_names_no_id_is_refused(person, scope: str) -> None:
    with pytest.raises(Invalid):
        tokens.create(actor=make.actor(person), name="x", scopes=[scope])


def test_anothers_token_is_not_there(client, token) -> None:
    _row, text = tokens.create(actor=make.actor(make.user()), name="mine")
    refused(client.get(f"/api/v1/tokens/{token[0].pk}", headers=bearer(text)), status=404, code="not_found")
    refused(client.delete(f"/api/v1/tokens/{token[0].pk}", headers=bearer(text)), status=404, code="not_found")


def test_use_is_written_at_most_once_a_minute(client, token, django_assert_num_queries) -> None:
    row, text = token
    client.get("/api/v1/tokens", headers=bearer(text))
    row.refresh_from_db()
    first = row.last_used_at
    client.get("/api/v1/tokens", headers=bearer(text))
    row.refresh_from_db()
    assert row.last_used_at == first
    with django_assert_num_queries(2):  # the token with its user, the list
        client.get("/api/v1/tokens", headers=bearer(text))


def test_unknown_fields_and_bad_values_are_named_by_pointer(client, token) -> None:
    def send(body: str):
        return post(client, body, bearer(token[1]))

    refused(send('{"nmae": "x"}'), status=422, code="unknown_field")
    answer = send('{"name": "x", "days": 4000, "scopes": ["DROP TABLE"]}')
    refused(answer, status=422, code="invalid")
    assert {error["pointer"] for error in answer.json()["errors"]} == {"/days", "/scopes"}
    answer = send('{"name": "a/b"}')
    refused(answer, status=422, code="name_invalid")
    assert answer.json()["errors"][0]["pointer"] == "/name"
    refused(send("[1]"), status=422, code="invalid")
    refused(send("{"), status=400, code="parse_error")


def test_a_counter_that_expires_while_it_is_raised_is_a_first_failure_and_no_fault(monkeypatch) -> None:
    person = make.user(password="a long password")
    expired: list[str] = []
    raised = cache.incr

    def expire_first(key: str, *args: int) -> int:
        expired.append(key)
        cache.delete(key)
        return raised(key, *args)

    def wrong() -> None:
        given = {"request": None, "username": person.username, "password": "wrong", "address": None}
        assert passwords.sign_in(**given) is None

    wrong()
    with monkeypatch.context() as late:
        late.setattr(cache, "incr", expire_first)
        wrong()
    assert len(expired) == 1
    assert cache.get(expired[0]) == 1
