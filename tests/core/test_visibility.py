"""Every model says who may know of its rows, and a member of another team never sees one."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.apps import apps
from django.db.models import Q
from django.utils import timezone

from apps.core import actors
from apps.core.scoping import ScopedManager
from tests.tenants import make

pytestmark = pytest.mark.django_db
OURS = [model for model in apps.get_models() if model.__module__.startswith("apps.")]


@pytest.mark.parametrize("model", OURS, ids=lambda model: model.__name__)
def test_no_model_has_an_unscoped_way_to_its_rows(model: Any) -> None:
    if model.__name__ == "User":
        return  # sign-in needs Django's own manager; `for_actor` beside it is tested below
    assert isinstance(model.objects, ScopedManager)
    for name in ("all", "filter", "get", "exclude", "first", "count", "values", "select_related"):
        with pytest.raises(TypeError):
            getattr(model.objects, name)()


@pytest.mark.parametrize("model", OURS, ids=lambda model: model.__name__)
def test_every_model_answers_for_every_kind_of_person(model: Any) -> None:
    team = make.team()
    people = [make.actor(person) for person in (make.user(), make.user(role_in=team), make.admin())]
    everything = set(model.objects.as_system().values_list("pk", flat=True))
    for actor in (*people, actors.system("test")):
        assert isinstance(model.visible_to(actor), Q)
        assert set(model.objects.for_actor(actor).values_list("pk", flat=True)) <= everything


def _rows() -> dict[str, Callable[[Any, Any], Any]]:
    """How to make one row of each model that belongs to a team or a person: ``(queue, owner) -> row``."""
    from apps.catalog.models import Image, ImageTeam, Size
    from apps.instances.lifetime.rows import Lifetime
    from apps.instances.models import Instance, InstanceViewer, OpenPort, PortGuest
    from apps.storage.models import Volume
    from apps.tenants.models import ApiToken, LifetimeRule, Membership, Reservation, SshKey

    def volume(kind: str) -> Callable[[Any, Any], Any]:
        return lambda queue, owner: Volume.objects.create(
            name=f"v-{kind}", queue=queue, owner=owner, size_bytes=1, claim=kind, kind=kind, state="bound"
        )

    def hidden(queue: Any, owner: Any) -> Any:
        image = Image.objects.create(name=f"hidden-{uuid.uuid4()}", reference="r/h", purpose="dev", hidden=True)
        return ImageTeam.objects.create(image=image, team=queue.team)

    def viewer(queue: Any, owner: Any) -> Any:
        image = Image.objects.create(name=f"i-{uuid.uuid4()}", reference="r/i", purpose="dev")
        size = Size.objects.create(name=f"s-{uuid.uuid4()}", cpu_millis=1, memory_bytes=1)
        named = {"name": "seen", "queue": queue, "owner": owner, "image": image, "size": size, "state": "stopped"}
        instance = Instance.objects.create(home=volume("home")(queue, owner), **named)
        until = timezone.now() + timedelta(days=1)
        return InstanceViewer.objects.create(instance=instance, person=make.user(), until=until)

    def guest(queue: Any, owner: Any) -> Any:
        port = OpenPort.objects.create(instance=viewer(queue, owner).instance, number=8080)
        return PortGuest.objects.create(port=port, person=owner, until=timezone.now() + timedelta(days=1))

    return {
        "ImageTeam": hidden,
        "OpenPort": lambda queue, owner: guest(queue, owner).port,
        "PortGuest": guest,
        "InstanceViewer": viewer,
        "Instance": lambda queue, owner: viewer(queue, owner).instance,
        "Lifetime": lambda queue, owner: Lifetime.objects.create(instance=viewer(queue, owner).instance),
        "Image hidden": lambda queue, owner: hidden(queue, owner).image,
        "Image of nobody": lambda queue, owner: Image.objects.create(
            name="nobody's", reference="r/n", purpose="dev", hidden=True
        ),
        "Image of a team": lambda queue, owner: Image.objects.create(
            name="own", reference="r/o", purpose="dev", team=queue.team
        ),
        "Team": lambda queue, owner: queue.team,
        "Queue": lambda queue, owner: queue,
        "Membership": lambda queue, owner: Membership.objects.as_system().get(user=owner),
        "LifetimeRule": lambda queue, owner: LifetimeRule.objects.create(team=queue.team),
        "LifetimeRule of all": lambda queue, owner: LifetimeRule.objects.create(team=None),
        "Reservation": lambda queue, owner: Reservation.objects.create(
            queue=queue, kind="thing", object_id=uuid.uuid4()
        ),
        "User": lambda queue, owner: owner,
        "Volume data": volume("data"),
        "Volume home": volume("home"),
        "ApiToken": lambda queue, owner: ApiToken.objects.create(
            user=owner, name="t", digest=uuid.uuid4().hex, expires_at=timezone.now()
        ),
        "SshKey": lambda queue, owner: SshKey.objects.create(user=owner, name="k", fingerprint=uuid.uuid4().hex),
    }


#: Who sees a row of the owner: the owner, a mate in the same team, a member of another team, an administrator.
SEEN = {
    "Instance": (True, True, False, True),
    "InstanceViewer": (True, True, False, True),
    "ImageTeam": (True, True, False, True),
    "OpenPort": (True, True, False, True),
    "PortGuest": (True, True, False, True),
    "Image hidden": (True, True, False, True),
    "Image of nobody": (False, False, False, True),
    "Image of a team": (True, True, False, True),
    "Team": (True, True, False, True),
    "Queue": (True, True, False, True),
    "Membership": (True, True, False, True),
    "LifetimeRule": (True, True, False, True),
    "LifetimeRule of all": (True, True, True, True),
    "Lifetime": (True, True, False, True),
    "Reservation": (True, True, False, True),
    "User": (True, True, False, True),
    "Volume data": (True, True, False, True),
    "Volume home": (True, False, False, True),
    "ApiToken": (True, False, False, False),
    "SshKey": (True, False, False, False),
}


@pytest.mark.parametrize("name", SEEN)
def test_who_sees_what(name: str) -> None:
    queue = make.queue()
    owner = make.user(role_in=queue.team)
    row = _rows()[name](queue, owner)
    people = (owner, make.user(role_in=queue.team), make.user(role_in=make.team()), make.admin())
    seen = tuple(type(row).objects.for_actor(make.actor(person)).filter(pk=row.pk).exists() for person in people)
    assert seen == SEEN[name]
