"""A viewer sees what the team has and is offered nothing that would be refused."""

from __future__ import annotations

import pytest
from django.test import Client

from apps.catalog.models import Image, Purpose, Size
from apps.flows import services as flows
from apps.tenants import access, selectors
from apps.tenants.models import Membership, Queue, Role, User
from tests.tenants import make

pytestmark = pytest.mark.django_db
LISTS = ("/flows", "/instances", "/volumes")


@pytest.fixture
def queue() -> Queue:
    Image.objects.create(name="tasks", reference="a/c", purpose=Purpose.TASK)
    Size.objects.create(name="size", cpu_millis=1, memory_bytes=1 << 20)
    made = make.queue()
    node = {"name": "main", "executor": "container", "image": "tasks", "size": "size", "command": ["true"]}
    member = make.actor(make.user(role_in=made.team))
    flows.create_flow(actor=member, document={"name": "nightly", "queue": made.name, "nodes": [node]})
    return made


@pytest.fixture
def viewer(queue: Queue) -> User:
    return make.user(role_in=queue.team, role=Role.VIEWER)


def signed_in(person: User) -> Client:
    client = Client()
    client.force_login(person)
    return client


@pytest.mark.parametrize("path", LISTS)
def test_a_list_offers_making_and_running_to_members_alone(queue: Queue, viewer: User, path: str) -> None:
    seen = signed_in(viewer).get(path).text
    for verb in ("create", "run"):
        assert f'data-verb="{verb}"' not in seen
    member = signed_in(make.user(role_in=queue.team)).get(path).text
    assert 'data-verb="create"' in member
    if path == "/flows":
        assert "nightly" in seen
        assert 'data-verb="run"' in member


@pytest.mark.parametrize("path", LISTS)
def test_a_form_for_something_new_says_before_typing_that_it_would_be_refused(
    queue: Queue, viewer: User, path: str
) -> None:
    answer = signed_in(viewer).get(f"{path}/new")
    assert answer.status_code == 403
    assert "There is no queue in which you may make something." in answer.text
    assert "no_queue" in answer.text


def test_a_form_offers_the_queues_in_which_one_is_more_than_a_viewer(queue: Queue, viewer: User) -> None:
    own = make.queue()
    Membership.objects.create(team=own.team, user=viewer, role=Role.MEMBER)
    actor = make.actor(viewer)
    assert list(selectors.work_queues(actor)) == [own]
    assert set(selectors.usable_queues(actor)) == {own, queue}
    acting = access.Acting(actor)
    assert acting.anywhere
    assert (acting.may(own), acting.may(queue)) == (True, False)
    page = signed_in(viewer).get("/volumes/new").text
    assert f'<option value="{own.pk}"' in page
    assert str(queue.pk) not in page
    assert 'data-verb="create"' in signed_in(viewer).get("/volumes").text
    assert 'data-verb="run"' not in signed_in(viewer).get("/flows").text
