"""Pages of queues, teams, people and the account: who sees what, what a person reads, what a button does."""

from __future__ import annotations

import re
import uuid

import pytest
from django.http import HttpResponse
from django.test import Client
from django.urls import reverse

from apps.tenants import ledger
from apps.tenants.ledger import Amount
from apps.tenants.models import ApiToken, Membership, Queue, Role, User
from tests.tenants import make

pytestmark = pytest.mark.django_db
GIB = make.GIB


@pytest.fixture
def queue() -> Queue:
    return make.queue(name="vision", gpus={"nvidia.com/gpu": 2})


def signed_in(person: User) -> Client:
    client = Client()
    client.force_login(person)
    return client


@pytest.fixture
def admin() -> Client:
    return signed_in(make.admin())


@pytest.fixture
def member(queue: Queue) -> Client:
    return signed_in(make.user(role_in=queue.team))


def text_of(answer) -> str:
    assert answer.status_code == 200, (answer.status_code, answer.content[:500])
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.content.decode()))


def test_the_list_shows_use_and_the_over_quota_mark(member: Client, queue: Queue) -> None:
    object_id = uuid.uuid4()
    ledger.reserve(queue_id=queue.pk, kind="thing", object_id=object_id, amount=Amount(cpu_millis=3000))
    shown = text_of(member.get("/queues"))
    assert "vision" in shown
    assert "3 of 4" in shown
    assert "0 of 2" in shown
    assert "over quota" not in shown
    Queue.objects.as_system().filter(pk=queue.pk).update(cpu_millis=2000)
    assert "over quota" in text_of(member.get(f"/queues?row={queue.pk}"))
    assert "Over quota : CPU 3 of 2" in text_of(member.get(f"/queues/{queue.pk}"))


def test_the_list_is_two_statements_at_any_number_of_queues(queue: Queue, django_assert_num_queries) -> None:
    person = make.user(role_in=queue.team)
    for _ in range(4):
        make.queue(in_team=queue.team)
    client = signed_in(person)
    client.get("/queues")
    with django_assert_num_queries(2 + 2):  # session, person; queues, their use
        client.get("/queues", headers={"HX-Request": "true"})


def test_holders_are_named_only_to_those_who_may_see_them(member: Client, admin: Client, queue: Queue) -> None:
    from apps.storage import services

    owner = make.user(role_in=queue.team)
    services.ensure_home(actor=make.actor(owner), queue=queue)
    seen_by_admin = text_of(admin.get(f"/queues/{queue.pk}/holders"))
    assert f"home-{owner.username}" in seen_by_admin
    seen_by_member = text_of(member.get(f"/queues/{queue.pk}/holders"))
    assert f"home-{owner.username}" not in seen_by_member
    assert "10 GiB storage" in seen_by_member


def test_another_teams_queue_is_not_found(queue: Queue) -> None:
    stranger = signed_in(make.user(role_in=make.team()))
    for path in (f"/queues/{queue.pk}", f"/queues/{queue.pk}/holders", f"/teams/{queue.team_id}"):
        assert stranger.get(path).status_code == 404
    assert "vision" not in text_of(stranger.get("/queues"))


def test_a_quota_is_changed_in_peoples_units(admin: Client, queue: Queue) -> None:
    page = admin.get(f"/queues/{queue.pk}/quota").content.decode()
    assert 'value="8 GiB"' in page
    assert "nvidia.com/gpu 2" in page
    form = {"cpu_millis": "2.5", "memory_bytes": "512 MiB", "storage_bytes": "7", "gpus": "nvidia.com/gpu 3"}
    form |= {"cpu_oversell": "2", "memory_oversell": "1", "claims": "5", "pods": "6"}
    answer = admin.post(f"/queues/{queue.pk}/quota", form)
    assert answer["Location"] == f"/queues/{queue.pk}"
    queue.refresh_from_db()
    assert (queue.cpu_millis, queue.memory_bytes, queue.storage_bytes) == (2500, 512 << 20, 7 * GIB)
    assert (queue.gpus, queue.cpu_oversell, queue.claims) == ({"nvidia.com/gpu": 3}, 2, 5)
    answer = admin.post(f"/queues/{queue.pk}/quota", {**form, "memory_bytes": "lots", "gpus": "gpu"})
    assert answer.status_code == 422
    assert "lots" in answer.content.decode()
    assert "This is not a size" in answer.content.decode()


def test_a_double_click_on_create_makes_one_queue(admin: Client) -> None:
    page = admin.get("/queues/new").content.decode()
    once = re.search(r'name="once" value="([^"]+)"', page)[1]
    form = {"name": "new", "team": make.team().pk, "cluster": make.cluster().pk, "once": once, "cpu_millis": "1"}
    form |= {"memory_bytes": "1", "storage_bytes": "1", "cpu_oversell": "1", "memory_oversell": "1"}
    form |= {"claims": "1", "pods": "1"}
    targets = {admin.post("/queues/new", form)["Location"] for _ in range(2)}
    assert len(targets) == 1
    assert Queue.objects.as_system().count() == 1


def test_administrators_pages_refuse_others_in_words(member: Client, queue: Queue) -> None:
    for path in ("/queues/new", f"/queues/{queue.pk}/quota", "/users", "/users/new", "/teams/new"):
        answer = member.get(path)
        assert answer.status_code == 403
        assert "platform administrators" in answer.content.decode()
    assert member.post(f"/queues/{queue.pk}/delete").status_code == 302
    queue.refresh_from_db()
    assert queue.state == "ready"


@pytest.mark.parametrize("path", ["/queues", "/teams", "/users", "/account", "/queues/new"])
def test_without_a_session_every_page_leads_to_sign_in(client: Client, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 302
    assert answer["Location"].startswith("/sign-in")


def test_a_leader_adds_members_and_changes_roles(queue: Queue) -> None:
    leader = signed_in(make.user(role_in=queue.team, role=Role.ADMIN))
    li = make.user(username="li")
    answer = leader.post(f"/teams/{queue.team_id}/add", {"members": "li\nnobody"})
    assert answer.status_code == 422
    assert "Line 2: there is no user named “nobody”." in answer.content.decode()
    assert leader.post(f"/teams/{queue.team_id}/add", {"members": "li viewer"}).status_code == 302
    row = Membership.objects.as_system().get(user=li)
    assert row.role == "viewer"
    leader.post(f"/teams/{queue.team_id}/members/{li.pk}/role", {"role": "admin"})
    row.refresh_from_db()
    assert row.role == "admin"
    leader.post(f"/teams/{queue.team_id}/members/{li.pk}/remove")
    assert not Membership.objects.as_system().filter(user=li).exists()


def test_a_member_may_leave_but_remove_nobody(queue: Queue) -> None:
    person, other = make.user(role_in=queue.team), make.user(role_in=queue.team)
    client = signed_in(person)
    client.post(f"/teams/{queue.team_id}/members/{other.pk}/remove")
    assert Membership.objects.as_system().filter(user=other).exists()
    assert client.post(f"/teams/{queue.team_id}/members/{person.pk}/remove")["Location"] == "/teams"
    assert not Membership.objects.as_system().filter(user=person).exists()


def test_a_new_account_shows_its_password_once_and_stores_it_nowhere(admin: Client) -> None:
    answer = admin.post("/users/new", {"username": "li.hua", "once": str(uuid.uuid4())})
    password = re.search(r"data-once>.*?<code>([^<]+)</code>", answer.content.decode())[1]
    assert answer["Cache-Control"] == "no-store"
    assert Client().login(username="li.hua", password=password)
    assert password not in str(admin.session.items())
    assert password not in admin.get("/users").content.decode()


def test_a_double_click_on_make_the_account_leaves_a_password_that_works_on_the_page(admin: Client) -> None:
    once = str(uuid.uuid4())
    admin.post("/users/new", {"username": "li.hua", "once": once})
    answer = admin.post("/users/new", {"username": "li.hua", "once": once})
    password = re.search(r"data-once>.*?<code>([^<]+)</code>", answer.content.decode())[1]
    assert Client().login(username="li.hua", password=password)
    assert "data-once" not in admin.post("/users/new", {"username": "li.hua", "once": once}).content.decode()


def test_a_form_whose_once_is_no_id_makes_the_account_all_the_same(admin: Client) -> None:
    answer = admin.post("/users/new", {"username": "li.hua", "once": "not an id"})
    assert answer.status_code == 200
    assert "data-once" in answer.content.decode()


def token_text(answer: HttpResponse) -> str:
    found = re.search(r"<code>(mlp_[^<…]{20,})</code>", answer.content.decode())
    assert found is not None
    return found[1]


def is_good(text: str) -> bool:
    return Client().get("/api/v1/queues", headers={"Authorization": f"Bearer {text}"}).status_code == 200


def test_a_double_click_on_make_a_token_leaves_one_token_whose_text_on_the_page_works(member: Client) -> None:
    form = {"name": "laptop", "days": "30", "once": str(uuid.uuid4())}
    member.post("/account", form)
    text = token_text(member.post("/account", form))
    assert ApiToken.objects.as_system().count() == 1
    assert is_good(text)
    again = member.post("/account", form)  # it is in use now: its text stays
    assert again.status_code == 409
    assert is_good(text)


def test_the_same_form_filled_in_anew_makes_a_second_token_and_the_first_goes_on(member: Client) -> None:
    form = {"name": "laptop", "days": "30", "once": str(uuid.uuid4())}
    first = token_text(member.post("/account", form))
    second = token_text(member.post("/account", {**form, "name": "desktop"}))
    assert is_good(first)
    assert is_good(second)
    assert member.post("/account", {**form, "name": "third", "once": "no id"}).status_code == 200
    assert ApiToken.objects.as_system().count() == 3


def test_an_account_is_deactivated_and_promoted_by_buttons(admin: Client) -> None:
    person = make.user()
    admin.post(reverse("tenants:user-make-admin", args=[person.pk]))
    admin.post(reverse("tenants:user-deactivate", args=[person.pk]))
    person.refresh_from_db()
    assert (person.is_platform_admin, person.is_active) == (True, False)
    assert "deactivated" in text_of(admin.get("/users"))


def test_a_token_is_shown_once_listed_and_revoked(member: Client) -> None:
    answer = member.post("/account", {"name": "laptop", "days": "30", "scopes": ""})
    text = re.search(r"<code>(mlp_[^<…]{20,})</code>", answer.content.decode())[1]
    bearer = {"Authorization": f"Bearer {text}"}
    assert Client().get("/api/v1/queues", headers=bearer).status_code == 200
    assert text not in member.get("/account").content.decode()
    token = ApiToken.objects.as_system().get()
    member.post(f"/account/tokens/{token.pk}/revoke")
    assert Client().get("/api/v1/queues", headers=bearer).status_code == 401
    assert "revoked" in text_of(member.get("/account"))


def test_somebody_elses_token_cannot_be_revoked(member: Client) -> None:
    other = make.user()
    signed_in(other).post("/account", {"name": "laptop", "days": "30"})
    token = ApiToken.objects.as_system().get()
    assert member.post(f"/account/tokens/{token.pk}/revoke").status_code == 404
    token.refresh_from_db()
    assert token.revoked_at is None


def test_the_yaml_tab_shows_namespace_quota_and_policies_as_written(member: Client, queue: Queue) -> None:
    text = member.get(f"/queues/{queue.pk}/yaml").content.decode()
    for kind in ("Namespace", "ResourceQuota", "LimitRange", "NetworkPolicy"):
        assert f"kind: {kind}" in text
    assert queue.namespace in text
