"""A flow keeps its queue and the volumes that it mounts from being deleted, until it is deleted itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest

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
