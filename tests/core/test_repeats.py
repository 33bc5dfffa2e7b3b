"""The same request twice in one instant (a double click, a client that repeats) makes one thing, answered twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from django.db import transaction

from apps.catalog import services as catalog
from apps.catalog.models import Image, Purpose, Size
from apps.clusters import services as clusters
from apps.flows import services as flows
from apps.instances import services as instances
from apps.storage import services as storage
from apps.tenants import people, quotas, teams
from tests.clusters.test_pages import LOCAL
from tests.meanwhile import Meanwhile
from tests.tenants import make

pytestmark = pytest.mark.django_db(transaction=True)

NODE = {"name": "main", "executor": "container", "image": "python", "size": "small", "command": ["true"]}


def makers() -> dict[str, Callable[[], Any]]:
    """For each kind: how the same one is made again and again."""
    boss, pk = make.actor(make.admin()), uuid4()
    queue = make.queue(in_team=make.team())
    owner = make.actor(make.user(role_in=queue.team))
    Image.objects.create(name="jupyter", reference="mlportal/jupyter:1", purpose=Purpose.DEV)
    Image.objects.create(name="python", reference="mlportal/python:1", purpose=Purpose.TASK)
    Size.objects.create(name="small", cpu_millis=500, memory_bytes=1 << 29)
    document = {"name": "same", "queue": queue.name, "nodes": [NODE]}
    place = {"team": queue.team, "cluster": queue.cluster}
    quota = quotas.Quota(cpu_millis=1000, memory_bytes=1 << 30, storage_bytes=1 << 30)
    choice = {"queue": queue.name, "image": "jupyter", "size": "small"}
    return {
        "volume": lambda: storage.create(actor=owner, id=pk, queue=queue, name="same", size_bytes=1 << 30),
        "instance": lambda: instances.create(actor=owner, id=pk, name="same", **choice),
        "flow": lambda: flows.create_flow(actor=owner, flow_id=pk, document=document),
        "queue": lambda: quotas.create(actor=boss, id=pk, name="same", quota=quota, **place),
        "team": lambda: teams.create(actor=boss, id=pk, name="same"),
        "user": lambda: people.create(actor=boss, id=pk, username="same")[0],
        "image": lambda: catalog.save_image(
            actor=boss, id=pk, name="same", reference="mlportal/other:1", purpose=Purpose.DEV
        ),
        "size": lambda: catalog.save_size(actor=boss, id=pk, name="same", cpu_millis=1000, memory_bytes=1 << 30),
        "cluster": lambda: clusters.register(actor=boss, id=pk, name="same", kubeconfig=LOCAL, trusted=True),
    }


@pytest.mark.parametrize("kind", ["volume", "instance", "flow", "queue", "team", "user", "image", "size", "cluster"])
def test_twice_in_one_instant_is_once(kind: str) -> None:
    create = makers()[kind]
    second = Meanwhile(create)
    with transaction.atomic():
        first = create()
        second.begin()
    second.end()
    assert second.error is None
    assert second.answer.pk == first.pk
