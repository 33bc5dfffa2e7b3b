"""The page of a change: what it begins with, the plan beside it, what it does, and how a script's ending shows."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from apps.instances import changing, inside, startup
from apps.instances.changing import Wishes
from apps.instances.models import Instance
from apps.instances.options import Options
from kubekit.errors import Unreachable
from tests.instances.conftest import World
from tests.instances.test_changing import stopped, volume


@pytest.fixture
def client(world: World) -> Client:
    made = Client()
    made.force_login(world.owner)
    return made


def typed(world: World, instance: Instance, **other: Any) -> dict[str, Any]:
    return {"image": world.image.pk, "size": world.small.pk, "revision": instance.revision, **other}


def test_it_begins_with_what_there_is_and_shows_the_plan_of_what_is_chosen(world: World, client: Client) -> None:
    instance = world.running(more=Options(env={"COLOUR": "red"}))
    path = f"/instances/{instance.pk}/change"
    text = client.get(path).text
    assert 'value="COLOUR"' in text and "Restart now" in text
    plan = client.post(f"{path}/panel", typed(world, instance, when="restart", size=world.large.pk)).text
    assert "<del>small: 0.5 CPU, 512 MiB</del>" in plan and "<ins>large: 3 CPU, 4 GiB</ins>" in plan
    assert "Variable COLOUR" in plan and "It runs on unchanged until it is restarted." in plan
    assert 'data-answer="' in plan and "The home and everything in it" in plan
    assert "--size large --unset-env COLOUR --restart" in plan
    instance.refresh_from_db()
    assert instance.pending == {}
    same = {"env-name": ["COLOUR"], "env-value": ["red"], "when": "restart"}
    assert 'data-plan="empty"' in client.post(f"{path}/panel", typed(world, instance, **same)).text
    wrong = client.post(f"{path}/panel", typed(world, instance, when="restart", shm_mib="99999")).text
    assert 'data-plan="error"' in wrong and "Shared memory is part of the memory" in wrong


def test_at_the_next_start_stands_on_the_page_until_then(world: World, client: Client) -> None:
    instance = world.running()
    data = typed(world, instance, when="next_start", size=world.large.pk)
    answer = client.post(f"/instances/{instance.pk}/change", data)
    assert answer["Location"] == f"/instances/{instance.pk}"
    page = client.get(f"/instances/{instance.pk}").text
    assert "data-waiting" in page and "large: 3 CPU, 4 GiB" in page
    again = client.post(f"/instances/{instance.pk}/change", data)
    assert (again.status_code, "was changed by somebody else" in again.text) == (409, True)
    instance.refresh_from_db()
    stopped(world, instance)
    assert "data-waiting" not in client.get(f"/instances/{instance.pk}").text


def test_volumes_are_rows_and_what_is_wrong_stands_beside_them(world: World, client: Client) -> None:
    instance, data = stopped(world, world.running()), volume(world)
    path = f"/instances/{instance.pk}/change"
    assert "Restart now" not in client.get(path).text
    rows = {"mounts-volume": [str(data.pk), ""], "mounts-path": ["/etc", ""], "mounts-mode": ["ro", "rw"]}
    refused = client.post(path, typed(world, instance, **rows))
    assert refused.status_code == 422 and "belongs to the system" in refused.text and 'value="/etc"' in refused.text
    nowhere = client.post(path, typed(world, instance, **{**rows, "mounts-path": ["", ""]}))
    assert nowhere.status_code == 422 and "Say where each volume is mounted" in nowhere.text
    assert client.post(path, typed(world, instance, **{**rows, "mounts-path": ["/data", ""]})).status_code == 302
    changed = Instance.objects.as_system().get(pk=instance.pk)
    assert [(one.volume, one.path, one.read_only) for one in changed.mounted] == [(data, "/data", True)]


def test_a_colleague_may_not_even_see_the_form(world: World) -> None:
    instance = world.running()
    other = Client()
    other.force_login(world.colleague)
    assert other.get(f"/instances/{instance.pk}/change").status_code == 403
    assert other.post(f"/instances/{instance.pk}/change/panel", typed(world, instance)).status_code == 403
    assert other.get(f"/instances/{instance.pk}/startup").status_code == 404


def test_the_plan_of_what_is_being_deleted_says_so(world: World, client: Client) -> None:
    instance = world.running()
    Instance.objects.as_system().filter(pk=instance.pk).update(state="deleting")
    plan = client.post(f"/instances/{instance.pk}/change/panel", typed(world, instance, when="restart")).text
    assert "is being deleted" in plan
    instance.refresh_from_db()
    with pytest.raises(Exception, match="being deleted"):
        changing.change(actor=world.actor, instance=instance, wishes=Wishes(size="large"), when="restart")


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("0\n", "It ended well."),
        ("7\n", "failed with exit code 7"),
        ("124\n", "ended after two minutes"),
        ("running\n", "It is running."),
        ("", "could not be asked"),
        ("<script>\n", "could not be asked"),
    ],
)
def test_the_page_says_how_the_start_up_script_ended(
    world: World, client: Client, monkeypatch: pytest.MonkeyPatch, said: str, shown: str
) -> None:
    monkeypatch.setattr(inside, "ask", lambda instance, command: (0, said))
    instance = world.running(more=Options(script="exit 7"))
    assert f"/instances/{instance.pk}/startup" in client.get(f"/instances/{instance.pk}").text
    assert shown in client.get(f"/instances/{instance.pk}/startup").text


def test_an_instance_that_does_not_answer_is_said_not_to(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*_: Any) -> Any:
        raise Unreachable("gone")

    monkeypatch.setattr(inside, "ask", silent)
    instance = world.running(more=Options(script="exit 7"))
    assert startup.look(instance).state == "unknown"
    assert startup.look(stopped(world, instance)).state == "not_running"
