"""REST for queues, teams, people, catalogue and volumes: who sees what, and errors that say what to do."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from django.test import Client

from apps.catalog.models import Image, Size
from apps.core.models import AuditEntry
from apps.storage.models import Volume, VolumeKind
from apps.storage.states import VolumeState
from apps.tenants import tokens
from apps.tenants.models import Membership, Queue, Role, Team, User
from tests.tenants import make

pytestmark = pytest.mark.django_db
GIB = make.GIB


class Api:
    """A person with a token."""

    def __init__(self, person: User) -> None:
        self.person = person
        _row, text = tokens.create(actor=make.actor(person), name="t")
        self.client = Client(headers={"Authorization": f"Bearer {text}"})

    def __call__(self, method: str, path: str, body: Any = None, status: int = 200, **headers: str) -> Any:
        answer = self.client.generic(
            method, f"/api/v1/{path}", *([] if body is None else [json.dumps(body)]),
            content_type="application/json", headers=headers,
        )  # fmt: skip
        assert answer.status_code == status, (answer.status_code, answer.content)
        return answer.json() if answer.content else None


@pytest.fixture
def admin() -> Api:
    return Api(make.admin())


@pytest.fixture
def queue() -> Queue:
    return make.queue()


@pytest.fixture
def member(queue: Queue) -> Api:
    return Api(make.user(role_in=queue.team))


@pytest.fixture
def stranger() -> Api:
    return Api(make.user(role_in=make.team()))


def names(page: dict) -> list[str]:
    return [item["name"] for item in page["items"]]


def test_a_queue_is_made_shown_changed_and_deleted(admin: Api) -> None:
    team, cluster = make.team(), make.cluster()
    body = {"name": "视觉", "team": team.name, "cluster": str(cluster.pk), "cpu_millis": 8000, "memory_bytes": 32 * GIB}
    body |= {"storage_bytes": GIB, "gpus": {"nvidia.com/gpu": 4}, "cpu_oversell": "2"}
    made = admin("POST", "queues", body, 201)
    assert (made["name"], made["state"], made["reason"]) == ("视觉", "creating", None)
    assert made["usage"]["cpu_millis"] == {"used": 0, "limit": 16000}
    assert made["links"]["self"].endswith(f"/api/v1/queues/{made['id']}")
    changed = admin("PATCH", f"queues/{made['id']}", {"pods": 7})
    assert changed["pods"] == 7
    assert admin("GET", f"queues/{made['id']}")["usage"]["pods"]["limit"] == 7
    assert admin("DELETE", f"queues/{made['id']}", status=202)["state"] == "deleting"


def test_an_idempotency_key_makes_one_queue(admin: Api) -> None:
    body = {"name": "q", "team": make.team().name, "cluster": make.cluster().name}
    body |= {"cpu_millis": 1, "memory_bytes": 1, "storage_bytes": 1}
    headers = {"Idempotency-Key": "once"}
    first, second = (admin("POST", "queues", body, 201, **headers) for _ in range(2))
    assert first["id"] == second["id"]
    assert Queue.objects.as_system().count() == 1


def test_queues_teams_and_volumes_of_others_are_not_there(member: Api, stranger: Api, queue: Queue) -> None:
    volume = Volume.objects.create(
        name="v", queue=queue, owner=member.person, size_bytes=GIB, claim="v", state=VolumeState.BOUND
    )
    paths = [f"queues/{queue.pk}", f"teams/{queue.team_id}", f"volumes/{volume.pk}", f"users/{member.person.pk}"]
    for path in paths:
        assert member("GET", path)["id"]
        assert stranger("GET", path, status=404)["code"] == "not_found"
    assert stranger("GET", f"queues/{uuid.uuid4()}", status=404) == stranger("GET", paths[0], status=404)
    assert stranger("GET", "queues")["items"] == stranger("GET", "volumes")["items"] == []
    for method, path in (("DELETE", paths[2]), ("PATCH", paths[2]), ("DELETE", paths[0]), ("DELETE", paths[1])):
        stranger(method, path, {"size_bytes": 2 * GIB} if method == "PATCH" else None, status=404)
    refused = stranger("POST", "volumes", {"name": "x", "queue": str(queue.pk), "size_bytes": GIB}, 422)
    unknown = stranger("POST", "volumes", {"name": "x", "queue": str(uuid.uuid4()), "size_bytes": GIB}, 422)
    assert refused["code"] == unknown["code"] == "queue_unknown"


def test_another_members_home_is_hidden_but_data_is_shared_to_see(member: Api, queue: Queue) -> None:
    owner = make.user(role_in=queue.team)
    for name, kind in (("home-x", VolumeKind.HOME), ("data", VolumeKind.DATA)):
        Volume.objects.create(
            name=name, queue=queue, owner=owner, size_bytes=GIB, claim=name, kind=kind, state=VolumeState.BOUND
        )
    assert names(member("GET", "volumes")) == ["data"]
    assert names(Api(owner)("GET", "volumes")) == ["data", "home-x"]


def test_a_volume_over_quota_is_refused_with_figures_and_the_change_that_fits(member: Api, queue: Queue) -> None:
    body = {"name": "imagenet", "queue": queue.name, "size_bytes": 101 * GIB}
    refused = member("POST", "volumes", body, 409)
    assert refused["code"] == "over_quota"
    assert refused["data"]["storage_bytes"] == {
        "asked": 101 * GIB, "used": 0, "limit": 100 * GIB, "missing": GIB
    }  # fmt: skip
    assert "100 GiB" in refused["next"]
    assert member("POST", "volumes", {**body, "size_bytes": GIB}, 201)["state"] == "creating"
    assert member("GET", f"volumes?queue={queue.name}&state=creating&sort=-size")["items"][0]["name"] == "imagenet"


def test_lists_are_three_statements_at_any_number_of_rows(member: Api, queue, django_assert_num_queries) -> None:
    for number in range(5):
        make.queue(in_team=queue.team)
        member("POST", "volumes", {"name": f"v{number}", "queue": queue.name, "size_bytes": GIB}, 201)
    member("GET", "queues")
    for path, count in (("queues", 2), ("volumes", 1), ("teams", 2), ("users", 1), ("images", 1), ("clusters", 2)):
        with django_assert_num_queries(1 + count):  # 1: the token with its person
            member("GET", path)


def test_members_are_added_from_a_pasted_list_all_or_nothing(queue: Queue) -> None:
    leader = Api(make.user(role_in=queue.team, role=Role.ADMIN))
    for name in ("li", "wang", "zhang"):
        make.user(username=name)
    path = f"teams/{queue.team_id}/members"
    refused = leader("POST", path, {"members": "li\nnobody\nwang boss\n# a remark\nli"}, 422)
    assert [line["line"] for line in refused["data"]["lines"]] == [2, 3, 5]
    assert refused["errors"][0]["pointer"] == "/members"
    assert Membership.objects.as_system().filter(team=queue.team).count() == 1
    added = leader("POST", path, {"members": "li, viewer\n\nwang\tadmin\nzhang"})
    roles = {row["user"]: row["role"] for row in added["members"]}
    assert {name: roles[name] for name in ("li", "wang", "zhang")} == {
        "li": "viewer",
        "wang": "admin",
        "zhang": "member",
    }
    gone = leader("POST", f"teams/{queue.team_id}/remove-member", {"user": "li"})
    assert "li" not in {row["user"] for row in gone["members"]}
    verbs = list(AuditEntry.objects.as_system().filter(object_kind="team").values_list("verb", flat=True))
    assert sorted(verbs) == ["team.member.add"] * 3 + ["team.member.remove"]


def test_a_plain_member_manages_nobody(member: Api, queue: Queue) -> None:
    make.user(username="li")
    refused = member("POST", f"teams/{queue.team_id}/members", {"members": "li"}, 403)
    assert refused["code"] == "role_too_low"
    for method, path, body in (
        ("POST", "teams", {"name": "x"}),
        ("POST", "users", {"username": "x"}),
        ("PATCH", f"users/{member.person.pk}", {"is_platform_admin": True}),
        ("POST", f"users/{member.person.pk}/reset-password", None),
        ("POST", "images", {"name": "x", "reference": "a/b", "purpose": "dev"}),
        ("POST", "sizes", {"name": "x", "cpu_millis": 1, "memory_bytes": GIB}),
        ("PATCH", f"queues/{queue.pk}", {"pods": 1}),
        ("DELETE", f"teams/{queue.team_id}", None),
        ("POST", "clusters", {"name": "x", "kubeconfig": "{}"}),
    ):
        assert member(method, path, body, 403)["code"] == "admin_only", path


def test_an_account_is_made_with_a_password_shown_once(admin: Api) -> None:
    made = admin("POST", "users", {"username": "li.hua", "email": "li@example.org"}, 201)
    assert Client().login(username="li.hua", password=made["password"])
    assert "password" not in admin("GET", f"users/{made['id']}")
    again = admin("POST", f"users/{made['id']}/reset-password")
    assert not Client().login(username="li.hua", password=made["password"])
    assert Client().login(username="li.hua", password=again["password"])
    assert User.objects.as_system().get(username="li.hua").must_change_password


def test_deactivation_ends_tokens_and_the_last_administrator_stays(admin: Api) -> None:
    person = Api(make.user())
    admin("PATCH", f"users/{person.person.pk}", {"is_active": False})
    assert person("GET", "queues", status=401)["code"] == "not_authenticated"
    for change in ({"is_active": False}, {"is_platform_admin": False}):
        assert admin("PATCH", f"users/{admin.person.pk}", change, 409)["code"] == "last_admin"
    admin("PATCH", f"users/{make.user().pk}", {"is_platform_admin": True})
    assert admin("PATCH", f"users/{admin.person.pk}", {"is_active": False})["is_active"] is False


@pytest.mark.parametrize("name", ["x" * 64, "a/b", 'quo"te', "", "new\nline", "two words"])
def test_bad_user_names_are_refused_at_their_field(admin: Api, name: str) -> None:
    refused = admin("POST", "users", {"username": name}, 422)
    assert refused["errors"][0]["pointer"] == "/username"


def test_mail_addresses_are_for_administrators_and_oneself(admin: Api, member: Api, queue: Queue) -> None:
    mate = make.user(role_in=queue.team, email="mate@example.org")
    assert member("GET", f"users/{mate.pk}")["email"] is None
    assert admin("GET", f"users/{mate.pk}")["email"] == "mate@example.org"
    assert Api(mate)("GET", f"users/{mate.pk}")["email"] == "mate@example.org"


def test_the_catalogue_is_kept_by_administrators_with_an_audit_trail(admin: Api, member: Api) -> None:
    image = admin("POST", "images", {"name": "torch", "reference": "team/torch:2", "purpose": "dev"}, 201)
    assert names(member("GET", "images?purpose=dev")) == ["torch"]
    admin("PATCH", f"images/{image['id']}", {"retired": True})
    assert names(member("GET", "images?retired=no")) == []
    size = admin("POST", "sizes", {"name": "xl", "cpu_millis": 8000, "memory_bytes": 64 * GIB, "gpus": 2}, 201)
    assert size["gpu_resource"] == "nvidia.com/gpu"
    entry = AuditEntry.objects.as_system().get(verb="image.update")
    assert entry.detail == {"retired": [False, True]}
    bad = admin("POST", "images", {"name": "b", "reference": "No Such:Image!", "purpose": "dev"}, 422)
    assert bad["errors"][0]["pointer"] == "/reference"
    bad = admin("PATCH", f"sizes/{size['id']}", {"cpu_millis": 0, "gpus": -1}, 422)
    assert {error["pointer"] for error in bad["errors"]} == {"/cpu_millis", "/gpus"}
    assert admin("POST", "images", {"name": "torch", "reference": "x", "purpose": "dev"}, 409)["code"] == "name_taken"
    assert (Image.objects.as_system().count(), Size.objects.as_system().count()) == (1, 1)


def test_a_team_with_queues_is_not_deleted(admin: Api, queue: Queue) -> None:
    assert admin("DELETE", f"teams/{queue.team_id}", status=409)["code"] == "team_has_queues"
    empty = make.team()
    admin("DELETE", f"teams/{empty.pk}", status=204)
    assert not Team.objects.as_system().filter(pk=empty.pk).exists()


def test_the_openapi_document_is_complete_and_without_warnings(client: Client, capsys) -> None:
    document = client.get("/api/v1/openapi.json").json()
    paths = document["paths"]
    for name in ("tokens", "teams", "queues", "clusters", "images", "sizes", "volumes", "users", "audit"):
        assert f"/api/v1/{name}" in paths, name
    listed = paths["/api/v1/queues"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    assert listed == {"$ref": "#/components/schemas/QueueItemPage"}
    assert "Warning" not in capsys.readouterr().err
