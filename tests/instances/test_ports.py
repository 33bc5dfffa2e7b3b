"""Ports that an owner opens: who opens, shares and enters them, by page and by REST; each act is in the audit log."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from apps.clusters.models import Cluster
from apps.core.errors import Conflict, Forbidden, Invalid, NotFound
from apps.core.models import AuditEntry
from apps.instances import ports, services
from apps.instances.gateway import table
from apps.instances.models import Instance, OpenPort
from tests.instances.conftest import World
from tests.tenants import make

pytestmark = pytest.mark.django_db


@pytest.fixture
def instance(world: World) -> Instance:
    """A running one, behind the gateway."""
    Cluster.objects.as_system().filter(pk=world.queue.cluster_id).update(exposure="gateway", embedded=False)
    return world.running()


def later(days: int = 1) -> Any:
    return timezone.now() + timedelta(days=days)


def signed_in(person: Any) -> Client:
    client = Client()
    client.force_login(person)
    return client


def verbs(instance: Instance) -> list[str]:
    rows = AuditEntry.objects.as_system().filter(object_id=str(instance.pk), verb__contains="port").order_by("pk")
    return [row.verb.removeprefix("instance.") for row in rows]


def test_its_owner_opens_shares_and_closes_a_port_and_the_gateway_knows(world: World, instance: Instance) -> None:
    ports.open_port(actor=world.actor, instance=instance, number=8080, label="my app")
    ports.open_port(actor=world.actor, instance=instance, number=8080, label="renamed")
    guest = world.stranger
    ports.share_port(actor=world.actor, instance=instance, number=8080, person=guest.username, until=later())
    known = table.read([instance.pk]).ports[instance.pk]
    assert set(known) == {8080} and set(known[8080]) == {world.owner.pk.hex, guest.pk.hex}
    assert ports.of(instance)[0].label == "renamed"
    ports.unshare_port(actor=world.actor, instance=instance, number=8080, person=guest.username)
    assert set(table.read().ports[instance.pk][8080]) == {world.owner.pk.hex}
    ports.close_port(actor=world.actor, instance=instance, number=8080)
    assert table.read().ports == {}
    assert verbs(instance) == ["port-open", "port-open", "port-share", "port-unshare", "port-close"]


def test_nobody_but_its_owner_opens_or_shares_not_even_an_administrator(world: World, instance: Instance) -> None:
    ports.open_port(actor=world.actor, instance=instance, number=8080)
    for person in (world.colleague, world.stranger, make.admin()):
        actor = make.actor(person)
        with pytest.raises(Forbidden):
            ports.open_port(actor=actor, instance=instance, number=8081)
        with pytest.raises(Forbidden):
            ports.share_port(actor=actor, instance=instance, number=8080, person=person.username, until=later())
        with pytest.raises(Forbidden):
            ports.ticket(actor=actor, port=OpenPort.objects.as_system().select_related("instance__queue").get())


@pytest.mark.parametrize("number", [0, 22, 80, 1023, 2222, 8888, 65_536, -1])
def test_ports_that_are_not_the_persons_are_refused(world: World, instance: Instance, number: int) -> None:
    with pytest.raises(Invalid):
        ports.open_port(actor=world.actor, instance=instance, number=number)


def test_at_most_ten_and_each_for_a_time(world: World, instance: Instance) -> None:
    for number in range(3000, 3010):
        ports.open_port(actor=world.actor, instance=instance, number=number)
    with pytest.raises(Invalid):
        ports.open_port(actor=world.actor, instance=instance, number=3010)
    for until in (later(-1), later(91)):
        with pytest.raises(Invalid):
            ports.share_port(
                actor=world.actor, instance=instance, number=3000, person=world.colleague.username, until=until
            )
    with pytest.raises(Invalid):
        ports.share_port(actor=world.actor, instance=instance, number=3000, person="nobody", until=later())
    with pytest.raises(NotFound):
        ports.share_port(actor=world.actor, instance=instance, number=9, person=world.colleague.username, until=later())


def test_without_the_gateway_the_page_says_so_and_what_to_do_instead(world: World, instance: Instance) -> None:
    Cluster.objects.as_system().update(exposure="ingress")
    instance = Instance.objects.as_system().select_related("queue__cluster").get(pk=instance.pk)
    with pytest.raises(Conflict) as refused:
        ports.open_port(actor=world.actor, instance=instance, number=8080)
    assert refused.value.code == "no_gateway"
    page = signed_in(world.owner).get(f"/instances/{instance.pk}/ports").content.decode()
    assert "ssh -L" in page


def test_a_guest_enters_until_the_end_and_a_stopped_one_opens_nothing(world: World, instance: Instance) -> None:
    ports.open_port(actor=world.actor, instance=instance, number=8080)
    guest = make.actor(world.stranger)
    ports.share_port(actor=world.actor, instance=instance, number=8080, person=guest.name, until=later())
    port = ports.usable(guest, instance.pk, 8080)
    entrance = ports.ticket(actor=guest, port=port)
    assert entrance.url.startswith(f"http://p8080--i-{instance.pk.hex}.") and entrance.url.endswith("/portal/enter")
    assert entrance.ticket not in str(list(AuditEntry.objects.as_system().values("detail")))
    port.guests.as_system().update(until=later(-1))
    with pytest.raises(Forbidden):
        ports.ticket(actor=guest, port=port)
    services.stop(actor=world.actor, instance=instance)
    port.instance.refresh_from_db()
    with pytest.raises(Conflict):
        ports.ticket(actor=world.actor, port=port)


def test_the_pages(world: World, instance: Instance) -> None:
    owner, guest = signed_in(world.owner), signed_in(world.stranger)
    base = f"/instances/{instance.pk}"
    assert owner.post(f"{base}/ports", {"number": "8080", "label": "app"}).status_code == 302
    assert owner.post(f"{base}/ports", {"number": "22"}).status_code == 422
    shared = {"number": "8080", "person": world.stranger.username, "days": "7"}
    assert owner.post(f"{base}/port-share", shared).status_code == 302
    page = owner.get(f"{base}/ports").content.decode()
    assert f"p8080--i-{instance.pk.hex}" in page and world.stranger.username in page
    assert "/ports" in owner.get(base).content.decode()
    assert signed_in(world.colleague).get(f"{base}/ports").status_code == 403
    entered = guest.get(f"{base}/port-enter?number=8080")
    assert entered.status_code == 200 and world.owner.username in entered.content.decode()
    assert guest.get(f"{base}/port-enter?number=8081").status_code == 404
    answer = guest.post(f"{base}/port-enter", {"number": "8080"})
    assert answer.status_code == 200 and 'name="ticket"' in answer.content.decode()
    assert f"form-action http://p8080--i-{instance.pk.hex}." in answer["Content-Security-Policy"]
    assert answer["Cache-Control"].startswith("no-store")
    assert owner.post(f"{base}/port-unshare", shared).status_code == 302
    assert guest.get(f"{base}/port-enter?number=8080").status_code == 404
    assert owner.post(f"{base}/port-close", {"number": "8080"}).status_code == 302
    assert owner.post(f"{base}/port-close", {"number": "x"}).status_code == 404


def test_rest(world: World, instance: Instance) -> None:
    owner = signed_in(world.owner)
    base = f"/api/v1/instances/{instance.pk}"
    made = owner.post(f"{base}/ports", {"number": 8080}, content_type="application/json")
    assert made.status_code == 200, made.content
    given = {"number": 8080, "person": world.colleague.username, "until": later().isoformat()}
    assert owner.post(f"{base}/port-guests", given, content_type="application/json").status_code == 200
    (port,) = owner.get(f"{base}/ports").json()
    assert port["number"] == 8080 and port["guests"][0]["person"] == world.colleague.username
    colleague = signed_in(world.colleague)
    assert colleague.get(f"{base}/ports").status_code == 403
    ticket = colleague.post(f"{base}/port-ticket", {"number": 8080}, content_type="application/json")
    assert ticket.status_code == 200 and ticket["Cache-Control"] == "no-store"
    assert owner.delete(f"{base}/port-guests?number=8080&person={world.colleague.username}").status_code == 204
    assert colleague.post(f"{base}/port-ticket", {"number": 8080}, content_type="application/json").status_code == 403
    assert owner.delete(f"{base}/ports?number=8080").status_code == 204
    assert owner.get(f"{base}/ports").json() == []
