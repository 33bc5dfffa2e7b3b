"""Another key for an instance that runs on (R46): dead at once, never half, and nowhere to be seen."""

from __future__ import annotations

import base64
import json
import logging
from typing import Any

import pytest
from django.test import Client

from apps.core.errors import Conflict, Forbidden, NotFound
from apps.core.models import AuditEntry
from apps.instances import entering, rotating, services
from apps.instances.models import Instance
from apps.instances.states import InstanceState
from kubekit.errors import Unreachable
from tests.instances.conftest import World
from tests.tenants import make


class Program:
    """The running program: the key it opens to, and whether it takes another one."""

    def __init__(self) -> None:
        self.key = ""
        self.pushes: list[tuple[str, str]] = []
        self.refuses = ""

    def carry(self, cluster: Any, namespace: str, pod: str, key: str, *, shell: str) -> None:
        self.pushes.append((namespace, pod))
        if self.refuses:
            raise Unreachable(self.refuses)
        self.key = key


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Program:
    found = Program()
    monkeypatch.setattr(rotating, "carry", found.carry)
    return found


def key_in_secret(world: World) -> str:
    return base64.b64decode(world.cluster.one("Secret")["data"]["key"]).decode()


def test_the_program_the_secret_and_the_row_get_the_new_key_and_the_instance_runs_on(
    world: World, program: Program
) -> None:
    instance = world.running()
    old = instance.key.reveal()
    world.cluster.calls.clear()
    rotating.rotate_key(actor=world.actor, instance=instance)
    world.reconcile(instance)
    new = instance.key.reveal()
    assert new != old
    assert len(base64.urlsafe_b64decode(new + "=")) * 8 >= 128
    assert program.key == key_in_secret(world) == new
    assert program.pushes == [(instance.queue.namespace, world.cluster.one("Pod")["metadata"]["name"])]
    assert (instance.state, instance.next_key.reveal(), instance.launch) == (InstanceState.RUNNING, "", 1)
    assert [call for call in world.cluster.calls if call[0] not in {"get", "list"}] == [("patch", "Secret")]


def test_what_else_the_secret_holds_stays(world: World, program: Program) -> None:
    instance = world.running()
    world.cluster.one("Secret")["data"]["ssh-host-key"] = "aG9zdA=="
    rotating.rotate_key(actor=world.actor, instance=instance)
    world.reconcile(instance)
    assert world.cluster.one("Secret")["data"]["ssh-host-key"] == "aG9zdA=="


def test_until_the_program_has_it_the_old_one_is_shown_as_what_opens_and_the_row_says_so(
    world: World, program: Program
) -> None:
    instance = world.running()
    old = instance.key.reveal()
    rotating.rotate_key(actor=world.actor, instance=instance)
    instance.refresh_from_db()
    with pytest.raises(Conflict) as refusal:
        entering.reveal_key(actor=world.actor, instance=instance)
    assert refusal.value.code == "key_on_its_way"
    program.refuses = "nobody answers"
    world.reconcile(instance)
    assert instance.state == InstanceState.RUNNING
    assert instance.reason_code == rotating.NOT_ROTATED
    assert instance.reason_evidence == ["nobody answers"]
    assert key_in_secret(world) == old == entering.reveal_key(actor=world.actor, instance=instance).reveal()
    waiting = instance.next_key.reveal()
    program.refuses = ""
    world.reconcile(instance)
    assert instance.key.reveal() == program.key == key_in_secret(world) == waiting
    assert not instance.reason_code


def test_it_is_tried_again_soon_without_being_asked(world: World, program: Program) -> None:
    instance = world.running()
    program.refuses = "nobody answers"
    rotating.rotate_key(actor=world.actor, instance=instance)
    world.reconcile(instance)
    assert instance.due_at is not None
    assert (instance.due_at - instance.updated_at).total_seconds() <= rotating.AGAIN_S + 1


def test_a_secret_that_cannot_be_written_leaves_it_to_be_pushed_again(world: World, program: Program) -> None:
    instance = world.running()
    world.cluster.refuse["Secret"] = Unreachable("away")
    rotating.rotate_key(actor=world.actor, instance=instance)
    world.reconcile(instance)
    assert program.key == instance.next_key.reveal()
    del world.cluster.refuse["Secret"]
    world.reconcile(instance)
    assert program.key == instance.key.reveal() == key_in_secret(world)
    assert len(program.pushes) == 2


def test_asked_twice_it_is_one_new_key_and_one_entry(world: World, program: Program) -> None:
    instance = world.running()
    first = rotating.rotate_key(actor=world.actor, instance=instance).next_key.reveal()
    assert rotating.rotate_key(actor=world.actor, instance=instance).next_key.reveal() == first
    entries = AuditEntry.objects.as_system().filter(verb="instance.rotate-key", object_id=instance.pk)
    assert [entry.actor_name for entry in entries] == [world.owner.username]


def test_a_stop_in_between_ends_both_keys_and_nothing_is_pushed(world: World, program: Program) -> None:
    instance = world.running()
    rotating.rotate_key(actor=world.actor, instance=instance)
    services.stop(actor=world.actor, instance=instance)
    world.reconcile(instance)
    assert (instance.key.reveal(), instance.next_key.reveal(), program.pushes) == ("", "", [])


def test_a_key_that_arrives_after_the_stop_revives_nothing(
    world: World, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = world.running()
    rotating.rotate_key(actor=world.actor, instance=instance)

    def stopped_meanwhile(*where: Any, **how: Any) -> None:
        program.carry(*where, **how)
        services.stop(actor=world.actor, instance=instance)

    monkeypatch.setattr(rotating, "carry", stopped_meanwhile)
    world.reconcile(instance)
    row = Instance.objects.as_system().get(pk=instance.pk)
    assert (row.state, row.key.reveal(), row.next_key.reveal()) == (InstanceState.STOPPING, "", "")


def test_only_what_runs_has_a_key_to_change(world: World) -> None:
    instance = world.create()
    with pytest.raises(Conflict) as refusal:
        rotating.rotate_key(actor=world.actor, instance=instance)
    assert refusal.value.code == "not_running"


def test_a_colleague_may_not_and_a_stranger_is_told_of_nothing(world: World) -> None:
    instance = world.running()
    with pytest.raises(Forbidden):
        rotating.rotate_key(actor=make.actor(world.colleague), instance=instance)
    with pytest.raises(NotFound):
        rotating.rotate_key(actor=make.actor(world.stranger), instance=instance)


def test_rest_and_the_page_do_it_and_neither_key_stands_in_an_answer_an_entry_or_the_log(
    world: World, program: Program, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    instance = world.running()
    old = instance.key.reveal()
    client.force_login(world.owner)
    page = client.get(instance.get_absolute_url()).content.decode()
    assert f"/instances/{instance.pk}/rotate-key" in page
    answer = client.post(f"/api/v1/instances/{instance.pk}/rotate-key")
    assert answer.status_code == 202
    assert answer.json()["key_on_its_way"] is True
    assert answer.json()["links"]["rotate-key"].endswith(f"/instances/{instance.pk}/rotate-key")
    world.reconcile(instance)
    done = client.get(f"/api/v1/instances/{instance.pk}")
    assert done.json()["key_on_its_way"] is False
    assert client.post(f"/instances/{instance.pk}/rotate-key").status_code == 302
    world.reconcile(instance)
    after = client.get(instance.get_absolute_url()).content.decode()
    entries = AuditEntry.objects.as_system().filter(object_id=instance.pk).values_list("detail", flat=True)
    told = [page, after, answer.content.decode(), done.content.decode(), caplog.text, json.dumps(list(entries))]
    for key in (old, instance.key.reveal()):
        assert not [text for text in told if key in text]
