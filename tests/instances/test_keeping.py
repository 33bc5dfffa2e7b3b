"""R53: leases and *keep until*, by REST and on the page: who may, until when, and what a stopped instance costs."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from apps.core.errors import Forbidden, Invalid, NotFound
from apps.core.models import AuditEntry
from apps.instances import services
from apps.instances.lifetime import keeping
from apps.instances.lifetime.rows import Cause, Lifetime
from apps.instances.models import Instance
from apps.tenants import lifetimes
from tests.instances.conftest import World
from tests.tenants import make

HOUR = timedelta(hours=1)


def ask(world: World, instance: Instance, verb: str, body: Any, *, who: Any = None) -> Any:
    client = Client()
    client.force_login(who or world.owner)
    return client.post(f"/api/v1/instances/{instance.pk}/{verb}", body, content_type="application/json")


def rule(world: World, **values: int | None) -> None:
    lifetimes.set_rule(actor=make.actor(make.admin()), team=world.queue.team, **values)


def text(moment: datetime) -> str:
    return moment.isoformat()


def test_its_owner_keeps_it_for_a_time_and_takes_that_back(world: World) -> None:
    instance, until = world.running(), timezone.now() + 8 * HOUR
    answer = ask(world, instance, "keep", {"until": text(until)})
    assert answer.status_code == 200
    assert datetime.fromisoformat(answer.json()["keep_until"]) == until
    assert ask(world, instance, "keep", {"until": None}).json()["keep_until"] is None
    told = AuditEntry.objects.as_system().filter(object_id=instance.pk, verb="instance.keep").order_by("pk")
    assert [row.detail["keep_until"] is None for row in told] == [False, True]


@pytest.mark.parametrize(
    ("away", "code", "words"),
    [
        (-HOUR, "time_past", "past"),
        (timedelta(seconds=-1), "time_past", "past"),
        (49 * HOUR, "keep_too_long", "2 days"),
    ],
)
def test_a_time_that_is_past_or_beyond_the_teams_limit_is_refused_with_the_reason_and_the_limit(
    world: World, away: timedelta, code: str, words: str
) -> None:
    rule(world, keep_hours=48)
    instance = world.running()
    answer = ask(world, instance, "keep", {"until": text(timezone.now() + away)})
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (422, code)
    assert words in problem["detail"]
    assert problem["errors"][0]["pointer"] == "/until"
    assert not Lifetime.objects.as_system().filter(keep_until__isnull=False).exists()
    if code == "keep_too_long":
        latest = datetime.fromisoformat(problem["data"]["latest"])
        assert abs(latest - timezone.now() - 48 * HOUR) < timedelta(minutes=5)
        assert ask(world, instance, "keep", {"until": problem["data"]["latest"]}).status_code == 200


def test_a_team_may_allow_no_keeping_at_all(world: World) -> None:
    rule(world, keep_hours=0)
    answer = ask(world, world.running(), "keep", {"until": text(timezone.now() + HOUR)})
    assert (answer.status_code, answer.json()["code"]) == (422, "keep_not_allowed")


@pytest.mark.parametrize("body", [{}, {"until": "tomorrow"}, {"until": 5}, {"until": None, "for": "1h"}, []])
def test_what_is_no_time_is_refused(world: World, body: Any) -> None:
    answer = ask(world, world.running(), "keep", body)
    assert 400 <= answer.status_code < 500


def test_what_is_stopped_cannot_be_kept_and_nobody_else_may(world: World) -> None:
    stopped, until = world.running(), timezone.now() + HOUR
    services.stop(actor=world.actor, instance=stopped)
    answer = ask(world, stopped, "keep", {"until": text(until)})
    assert (answer.status_code, answer.json()["code"]) == (409, "not_running")
    running = world.running()
    with pytest.raises(Forbidden):
        keeping.keep(actor=make.actor(world.colleague), instance=running, until=until)
    with pytest.raises(NotFound):
        keeping.keep(actor=make.actor(world.stranger), instance=running, until=until)
    assert ask(world, running, "keep", {"until": text(until)}, who=world.colleague).status_code == 403
    assert ask(world, running, "keep", {"until": text(until)}, who=world.stranger).status_code == 404
    assert ask(world, running, "end", {"at": text(until)}, who=world.stranger).status_code == 404


def test_an_end_is_given_at_the_creation_or_later_and_a_new_start_forgets_one_that_is_over(world: World) -> None:
    end = timezone.now() + 2 * HOUR
    client = Client()
    client.force_login(world.owner)
    wanted = {"queue": world.queue.name, "image": "jupyter", "size": "small", "ends_at": text(end)}
    made = client.post("/api/v1/instances", wanted, content_type="application/json", HTTP_IDEMPOTENCY_KEY="x")
    assert made.status_code == 201
    assert datetime.fromisoformat(made.json()["lifetime"]["ends_at"]) == end
    instance = Instance.objects.as_system().get(pk=made.json()["id"])
    sooner = timezone.now() + HOUR
    assert datetime.fromisoformat(ask(world, instance, "end", {"at": text(sooner)}).json()["ends_at"]) == sooner
    again = client.post("/api/v1/instances", wanted, content_type="application/json", HTTP_IDEMPOTENCY_KEY="x")
    assert datetime.fromisoformat(again.json()["lifetime"]["ends_at"]) == sooner  # a repeat changes nothing
    Lifetime.objects.as_system().update(ends_at=timezone.now() - HOUR)
    assert client.get(f"/api/v1/instances/{instance.pk}").json()["lifetime"]["ends_at"] is None
    assert ask(world, instance, "end", {"at": None}).status_code == 200


def test_a_refused_end_makes_no_instance(world: World) -> None:
    rule(world, lease_hours=24)
    wanted = {"queue": world.queue.name, "image": "jupyter", "size": "small"}
    with pytest.raises(Invalid) as refusal:
        keeping.create(actor=world.actor, ends_at=timezone.now() + 25 * HOUR, **wanted)
    assert refusal.value.code == "lease_too_long"
    assert "24 h" in str(refusal.value.detail)
    assert not Instance.objects.as_system().exists()


def test_the_form_of_a_new_instance_offers_an_end_and_says_beside_it_when_that_is_too_late(world: World) -> None:
    rule(world, lease_hours=24)
    client = Client()
    client.force_login(world.owner)
    assert "ends in 8 h" in client.get("/instances/new").content.decode()
    wanted = {"image": str(world.image.pk), "size": str(world.small.pk), "queue": str(world.queue.pk)}
    refusal = client.post("/instances/new", {**wanted, "ends": str(72 * 3600)})
    assert refusal.status_code == 422
    assert "at most 24 h after a start" in refusal.content.decode()
    assert not Instance.objects.as_system().exists()
    assert client.post("/instances/new", {**wanted, "ends": "28800"}).status_code == 302
    end = Lifetime.objects.as_system().get().ends_at
    assert end is not None
    assert abs(end - timezone.now() - 8 * HOUR) < timedelta(minutes=5)


def test_a_longest_lease_ends_every_launch_without_a_word_of_its_owner_and_keep_until_moves_it(world: World) -> None:
    rule(world, lease_hours=24)
    instance = world.running()
    client = Client()
    client.force_login(world.owner)
    shown = client.get(f"/api/v1/instances/{instance.pk}").json()["lifetime"]
    assert instance.start_requested_at is not None
    assert datetime.fromisoformat(shown["ends_at"]) == instance.start_requested_at + 24 * HOUR
    until = timezone.now() + 40 * HOUR
    assert datetime.fromisoformat(ask(world, instance, "keep", {"until": text(until)}).json()["ends_at"]) == until


def test_the_list_tells_when_it_ends(world: World) -> None:
    instance = world.running()
    keeping.set_end(actor=world.actor, instance=instance, at=timezone.now() + 3 * HOUR)
    client = Client()
    client.force_login(world.owner)
    rows = client.get("/api/v1/instances").json()["items"]
    assert [row["lifetime"]["ends_at"] is not None for row in rows] == [True]
    page = client.get("/instances").content.decode()
    life = Lifetime.objects.as_system().get(pk=instance.pk)
    assert life.ends_at is not None
    assert f'<time datetime="{life.ends_at.isoformat(timespec="seconds")}"' in page


def warned(instance: Instance, cause: str = Cause.IDLE) -> None:
    """A warning stands."""
    soon = timezone.now() + timedelta(minutes=12, seconds=40)
    values = {"warned_for": cause, "warned_at": timezone.now(), "stops_at": soon, "idle_s": 2900}
    Lifetime.objects.as_system().update_or_create(pk=instance.pk, defaults={"launch": instance.launch, **values})


def test_a_warning_stands_on_the_page_with_the_time_left_and_the_button_that_keeps_it(world: World) -> None:
    rule(world, idle_minutes=60)
    instance, client = world.running(), Client()
    client.force_login(world.owner)
    assert "data-lifetime-warning" not in client.get(instance.get_absolute_url()).content.decode()
    warned(instance)
    page = client.get(instance.get_absolute_url()).content.decode()
    assert "data-lifetime-warning" in page
    assert "12 min" in page
    assert f'action="/instances/{instance.pk}/keep"' in page
    part = client.get(f"{instance.get_absolute_url()}?part=header", HTTP_HX_REQUEST="true").content.decode()
    assert "data-lifetime-warning" in part
    answer = client.post(f"/instances/{instance.pk}/keep", {"until": "28800"})
    assert answer.status_code == 302
    page = client.get(instance.get_absolute_url()).content.decode()
    assert "data-lifetime-warning" not in page
    kept = Lifetime.objects.as_system().get(pk=instance.pk).keep_until
    assert kept is not None
    assert abs(kept - timezone.now() - 8 * HOUR) < timedelta(minutes=5)


def test_a_colleague_reads_the_warning_and_has_no_button(world: World) -> None:
    rule(world, idle_minutes=60)
    instance, client = world.running(), Client()
    warned(instance)
    client.force_login(world.colleague)
    page = client.get(instance.get_absolute_url()).content.decode()
    assert "data-lifetime-warning" in page
    assert f"/instances/{instance.pk}/keep" not in page


@pytest.mark.parametrize("until", ["", "soon", "-5", str(9 * 10**9), "9" * 400])
def test_a_form_with_no_proper_time_is_refused_in_words(world: World, until: str) -> None:
    instance, client = world.running(), Client()
    client.force_login(world.owner)
    answer = client.post(f"/instances/{instance.pk}/keep", {"until": until}, follow=True)
    assert answer.status_code == 200
    assert not Lifetime.objects.as_system().filter(keep_until__isnull=False).exists()


def test_the_page_says_in_words_what_counts_as_activity(world: World) -> None:
    client = Client()
    client.force_login(world.owner)
    instance = world.running()
    assert "not stopped for being idle" in client.get(instance.get_absolute_url()).content.decode()
    rule(world, idle_minutes=60)
    page = client.get(instance.get_absolute_url()).content.decode()
    for words in ("computes", "terminal", "SSH", "GPU", "A tab of JupyterLab that is only open"):
        assert words in page


def test_a_stopped_instance_says_that_it_holds_its_volumes_alone(world: World) -> None:
    instance, client = world.running(), Client()
    services.stop(actor=world.actor, instance=instance)
    world.reconcile(instance)
    world.cluster.remove_pod()
    world.reconcile(instance)
    client.force_login(world.owner)
    page = client.get(instance.get_absolute_url()).content.decode()
    assert "What it holds" in page
    assert instance.home.name in page
    assert "no CPU, no memory, no GPU" in page
