"""Accounts: what ends at once when one is deactivated or gets a new password."""

from __future__ import annotations

import base64

import pytest
from django.test import Client
from django.urls import reverse

from apps.tenants import people, tokens
from tests.tenants import make

pytestmark = pytest.mark.django_db


def test_sessions_and_tokens_of_a_deactivated_person_are_refused_at_once(client: Client) -> None:
    person = make.user()
    client.force_login(person)
    _row, text = tokens.create(actor=make.actor(person), name="ci")
    bearer = {"Authorization": f"Bearer {text}"}
    assert client.get("/api/v1/tokens").status_code == 200
    people.deactivate(actor=make.actor(make.admin()), user=person)
    assert client.get("/api/v1/tokens").status_code == 401
    assert client.get("/account").status_code == 302
    assert Client().get("/api/v1/tokens", headers=bearer).status_code == 401
    people.activate(actor=make.actor(make.admin()), user=person)
    assert Client().get("/api/v1/tokens", headers=bearer).status_code == 401


def test_a_password_that_somebody_else_gave_opens_no_api_until_it_is_changed(client: Client) -> None:
    _person, given = people.create(actor=make.actor(make.admin()), username="li")
    basic = {"Authorization": "Basic " + base64.b64encode(f"li:{given}".encode()).decode()}

    def told(answer) -> tuple[int, str]:
        assert "browser" in answer.json()["next"]
        return answer.status_code, answer.json()["code"]

    refused = (403, "password_change_required")
    assert told(client.post("/api/v1/tokens", "{}", content_type="application/json", headers=basic)) == refused
    assert client.login(username="li", password=given)
    assert told(client.get("/api/v1/queues")) == refused
    assert told(client.post("/api/v1/tokens", "{}", content_type="application/json")) == refused
    change = {"old_password": given, "new_password1": "correct horse 9", "new_password2": "correct horse 9"}
    assert client.post(reverse("core:password"), change).status_code == 302
    assert client.get("/api/v1/queues").status_code == 200


def test_a_new_password_revokes_the_tokens_that_were_made_with_the_old_one(client: Client) -> None:
    person, other = make.user(), make.user()
    texts = [tokens.create(actor=make.actor(owner), name="ci")[1] for owner in (person, other)]
    people.reset_password(actor=make.actor(make.admin()), user=person)
    answers = [client.get("/api/v1/tokens", headers={"Authorization": f"Bearer {text}"}) for text in texts]
    assert [answer.status_code for answer in answers] == [401, 200]
    assert "revoked" in answers[0].json()["detail"]
