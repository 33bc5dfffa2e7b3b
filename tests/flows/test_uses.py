"""A flow keeps its queue and the volumes that it mounts from being deleted, until it is deleted itself."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from apps.core.actors import Actor
from apps.core.errors import Conflict
from apps.flows import services
from apps.flows.models import Flow
from apps.storage import services as storage
from apps.storage import uses as volume_uses
from apps.tenants import quotas
from apps.tenants import uses as queue_uses
from apps.tenants.models import Queue
from tests.tenants import make

GIB = 1 << 30


def test_a_queue_with_a_flow_is_not_deleted_under_its_clock(flow: Flow, queue: Queue, actor: Actor) -> None:
    admin = make.actor(make.admin())
    with pytest.raises(Conflict) as refused:
        quotas.delete(actor=admin, queue=queue)
    assert refused.value.code == "queue_not_empty"
    assert f"flow {flow.name}" in str(refused.value.detail)
    services.delete_flow(actor=actor, flow=flow)
    assert queue_uses.of(queue.pk) == []
    quotas.delete(actor=admin, queue=queue)


def test_a_volume_that_a_flow_mounts_is_not_deleted_and_its_page_says_where(
    new_flow: Callable[..., Flow], queue: Queue, actor: Actor
) -> None:
    mounted = storage.create(actor=actor, queue=queue, name="data", size_bytes=GIB)
    other = storage.create(actor=actor, queue=queue, name="other", size_bytes=GIB)
    flow = new_flow(volumes=[{"volume": "data", "path": "/mnt/in", "read_only": True}])
    found = volume_uses.of(mounted.pk)
    assert [(use.label, use.url, use.path, use.read_only) for use in found] == [
        (f"flow {flow.name}", flow.get_absolute_url(), "/mnt/in", True)
    ]
    assert volume_uses.of(other.pk) == []
    with pytest.raises(Conflict) as refused:
        storage.delete(actor=actor, volume=mounted)
    assert refused.value.code == "volume_in_use"
    services.delete_flow(actor=actor, flow=flow)
    storage.delete(actor=actor, volume=mounted)


def test_no_flow_is_born_in_a_queue_whose_deletion_began_after_it_was_found(
    queue: Queue, actor: Actor, document: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def found_just_before(_actor: Actor, _text: str) -> Queue:
        quotas.delete(actor=make.actor(make.admin()), queue=Queue.objects.as_system().get(pk=queue.pk))
        return queue

    monkeypatch.setattr(services, "find_queue", found_just_before)
    with pytest.raises(Conflict) as refused:
        services.create_flow(actor=actor, document=document)
    assert refused.value.code == "queue_deleted"
    assert not Flow.objects.as_system().exists()


@pytest.mark.django_db(transaction=True)
def test_a_queues_deletion_waits_for_a_flow_that_is_being_made_in_it(
    queue: Queue, actor: Actor, document: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    admin, codes = make.actor(make.admin()), []

    def delete() -> None:
        try:
            quotas.delete(actor=admin, queue=queue)
        except Conflict as error:
            codes.append(error.code)
        finally:
            connection.close()

    deleting = threading.Thread(target=delete)

    def before_its_row_is_written() -> str:
        deleting.start()
        deleting.join(0.5)
        return "whsec_c2VjcmV0"

    monkeypatch.setattr(services.signing, "new_secret", before_its_row_is_written)
    services.create_flow(actor=actor, document=document)
    deleting.join(20)
    assert codes == ["queue_not_empty"]
