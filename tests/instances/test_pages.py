"""Pages of instances."""

from __future__ import annotations

import re

import pytest
from django.core.cache import cache
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.clusters import access
from apps.clusters.models import Node
from apps.instances import services
from apps.instances.models import Instance
from apps.instances.states import InstanceState
from tests.instances.conftest import World
from tests.instances.test_causes import not_found

S = InstanceState


@pytest.fixture
def client(world: World) -> Client:
    cache.clear()
    signed_in = Client()
    signed_in.force_login(world.owner)
    return signed_in


def as_person(person) -> Client:
    other = Client()
    other.force_login(person)
    return other


def test_the_list_shows_rows_and_costs_the_same_at_any_number(world: World, client: Client) -> None:
    world.create(name="one")
    counts = []
    for _ in range(2):
        with CaptureQueriesContext(connection) as queries:
            answer = client.get("/instances")
        text = answer.content.decode()
        assert answer.status_code == 200
        own = [q["sql"] for q in queries if "sessions" not in q["sql"] and '"tenants_user"."password"' not in q["sql"]]
        counts.append(len(own))
        world.create()
        world.create()
    assert "one" in text
    assert counts[0] == counts[1]
    assert counts[0] <= 3, counts


def test_one_row_alone_is_answered_for_its_live_update(world: World, client: Client) -> None:
    instance = world.create()
    answer = client.get(f"/instances?row={instance.pk}").content.decode()
    assert answer.count("<tr") == 1
    assert f'id="row-{instance.pk}"' in answer


def test_the_empty_list_says_what_to_do(client: Client) -> None:
    text = client.get("/instances").content.decode()
    assert "New instance" in text
    assert "portalctl instance create" in text


def test_the_form_asks_three_things_and_makes_one_at_a_double_click(world: World, client: Client) -> None:
    text = client.get("/instances/new").content.decode()
    once = re.search(r'name="once" value="([^"]+)"', text)
    assert once is not None
    data = {"image": world.image.pk, "size": world.small.pk, "queue": world.queue.pk, "once": once[1]}
    answers = [client.post("/instances/new", data) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [302, 302]
    assert {answer["Location"] for answer in answers} == {f"/instances/{once[1]}"}
    assert Instance.objects.as_system().count() == 1


def test_what_is_wrong_stands_beside_its_field_and_nothing_typed_is_lost(world: World, client: Client) -> None:
    data = {"image": world.image.pk, "size": world.small.pk, "queue": world.queue.pk, "name": 'a"b/c'}
    answer = client.post("/instances/new", data)
    text = answer.content.decode()
    assert answer.status_code == 422
    assert "a&quot;b/c" in text
    assert 'data-error-code="name_invalid"' in text
    assert not Instance.objects.as_system().exists()


def test_the_panel_says_whether_it_will_run_and_the_same_by_other_ways(world: World, client: Client) -> None:
    data = {"image": world.image.pk, "size": world.large.pk, "queue": world.queue.pk}
    world.create(size="large")
    text = client.post("/instances/new/panel", data).content.decode()
    assert 'data-answer="never"' in text
    assert "small" in text
    assert "portalctl instance create --image jupyter --size large" in text
    assert "kind: StatefulSet" in text


@pytest.mark.parametrize("tab", ["", "/log", "/events", "/yaml", "/history"])
def test_no_tab_shows_the_key_or_waits_for_the_cluster(world: World, client: Client, tab: str) -> None:
    instance = world.running()
    key = instance.key.reveal()
    world.cluster.calls.clear()
    answer = client.get(f"/instances/{instance.pk}{tab}")
    assert answer.status_code == 200
    assert key not in answer.content.decode()
    assert world.cluster.calls == []


def test_the_overview_shows_stages_with_seconds_and_how_to_get_in(world: World, client: Client) -> None:
    instance = world.running()
    text = client.get(f"/instances/{instance.pk}").content.decode()
    for stage in ("scheduled", "volume", "image", "started", "ready"):
        assert f'data-stage="{stage}"' in text
    assert "Open JupyterLab" in text
    assert f"i-{instance.pk.hex}.apps.localhost" in text
    assert "Show the key" in text


def test_what_is_being_deleted_offers_no_change(world: World, client: Client) -> None:
    instance = world.create()
    values = {"state": "stopped", "desired": "stopped", "at_rest": True}
    Instance.objects.as_system().filter(pk=instance.pk).update(**values)
    assert 'data-verb="change"' in client.get(f"/instances/{instance.pk}").text
    Instance.objects.as_system().filter(pk=instance.pk).update(state="deleting")
    assert "data-verb=" not in client.get(f"/instances/{instance.pk}").text


def test_a_node_that_only_measures_memory_is_said_to_have_a_soft_limit(world: World, client: Client) -> None:
    instance = world.running()
    seen = {"cluster": world.queue.cluster, "name": instance.node, "ready": True, "seen_at": timezone.now()}
    node = Node.objects.create(**seen, labels={"localkube.io/limits": "hard"})
    assert "soft limit" not in client.get(f"/instances/{instance.pk}").content.decode()
    node.labels = {"localkube.io/limits": "soft"}
    node.save()
    assert "soft limit: memory is measured" in client.get(f"/instances/{instance.pk}").content.decode()


def test_the_banner_has_sentence_evidence_and_the_next_step(world: World, client: Client) -> None:
    instance = world.create()
    world.reconcile(instance)
    not_found(world.cluster)
    world.reconcile(instance)
    text = client.get(f"/instances/{instance.pk}").content.decode()
    assert 'data-reason="image_not_found"' in text
    assert "The image “mlportal/jupyter:1” was not found." in text
    assert "not found" in text.partition("<pre>")[2]


def test_the_key_comes_by_post_alone(world: World, client: Client) -> None:
    instance = world.running()
    assert client.get(f"/instances/{instance.pk}/key").status_code in {404, 405}
    answer = client.post(f"/instances/{instance.pk}/key", headers={"HX-Request": "true"})
    assert instance.key.reveal() in answer.content.decode()
    assert answer["Cache-Control"] == "no-store"


def test_entering_answers_a_form_for_the_instance_s_host_alone(world: World, client: Client) -> None:
    instance = world.running()
    answer = client.post(f"/instances/{instance.pk}/enter")
    text = answer.content.decode()
    host = f"http://i-{instance.pk.hex}.apps.localhost"
    assert f'action="{host}/portal/enter"' in text
    assert f"form-action {host}" in answer["Content-Security-Policy"]
    assert "'self'" not in answer["Content-Security-Policy"].partition("form-action")[2]
    assert instance.key.reveal() not in text
    assert answer["Cache-Control"] == "no-store"


def test_the_log_is_fetched_apart_and_says_when_there_is_none(world: World, client: Client) -> None:
    instance = world.running()
    assert "the log" in client.get(f"/instances/{instance.pk}/log/tail").content.decode()
    world.cluster.away = True
    answer = client.get(f"/instances/{instance.pk}/log/tail")
    assert answer.status_code == 200
    assert "does not answer" in answer.content.decode()


def test_buttons_act(world: World, client: Client) -> None:
    instance = world.running()
    assert client.post(f"/instances/{instance.pk}/stop").status_code == 302
    instance.refresh_from_db()
    assert instance.state == S.STOPPING
    world.reconcile(instance)
    world.cluster.remove_pod()
    world.reconcile(instance)
    data = {"image": world.image.pk, "size": world.large.pk, "revision": instance.revision}
    assert client.post(f"/instances/{instance.pk}/change", data).status_code == 302
    client.post(f"/instances/{instance.pk}/start")
    instance.refresh_from_db()
    assert (instance.state, instance.size) == (S.STARTING, world.large)
    assert client.post(f"/instances/{instance.pk}/delete")["Location"] == "/instances"


def test_destructive_buttons_say_what_is_lost_and_what_stays(world: World, client: Client) -> None:
    text = client.get(f"/instances/{world.running().pk}").content.decode()
    assert text.count("data-confirm=") == 4
    assert "what they hold in memory is lost" in text
    assert "all other volumes stay" in text


PATHS = ["", "/log", "/events", "/yaml", "/history", "/log/tail", "/change", "/startup"]
POSTS = ["/start", "/stop", "/restart", "/delete", "/enter", "/key", "/change", "/change/panel"]


def test_another_team_meets_404_everywhere(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    instance = world.running()
    other = as_person(world.stranger)
    monkeypatch.setattr(access, "connect", lambda row: pytest.fail("asked the cluster for a stranger"))
    assert {other.get(f"/instances/{instance.pk}{path}").status_code for path in PATHS} == {404}
    assert {other.post(f"/instances/{instance.pk}{path}").status_code for path in POSTS} == {404}
    assert instance.name not in other.get("/instances").content.decode()
    assert other.get(f"/instances?row={instance.pk}").content == b""


def test_a_colleague_sees_it_but_cannot_touch_it(world: World) -> None:
    instance = world.running()
    other = as_person(world.colleague)
    text = other.get(f"/instances/{instance.pk}").content.decode()
    assert instance.name in text
    assert "Open JupyterLab" not in text
    assert "Show the key" not in text
    assert 'data-verb="stop"' not in text
    for verb in ("enter", "key"):
        assert other.post(f"/instances/{instance.pk}/{verb}").status_code == 403
    services.stop(actor=world.actor, instance=instance)


def test_home_shows_mine(world: World, client: Client) -> None:
    world.create(name="mine")
    assert "mine" in client.get("/").content.decode()


def test_home_offers_a_new_instance_once_also_while_other_first_steps_are_left(world: World, client: Client) -> None:
    offer = '<a class="btn btn-primary btn-lg" href="/instances/new">'
    text = client.get("/").content.decode()
    assert text.count('href="/instances/new"') == 1 and offer not in text, "the first step offers it"
    world.create(name="notebook")
    text = client.get("/").content.decode()
    assert 'class="first-steps"' in text and text.count(offer) == 1
