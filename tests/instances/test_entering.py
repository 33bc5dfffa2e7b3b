"""Key and ticket: whose they are, and that they show nowhere else."""

from __future__ import annotations

import base64
import hashlib
import hmac
import importlib.util
import json
from pathlib import Path

import pytest

from apps.core.errors import Conflict, Forbidden
from apps.core.models import AuditEntry
from apps.instances import entering, services
from tests.instances.conftest import World
from tests.tenants import make

IMAGE = Path(__file__).parents[2] / "docker" / "dev-base"


def test_a_ticket_is_signed_with_the_key_and_says_who_and_until_when(world: World) -> None:
    instance = world.running()
    entrance = entering.ticket(actor=world.actor, instance=instance)
    said, _, signature = entrance.ticket.partition(".")
    wanted = hmac.new(instance.key.reveal().encode(), said.encode(), hashlib.sha256).digest()
    assert base64.urlsafe_b64decode(signature + "=") == wanted
    body = json.loads(base64.urlsafe_b64decode(said + "=" * (-len(said) % 4)))
    assert body["i"] == str(instance.pk)
    assert body["u"] == world.owner.username
    assert entrance.url == f"http://i-{instance.pk.hex}.apps.localhost/portal/enter"
    assert "ticket" not in entrance.url
    assert AuditEntry.objects.as_system().filter(verb="instance.enter", object_id=instance.pk).count() == 1


def test_the_image_opens_to_it_once(world: World, tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("image_tickets", IMAGE / "mlportal_jupyter" / "tickets.py")
    assert spec is not None
    assert spec.loader is not None
    tickets = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tickets)
    instance = world.running()
    (tmp_path / "key").write_text(instance.key.reveal())
    door = tickets.Door(tickets.Key(tmp_path / "key"), str(instance.pk))
    ticket = entering.ticket(actor=world.actor, instance=instance).ticket
    assert door.enter(ticket) == world.owner.username
    assert door.enter(ticket) is None


@pytest.mark.parametrize("ask", [entering.ticket, entering.reveal_key])
def test_nobody_but_the_owner_gets_in(world: World, ask) -> None:
    instance = world.running()
    for person in (world.colleague, world.stranger, make.admin()):
        with pytest.raises(Forbidden):
            ask(actor=make.actor(person), instance=instance)


@pytest.mark.parametrize("ask", [entering.ticket, entering.reveal_key])
def test_there_is_no_way_in_once_it_stops(world: World, ask) -> None:
    instance = world.running()
    services.stop(actor=world.actor, instance=instance)
    instance.refresh_from_db()
    with pytest.raises(Conflict):
        ask(actor=world.actor, instance=instance)


def test_each_look_at_the_key_is_audited_without_it(world: World) -> None:
    instance = world.running()
    key = entering.reveal_key(actor=world.actor, instance=instance).reveal()
    entry = AuditEntry.objects.as_system().get(verb="instance.key", object_id=instance.pk)
    assert entry.actor_name == world.owner.username
    assert key not in str(list(AuditEntry.objects.as_system().values()))
