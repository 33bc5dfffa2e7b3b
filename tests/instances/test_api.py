"""REST of instances."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.cache import cache
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from apps.instances.models import Instance
from apps.tenants import tokens
from apps.tenants.models import User
from tests.instances.conftest import World
from tests.tenants import make

LIST = "/api/v1/instances"


class Rest:
    """A client with a token."""

    def __init__(self, person: User) -> None:
        _row, text = tokens.create(actor=make.actor(person), name="t")
        self.headers = {"Authorization": f"Bearer {text}"}
        self.client = Client()

    def get(self, path: str) -> Any:
        return self.client.get(path, headers=self.headers)

    def post(self, path: str, body: dict[str, Any] | None = None, **headers: str) -> Any:
        return self.client.post(path, body or {}, "application/json", headers={**self.headers, **headers})

    def patch(self, path: str, body: dict[str, Any]) -> Any:
        return self.client.patch(path, body, "application/json", headers=self.headers)

    def delete(self, path: str) -> Any:
        return self.client.delete(path, headers=self.headers)


@pytest.fixture(autouse=True)
def _no_old_counters() -> None:
    cache.clear()


@pytest.fixture
def rest(world: World) -> Rest:
    return Rest(world.owner)


def body(world: World, **more: Any) -> dict[str, Any]:
    return {"image": "jupyter", "size": "small", "queue": world.queue.name, **more}


def test_three_fields_make_an_instance(world: World, rest: Rest) -> None:
    answer = rest.post(LIST, body(world))
    assert answer.status_code == 201, answer.content
    item = answer.json()
    assert item["name"] == "jupyter-1"
    assert item["state"] == "starting"
    assert item["reason"] is None
    assert item["url"] == f"http://i-{item['id'].replace('-', '')}.apps.localhost/"
    assert item["links"]["self"].endswith(f"/api/v1/instances/{item['id']}")
    assert [stage["name"] for stage in item["stages"]] == ["scheduled", "volume", "image", "started", "ready"]
    assert rest.get(f"{LIST}/{item['id']}").json()["id"] == item["id"]


def test_a_repeat_with_the_same_idempotency_key_finds_the_first(world: World, rest: Rest) -> None:
    ids = {rest.post(LIST, body(world), **{"Idempotency-Key": "a"}).json()["id"] for _ in range(2)}
    assert len(ids) == 1
    assert Instance.objects.as_system().count() == 1


def test_bad_input_has_a_code_and_a_place(world: World, rest: Rest) -> None:
    answer = rest.post(LIST, body(world, image="nothing"))
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (422, "image_unknown")
    assert problem["errors"][0]["pointer"] == "/image"
    assert "jupyter" in problem["next"]
    assert rest.post(LIST, body(world, colour="red")).json()["code"] == "unknown_field"


def test_over_quota_is_a_409_that_names_what_fits(world: World, rest: Rest) -> None:
    rest.post(LIST, body(world, size="large"))
    answer = rest.post(LIST, body(world, size="large"))
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (409, "over_quota")
    assert problem["data"]["size_that_fits"] == "small"


def test_stop_start_restart_change_and_delete(world: World, rest: Rest) -> None:
    instance = world.running()
    path = f"{LIST}/{instance.pk}"
    assert rest.patch(path, {"size": "large"}).json()["code"] == "not_stopped"
    assert rest.post(f"{path}/stop").json()["state"] == "stopping"
    world.reconcile(instance)
    world.cluster.remove_pod()
    world.reconcile(instance)
    assert rest.patch(path, {"size": "large"}).json()["size"] == "large"
    assert rest.post(f"{path}/start").json()["state"] == "starting"
    assert rest.post(f"{path}/restart").json()["state"] == "stopping"
    answer = rest.delete(path)
    assert (answer.status_code, answer.json()["state"]) == (202, "deleting")


def test_key_and_ticket_are_the_owner_s_and_never_kept_by_a_cache(world: World, rest: Rest) -> None:
    instance = world.running()
    answer = rest.get(f"{LIST}/{instance.pk}/key")
    assert answer.json() == {"key": instance.key.reveal()}
    assert answer["Cache-Control"] == "no-store"
    ticket = rest.post(f"{LIST}/{instance.pk}/ticket").json()
    assert ticket["url"].endswith("/portal/enter")
    colleague = Rest(world.colleague)
    assert colleague.get(f"{LIST}/{instance.pk}").status_code == 200
    assert colleague.get(f"{LIST}/{instance.pk}/key").status_code == 403
    assert colleague.post(f"{LIST}/{instance.pk}/ticket").status_code == 403
    assert colleague.post(f"{LIST}/{instance.pk}/stop").status_code == 403


def test_another_team_meets_404_everywhere(world: World) -> None:
    instance = world.running()
    other = Rest(world.stranger)
    path = f"{LIST}/{instance.pk}"
    answers = [
        other.get(path),
        other.get(f"{path}/key"),
        other.get(f"{path}/events"),
        other.patch(path, {"size": "large"}),
        other.delete(path),
        *(other.post(f"{path}/{verb}") for verb in ("start", "stop", "restart", "ticket")),
    ]
    assert {answer.status_code for answer in answers} == {404}
    assert other.get(LIST).json() == {"items": [], "next": None}
    assert other.post(LIST, body(world)).json()["code"] == "queue_unknown"


def test_lists_filter_and_cost_the_same_at_any_number(world: World, rest: Rest) -> None:
    world.create(name="one")
    counts = []
    for _ in range(2):
        with CaptureQueriesContext(
            connection,
        ) as queries:
            answer = rest.get(f"{LIST}?queue={world.queue.name}&state=starting,running&owner={world.owner.username}")
        counts.append([q["sql"] for q in queries if "instances_" in q["sql"]])
        world.create()
    assert len(answer.json()["items"]) == 2
    assert [len(found) for found in counts] == [2, 2]
    assert rest.get(f"{LIST}?text=on").json()["items"][0]["name"] == "one"
    assert rest.get(f"{LIST}?state=failed").json()["items"] == []
    assert rest.get(f"{LIST}?sort=colour").json()["code"] == "sort_unknown"


def test_will_it_run_answers_before_anything_is_made(world: World, rest: Rest) -> None:
    wanted = {"queue": world.queue.name, "size": "large"}
    assert rest.post(f"{LIST}/will-it-run", wanted).json()["answer"] == "queued"
    world.create(size="large")
    answer = rest.post(f"{LIST}/will-it-run", wanted).json()
    assert (answer["answer"], answer["code"], answer["size_that_fits"]) == ("never", "over_quota", "small")


def test_the_key_shows_in_no_list_item_or_event(world: World, rest: Rest) -> None:
    instance = world.running()
    key = instance.key.reveal()
    for path in (LIST, f"{LIST}/{instance.pk}", f"{LIST}/{instance.pk}/events", "/api/v1/audit"):
        assert key not in rest.get(path).content.decode()
    assert key not in repr(instance) + str(instance) + repr(instance.__dict__) + repr(instance.key)
