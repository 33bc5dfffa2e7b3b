"""Pages of the base: frame, sign-in, preferences, health, audit, errors."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.core.cache import cache
from django.test import Client

from apps.core import actors, audit

pytestmark = pytest.mark.django_db


def person(name: str = "wei", *, admin: bool = False, **values: Any) -> Any:
    return get_user_model().objects.create_user(name, password="a long password", is_platform_admin=admin, **values)


@pytest.fixture(autouse=True)
def _no_old_counters() -> None:
    cache.clear()


def sign_in(client: Client, user: Any) -> Any:
    client.force_login(user)
    return client


def test_a_signed_out_person_is_led_to_the_sign_in_page_and_back(client: Client) -> None:
    person()
    answer = client.get("/audit")
    assert answer.status_code == 302
    assert answer["Location"] == "/sign-in?next=/audit"
    answer = client.post(answer["Location"], {"username": "wei", "password": "a long password", "next": "/audit"})
    assert answer.status_code == 302
    assert answer["Location"] == "/audit"


def test_sign_in_never_leads_to_another_site(client: Client) -> None:
    person()
    answer = client.post("/sign-in", {"username": "wei", "password": "a long password", "next": "//evil.example/"})
    assert answer["Location"] == "/"


def test_unknown_name_and_wrong_password_read_alike(client: Client) -> None:
    person()
    wrong = client.post("/sign-in", {"username": "wei", "password": "x"})
    unknown = client.post("/sign-in", {"username": "nobody", "password": "x"})
    assert wrong.status_code == unknown.status_code == 422
    sentence = "Name and password do not fit."
    assert sentence in wrong.text
    assert sentence in unknown.text


def test_an_inactive_person_reads_the_same_sentence(client: Client) -> None:
    person(is_active=False)
    answer = client.post("/sign-in", {"username": "wei", "password": "a long password"})
    assert "Name and password do not fit." in answer.text


def test_too_many_failures_are_said_in_words_with_status_429(client: Client) -> None:
    person()
    for _ in range(10):
        client.post("/sign-in", {"username": "wei", "password": "x"})
    answer = client.post("/sign-in", {"username": "wei", "password": "a long password"})
    assert answer.status_code == 429
    assert "too many failed attempts" in answer.text
    assert "Wait a quarter of an hour" in answer.text


def test_a_first_password_must_be_changed_before_anything_else(client: Client) -> None:
    person(must_change_password=True)
    answer = client.post("/sign-in", {"username": "wei", "password": "a long password"})
    assert answer["Location"] == "/password"
    assert client.get("/audit")["Location"] == "/password"
    new = "another quite long one"
    answer = client.post("/password", {"old_password": "a long password", "new_password1": new, "new_password2": new})
    assert answer["Location"] == "/"
    assert client.get("/audit").status_code == 200
    assert audit.history(get_user_model().objects.get(username="wei"))[0].verb == "user.password"


def test_sign_out_ends_the_session(client: Client) -> None:
    sign_in(client, person())
    assert client.get("/sign-out").status_code == 405
    assert client.post("/sign-out")["Location"] == "/sign-in"
    assert client.get("/")["Location"].startswith("/sign-in")


def test_a_fragment_of_an_ended_session_reloads_the_page_instead_of_showing_the_sign_in_form(client: Client) -> None:
    answer = client.get("/sign-in?next=/audit", headers={"HX-Request": "true"})
    assert answer.status_code == 204
    assert answer["HX-Refresh"] == "true"


def test_the_rail_shows_administration_to_administrators_alone(client: Client) -> None:
    text = sign_in(client, person()).get("/").text
    assert "Audit" in text
    assert 'href="/clusters"' not in text
    text = sign_in(Client(), person("root", admin=True)).get("/").text
    assert 'aria-current="page"' in text


def test_language_is_kept_with_the_person_and_used_at_once(client: Client) -> None:
    user = person()
    sign_in(client, user)
    answer = client.post("/preferences/language", {"language": "zh-hans", "next": "/audit?who=x"})
    assert answer["Location"] == "/audit?who=x"
    user.refresh_from_db()
    assert user.language == "zh-hans"
    assert '<html lang="zh-hans"' in client.get("/").text


def test_sign_in_brings_the_persons_language(client: Client) -> None:
    person(language="zh-hans")
    client.post("/sign-in", {"username": "wei", "password": "a long password"})
    assert '<html lang="zh-hans"' in client.get("/").text


def test_an_unknown_language_or_a_foreign_address_changes_nothing(client: Client) -> None:
    user = person()
    sign_in(client, user)
    answer = client.post("/preferences/language", {"language": "xx", "next": "https://evil.example/"})
    assert answer["Location"] == "/"
    user.refresh_from_db()
    assert user.language == ""


def test_theme_is_kept_with_the_person_and_drawn_without_a_flash(client: Client) -> None:
    user = person()
    sign_in(client, user)
    client.post("/preferences/theme", {"theme": "dark", "next": "/"})
    user.refresh_from_db()
    assert user.theme == "dark"
    assert 'data-bs-theme="dark"' in client.get("/").text


def test_the_chosen_queue_is_remembered_and_shown(client: Client) -> None:
    sign_in(client, person())
    client.post("/preferences/queue", {"queue": "vision", "next": "/"})
    text = client.get("/").text
    assert '<span class="switcher-name">vision</span>' in text
    client.post("/preferences/queue", {"queue": "", "next": "/"})
    assert '<span class="switcher-name">All queues</span>' in client.get("/").text


def test_no_page_holds_inline_script_or_style(client: Client) -> None:
    sign_in(client, person("root", admin=True))
    for address in ("/", "/audit", "/password", "/nothing-here"):
        text = client.get(address).text
        assert " style=" not in text, address
        assert "<style" not in text, address
        assert text.count("<script") == text.count("<script defer src=") + text.count("<script src="), address
        assert " onclick=" not in text, address


def test_health_needs_no_session_and_says_when_the_database_is_away(client: Client, monkeypatch: Any) -> None:
    assert json.loads(client.get("/livez").content) == {"status": "ok"}
    assert json.loads(client.get("/readyz").content) == {"status": "ok", "database": "ok"}
    from django.db import OperationalError

    from apps.core import views

    class Away:
        def cursor(self) -> Any:
            raise OperationalError("away")

    monkeypatch.setattr(views, "connection", Away())
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert json.loads(answer.content)["database"] == "OperationalError"


def test_audit_shows_own_actions_and_to_administrators_all(client: Client) -> None:
    mine, other = person(), person("anna")
    audit.record(actor=actors.from_user(mine), verb="user.password", obj=mine)
    audit.record(actor=actors.from_user(other), verb="user.rename", obj=other)
    text = sign_in(client, mine).get("/audit").text
    assert "changed the password" in text
    assert "user.rename" not in text
    text = sign_in(Client(), person("root", admin=True)).get("/audit").text
    assert "user.rename" in text


def test_audit_filters_stand_in_the_address_and_in_the_bar(client: Client) -> None:
    user = person("root", admin=True)
    audit.record(actor=actors.system("scheduler"), verb="run.start", obj=user)
    audit.record(actor=actors.from_user(user), verb="user.password", obj=user)
    text = sign_in(client, user).get("/audit?who=sched").text
    assert "run.start" in text
    assert "user.password" not in text
    assert 'value="sched"' in text
    assert "Nothing matches these filters." in client.get("/audit?who=nobody").text


def test_audit_pages_by_cursor_and_a_fragment_is_the_table_alone(client: Client) -> None:
    user = person("root", admin=True)
    for number in range(60):
        audit.record(actor=actors.from_user(user), verb=f"user.test{number:02d}", obj=user)
    first = sign_in(client, user).get("/audit", headers={"HX-Request": "true"}).text
    assert "<html" not in first
    assert "user.test59" in first
    assert "user.test09" not in first
    address = first.split('id="pager"')[1].split('href="')[1].split('"')[0].replace("&amp;", "&")
    second = client.get("/audit" + address).text
    assert "user.test09" in second
    assert "user.test00" in second
    assert "user.test59" not in second


def test_a_list_costs_the_same_at_any_length(client: Client, django_assert_max_num_queries: Any) -> None:
    user = person("root", admin=True)
    for number in range(55):
        audit.record(actor=actors.from_user(user), verb=f"user.test{number}", obj=user)
    sign_in(client, user)
    with django_assert_max_num_queries(2 + 3):
        listed = client.get("/audit")
    assert "user.test54" in listed.text


def test_a_list_that_cannot_be_read_answers_with_the_sentence_and_what_to_do(client: Client) -> None:
    sign_in(client, person())
    answer = client.get("/audit?sort=colour")
    assert answer.status_code == 422
    assert "This list cannot be sorted by “colour”." in answer.text
    fragment = client.get("/audit?sort=colour", headers={"HX-Request": "true"})
    assert fragment["HX-Retarget"] == "#toasts"
    assert "<html" not in fragment.text


def test_an_address_that_is_nothing_gets_the_portals_own_page(client: Client) -> None:
    answer = sign_in(client, person()).get("/nothing-here")
    assert answer.status_code == 404
    assert "There is nothing here under this name." in answer.text
    assert "rail" in answer.text
    assert "rail-link" not in Client().get("/nothing-here").text


def test_a_fault_shows_a_page_that_needs_neither_session_nor_database() -> None:
    from django.template.loader import get_template

    assert "Something in the portal itself went wrong." in get_template("500.html").render()
    assert "The portal cannot read this request." in get_template("400.html").render()
    assert "This form is too old" in get_template("403_csrf.html").render()
