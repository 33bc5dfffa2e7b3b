"""The pages of rename, clone, transfer and share, and the same by REST."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from apps.instances.models import Instance
from apps.instances.options import Options
from tests.instances.conftest import World
from tests.instances.test_api import LIST, Rest
from tests.instances.test_changing import stopped

FORMS = ("rename", "clone", "transfer", "share")


def as_person(user: object) -> Client:
    client = Client()
    client.force_login(user)  # type: ignore[arg-type]
    return client


@pytest.fixture
def client(world: World) -> Client:
    return as_person(world.owner)


def test_the_buttons_lead_to_each_and_a_colleague_has_the_clone_alone(world: World, client: Client) -> None:
    instance = world.running()
    path = f"/instances/{instance.pk}"
    own, other = client.get(path).text, as_person(world.colleague).get(path).text
    for name in FORMS:
        assert f'href="{path}/{name}"' in own
        assert client.get(f"{path}/{name}").status_code == 200
    assert [name for name in FORMS if f'href="{path}/{name}"' in other] == ["clone"]
    assert [as_person(world.colleague).get(f"{path}/{name}").status_code for name in FORMS] == [403, 200, 403, 403]
    assert {as_person(world.stranger).get(f"{path}/{name}").status_code for name in FORMS} == {404}
    assert as_person(world.colleague).post(f"{path}/unshare", {"person": "x"}).status_code == 403


def test_rename_on_its_page(world: World, client: Client) -> None:
    instance, _other = world.create(name="one"), world.create(name="two")
    path = f"/instances/{instance.pk}/rename"
    assert "There is already an instance" in client.post(path, {"name": "two"}).text
    assert client.post(path, {"name": "three"})["Location"] == f"/instances/{instance.pk}"
    assert Instance.objects.as_system().get(pk=instance.pk).name == "three"


def test_clone_shows_what_it_copies_and_a_double_click_makes_one(world: World, client: Client) -> None:
    instance = world.create(more=Options(env={"A": "1"}))
    path = f"/instances/{instance.pk}/clone"
    assert "A=1" in client.get(path).text
    data = {"queue": str(world.queue.pk), "name": "", "once": "6f3c2f6e-0d8b-4c55-9d55-2b8f7f9b9c10"}
    assert len({client.post(path, data)["Location"] for _ in range(2)}) == 1
    assert Instance.objects.as_system().filter(options={"env": {"A": "1"}}).count() == 2


def test_transfer_asks_for_the_name_and_says_whose_it_is(world: World, client: Client) -> None:
    instance = world.running(name="mine")
    path = f"/instances/{instance.pk}/transfer"
    data = {"to": world.colleague.username, "home": "stays", "confirm": "mine"}
    assert "stop it first" in client.get(path).text
    assert client.post(path, data).status_code == 409
    stopped(world, instance)
    assert "Type “mine”." in client.post(path, {**data, "confirm": "yours"}).text
    assert client.post(path, data).status_code == 302
    assert Instance.objects.as_system().get(pk=instance.pk).owner == world.colleague


def test_share_lists_who_may_look_and_ends_it(world: World, client: Client) -> None:
    instance = world.create()
    path = f"/instances/{instance.pk}/share"
    name = world.stranger.username
    assert "There is no user named" in client.post(path, {"person": "nobody", "days": 7}).text
    assert client.post(path, {"person": name, "days": 7})["Location"] == path
    assert f'value="{name}"' in client.get(path).text
    page = as_person(world.stranger).get(f"/instances/{instance.pk}").text
    assert instance.name in page and 'data-verb="stop"' not in page and "Show the key" not in page
    client.post(f"/instances/{instance.pk}/unshare", {"person": name})
    assert as_person(world.stranger).get(f"/instances/{instance.pk}").status_code == 404


def test_the_same_by_rest(world: World) -> None:
    instance, rest = world.running(name="mine"), Rest(world.owner)
    path = f"{LIST}/{instance.pk}"
    assert rest.post(f"{path}/rename", {"name": "ours"}).json()["name"] == "ours"
    twin = rest.post(f"{path}/clone", {"name": "twin"}, **{"Idempotency-Key": "a"})
    assert (twin.status_code, twin.json()["name"]) == (201, "twin")
    assert rest.post(f"{path}/clone", {"name": "twin"}, **{"Idempotency-Key": "a"}).json()["id"] == twin.json()["id"]
    until = (timezone.now() + timedelta(days=1)).isoformat()
    assert rest.post(f"{path}/viewers", {"person": world.stranger.username, "until": until}).status_code == 200
    assert [one["person"] for one in rest.get(f"{path}/viewers").json()] == [world.stranger.username]
    assert Rest(world.stranger).get(f"{path}/viewers").status_code == 403
    assert rest.delete(f"{path}/viewers?person={world.stranger.username}").status_code == 204
    assert rest.delete(f"{path}/viewers?person={world.stranger.username}").status_code == 404
    give = {"to": world.colleague.username, "confirm": "ours"}
    assert rest.post(f"{path}/transfer", give).json()["code"] == "not_stopped"
    stopped(world, instance)
    assert rest.post(f"{path}/transfer", give).json()["owner"] == world.colleague.username
