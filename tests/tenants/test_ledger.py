"""The ledger: what fits, what is missing, and who wins when many ask at once."""

from __future__ import annotations

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import pytest
from django.db import connection, connections
from django.utils import timezone

from apps.core.errors import Conflict, NotFound, OverQuota
from apps.tenants import ledger
from apps.tenants.ledger import Amount, fit
from apps.tenants.models import Queue, Reservation
from apps.tenants.states import QueueState
from tests.tenants import make

GIB = make.GIB
LIMIT = {"cpu_millis": 4000, "memory_bytes": 8 * GIB, "nvidia.com/gpu": 2, "storage_bytes": 10 * GIB, "pods": 9}


def ask(queue: Queue, **amount: object) -> uuid.UUID:
    object_id = uuid.uuid4()
    ledger.reserve(queue_id=queue.pk, kind="thing", object_id=object_id, amount=Amount(**amount))  # type: ignore[arg-type]
    return object_id


def test_fit_names_what_is_missing_and_the_smallest_change() -> None:
    answer = fit(queue_name="vision", asked=Amount(gpus={"nvidia.com/gpu": 5}), used={"nvidia.com/gpu": 1}, limit=LIMIT)
    assert answer.data() == {"nvidia.com/gpu": {"asked": 5, "used": 1, "limit": 2, "missing": 4}}
    assert answer.sentence == "The queue “vision” has no room for this: 5 GPU asked, 1 GPU of 2 GPU free."
    assert answer.next == "Ask for at most 1 GPU. Or ask an administrator to raise the limit to 6 GPU."


def test_fit_does_not_offer_less_when_nothing_is_free() -> None:
    answer = fit(queue_name="q", asked=Amount(cpu_millis=500), used={"cpu_millis": 4000, "pods": 1}, limit=LIMIT)
    assert answer.next == "Stop or delete what holds 0.5 CPU."


def test_a_resource_not_asked_for_never_stands_in_the_way() -> None:
    used = {"cpu_millis": 99_000, "storage_bytes": 0}
    assert fit(queue_name="q", asked=Amount(storage_bytes=GIB), used=used, limit={**LIMIT, "volumes": 5}).fits


def test_a_gpu_the_queue_does_not_have_is_refused() -> None:
    answer = fit(queue_name="q", asked=Amount(gpus={"example.com/npu": 1}), used={}, limit=LIMIT)
    assert answer.data() == {"example.com/npu": {"asked": 1, "used": 0, "limit": 0, "missing": 1}}


@pytest.mark.django_db
def test_reserve_counts_all_open_lines_and_release_gives_back() -> None:
    queue = make.queue(gpus={"nvidia.com/gpu": 2})
    first = ask(queue, cpu_millis=3000, memory_bytes=GIB, gpus={"nvidia.com/gpu": 1})
    ask(queue, cpu_millis=1000, memory_bytes=GIB, gpus={"nvidia.com/gpu": 1})
    with pytest.raises(OverQuota) as refused:
        ask(queue, cpu_millis=1, memory_bytes=1, gpus={"nvidia.com/gpu": 1})
    assert set(refused.value.data) == {"cpu_millis", "nvidia.com/gpu"}
    assert ledger.release(kind="thing", object_id=first) is True
    assert ledger.release(kind="thing", object_id=first) is False
    ask(queue, cpu_millis=1, memory_bytes=1, gpus={"nvidia.com/gpu": 1})
    shares = ledger.usage(queue).shares
    assert (shares["cpu_millis"].used, shares["nvidia.com/gpu"].used, shares["pods"].used) == (1001, 2, 2)


@pytest.mark.django_db
def test_the_same_object_holds_one_line_however_often_it_asks() -> None:
    queue, object_id = make.queue(), uuid.uuid4()
    for size in (6, 6, 3):
        amount = Amount(memory_bytes=size * GIB)
        ledger.reserve(queue_id=queue.pk, kind="thing", object_id=object_id, amount=amount)
        assert ledger.usage(queue).shares["memory_bytes"].used == size * GIB
    assert Reservation.objects.as_system().count() == 1


@pytest.mark.django_db
def test_a_refused_change_leaves_the_line_as_it_was() -> None:
    queue, object_id = make.queue(), uuid.uuid4()
    ledger.reserve(queue_id=queue.pk, kind="thing", object_id=object_id, amount=Amount(cpu_millis=1000))
    with pytest.raises(OverQuota):
        ledger.reserve(queue_id=queue.pk, kind="thing", object_id=object_id, amount=Amount(cpu_millis=4001))
    assert ledger.held(kind="thing", object_id=object_id) == Amount(cpu_millis=1000)


@pytest.mark.django_db
@pytest.mark.parametrize("trouble", [{"cpu_millis": 500}, {"state": QueueState.DELETING}])
def test_to_hold_less_is_never_refused_and_more_still_is(trouble) -> None:
    queue = make.queue()
    object_id = ask(queue, cpu_millis=3000)
    Queue.objects.as_system().filter(pk=queue.pk).update(**trouble)

    def hold(cpu_millis: int) -> None:
        amount = Amount(cpu_millis=cpu_millis)
        ledger.reserve(queue_id=queue.pk, kind="thing", object_id=object_id, amount=amount)

    hold(3000)
    hold(2000)
    with pytest.raises((OverQuota, Conflict)):
        hold(2001)
    assert ledger.held(kind="thing", object_id=object_id) == Amount(cpu_millis=2000)


@pytest.mark.django_db
def test_oversell_raises_the_limit_of_cpu_and_memory_alone() -> None:
    queue = make.queue(cpu_oversell=Decimal("2.5"), memory_oversell=2, gpus={"nvidia.com/gpu": 1})
    assert ledger.limits(queue)["cpu_millis"] == 10_000
    assert ledger.limits(queue)["memory_bytes"] == 16 * GIB
    assert ledger.limits(queue)["nvidia.com/gpu"] == 1
    assert ledger.limits(queue)["storage_bytes"] == 100 * GIB


@pytest.mark.django_db
def test_requests_of_everything_let_in_stay_within_what_is_guaranteed() -> None:
    queue = make.queue(cpu_oversell=Decimal("1.7"))
    each = Amount(cpu_millis=333, memory_bytes=1)
    count = ledger.limits(queue)["cpu_millis"] // each.cpu_millis
    assert count * ledger.guaranteed(queue, each)[0] <= queue.cpu_millis


@pytest.mark.django_db
def test_lowering_below_use_marks_over_and_lets_nothing_new_in() -> None:
    queue = make.queue()
    ask(queue, cpu_millis=3000)
    Queue.objects.as_system().filter(pk=queue.pk).update(cpu_millis=2000)
    queue.refresh_from_db()
    assert [share.resource for share in ledger.usage(queue).over] == ["cpu_millis"]
    with pytest.raises(OverQuota) as refused:
        ask(queue, cpu_millis=100)
    assert refused.value.data["cpu_millis"] == {"asked": 100, "used": 3000, "limit": 2000, "missing": 1100}


@pytest.mark.django_db
def test_a_queue_being_deleted_or_unknown_takes_nothing() -> None:
    queue = make.queue(state=QueueState.DELETING)
    with pytest.raises(Conflict) as refused:
        ask(queue, cpu_millis=1)
    assert refused.value.code == "queue_deleted"
    with pytest.raises(NotFound):
        ledger.reserve(queue_id=uuid.uuid4(), kind="thing", object_id=uuid.uuid4(), amount=Amount())


@pytest.mark.django_db
def test_usage_of_many_queues_is_one_statement(django_assert_num_queries) -> None:
    queues = [make.queue() for _ in range(5)]
    ask(queues[3], cpu_millis=7, gpus={})
    with django_assert_num_queries(1):
        found = ledger.usages(queues)
    assert [found[queue.pk].shares["cpu_millis"].used for queue in queues] == [0, 0, 0, 7, 0]


@pytest.mark.django_db(transaction=True)
def test_without_the_lock_two_requests_take_the_last_place() -> None:
    """The race that the row lock forbids, shown on the same tables (F11)."""
    queue = make.queue(cpu_millis=1000)
    both_have_read = threading.Barrier(2)

    def take() -> None:
        used = ledger.usage(queue).shares["cpu_millis"].used
        both_have_read.wait(timeout=60)
        if used + 1000 <= queue.cpu_millis:
            Reservation.objects.create(queue=queue, kind="thing", object_id=uuid.uuid4(), cpu_millis=1000)
        connection.close()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: take(), range(2)))
    assert ledger.usage(queue).shares["cpu_millis"].used == 2000


@pytest.mark.django_db(transaction=True)
def test_of_fifty_at_once_exactly_ten_get_the_ten_places() -> None:
    queue = make.queue(cpu_millis=1000)
    start = threading.Barrier(50)

    def take(_: int) -> bool:
        try:
            connections["default"].ensure_connection()
            start.wait(timeout=20)
            ask(queue, cpu_millis=100)
        except OverQuota:
            return False
        finally:
            connection.close()
        return True

    for _ in range(3):
        with ThreadPoolExecutor(50) as pool:
            assert sum(pool.map(take, range(50))) == 10
        assert ledger.usage(queue).shares["cpu_millis"].used == 1000
        Reservation.objects.as_system().update(released_at=timezone.now())


@pytest.mark.django_db(transaction=True)
def test_freed_room_is_told_after_commit(monkeypatch) -> None:
    heard: list[uuid.UUID] = []
    monkeypatch.setattr(ledger, "_freed_hooks", [heard.append])
    queue = make.queue()
    object_id = ask(queue, cpu_millis=1)
    assert heard == []
    ledger.release(kind="thing", object_id=object_id)
    assert heard == [queue.pk]
