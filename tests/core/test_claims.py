"""Claims: one holder, no lost poke, a dead holder's row comes back."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from apps.core import claims, reconciling
from apps.core.claims import ClaimLost
from apps.core.reconciling import Reconciler
from apps.instances import reconcile as instances
from apps.storage.models import Volume
from kubekit import client


def test_a_write_that_begins_in_a_fresh_lease_ends_within_it_and_a_dead_workers_row_recovers_within_a_minute() -> None:
    given = client.Cluster.__init__.__kwdefaults__
    request = timedelta(seconds=given["connect_timeout_s"] + given["read_timeout_s"])
    assert instances.FRESH + request < claims.LEASE
    assert claims.LEASE + timedelta(seconds=15) < timedelta(minutes=1)


@pytest.mark.parametrize("due_in", [None, timedelta(minutes=10)], ids=["not due", "due later"])
def test_a_row_whose_holder_dies_is_due_at_the_end_of_its_lease_whenever_it_was_due_before(
    volume: Volume, due_in: timedelta | None
) -> None:
    due = None if due_in is None else timezone.now() + due_in
    Volume.objects.as_system().filter(pk=volume.pk).update(due_at=due)
    assert claims.take(Volume, volume.pk) is not None
    (when,) = [when for _kind, pk, when in reconciling.due_soonest() if pk == volume.pk]
    assert when <= timezone.now() + claims.LEASE


def test_a_claimed_row_is_not_given_to_a_second_worker(volume: Volume) -> None:
    assert claims.take(Volume, volume.pk) is not None
    assert claims.take(Volume, volume.pk) is None


def test_a_poke_during_a_claim_is_told_at_release(volume: Volume) -> None:
    claim = claims.take(Volume, volume.pk)
    assert claim is not None
    claims.take(Volume, volume.pk)
    assert claims.release(Volume, claim, due_at=None)
    row = Volume.objects.as_system().get(pk=volume.pk)
    assert row.due_at is not None and row.due_at <= timezone.now()


def test_an_expired_lease_is_taken_over_and_the_old_holder_can_write_nothing(volume: Volume) -> None:
    old = claims.take(Volume, volume.pk, lease=timedelta(seconds=-1))
    new = claims.take(Volume, volume.pk)
    assert old is not None and new is not None and new.token == old.token + 1
    assert not claims.release(Volume, old, due_at=None)
    assert Volume.objects.as_system().get(pk=volume.pk).claimed_until is not None
    with pytest.raises(ClaimLost):
        claims.extend(Volume, old)


@pytest.mark.django_db(transaction=True)
def test_ten_threads_claim_each_due_row_once(volume: Volume) -> None:
    rows = [
        Volume(
            name=f"v{n}",
            queue=volume.queue,
            owner=volume.owner,
            size_bytes=1,
            claim=f"v{n}",
            state="creating",
            due_at=timezone.now() - timedelta(seconds=1),
        )
        for n in range(40)
    ]
    Volume.objects.bulk_create(rows)
    taken: list[object] = []
    start = threading.Barrier(10)

    def go() -> None:
        start.wait()
        taken.extend(claim.pk for claim in claims.take_due(Volume, limit=8))
        connection.close()

    threads = [threading.Thread(target=go) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == len(set(taken)) > 0


@pytest.mark.django_db(transaction=True)
def test_of_ten_threads_that_follow_the_same_hint_one_claims_the_row_and_the_others_poke(volume: Volume) -> None:
    taken: list[claims.Claim | None] = []
    start = threading.Barrier(10)

    def go() -> None:
        start.wait()
        taken.append(claims.take(Volume, volume.pk))
        connection.close()

    threads = [threading.Thread(target=go) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (claim,) = [one for one in taken if one is not None]
    assert Volume.objects.as_system().get(pk=volume.pk).pokes == claim.pokes + 9
    assert claims.release(Volume, claim, due_at=None)


def test_to_claim_a_row_and_to_give_it_back_is_one_statement_each(
    volume: Volume, django_assert_num_queries: Any
) -> None:
    with django_assert_num_queries(2):
        claim = claims.take(Volume, volume.pk)
        assert claim is not None
        claims.release(Volume, claim, due_at=timezone.now() + timedelta(seconds=3))


class Boom(Exception):
    """A fault in a reconciler."""


def test_a_failing_reconciler_is_retried_with_growing_waits_and_blocks_nothing(
    volume: Volume, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(pk: object, claim: object) -> None:
        raise Boom

    monkeypatch.setattr(reconciling, "_registry", {"volume": Reconciler(kind="volume", model=Volume, run=run)})
    waits = []
    for _ in range(3):
        assert reconciling.reconcile_one("volume", volume.pk)
        row = Volume.objects.as_system().get(pk=volume.pk)
        assert row.claimed_until is None and row.due_at is not None
        waits.append((row.due_at - timezone.now()).total_seconds())
    assert waits[0] < waits[1] < waits[2]
    assert row.failures == 3


def test_the_sweep_hints_due_rows_and_names_the_next_moment(
    volume: Volume, hints: list, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        reconciling, "_registry", {"volume": Reconciler(kind="volume", model=Volume, run=lambda pk, claim: None)}
    )
    assert reconciling.sweep() is None and hints == []
    later = timezone.now() + timedelta(minutes=5)
    other = Volume.objects.create(
        name="w", queue=volume.queue, owner=volume.owner, size_bytes=1, claim="w", state="creating", due_at=later
    )
    Volume.objects.as_system().filter(pk=volume.pk).update(due_at=timezone.now() - timedelta(seconds=1))
    assert reconciling.sweep() == later
    assert [hint.args for hint in hints] == [("volume", str(volume.pk), True)]
    assert other.due_at == later


def test_a_row_whose_worker_died_is_due_again_when_the_lease_ends(
    volume: Volume, hints: list, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        reconciling, "_registry", {"volume": Reconciler(kind="volume", model=Volume, run=lambda pk, claim: None)}
    )
    Volume.objects.as_system().filter(pk=volume.pk).update(due_at=timezone.now())
    claim = claims.take(Volume, volume.pk, lease=timedelta(seconds=30))
    assert claim is not None
    again = reconciling.sweep()
    assert hints == [] and again is not None and 20 < (again - timezone.now()).total_seconds() <= 30
