"""The one writer of states: table, guard, fence, audit, hooks."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils import timezone

from apps.core import actors, claims, live
from apps.core.claims import ClaimLost
from apps.core.models import AuditEntry
from apps.core.reasons import Reason
from apps.core.states import IllegalStep
from apps.core.transitions import Step, transition, transition_many
from apps.storage.models import Volume

SYSTEM = actors.system("test")


def test_a_step_writes_state_reason_values_and_one_audit_row(volume: Volume) -> None:
    reason = Reason(code="volume_full", params={"free": 0}, evidence=["ENOSPC"])
    assert transition(volume, "failed", actor=SYSTEM, reason=reason, values={"claim_uid": "u1"})
    row = Volume.objects.as_system().get(pk=volume.pk)
    assert (row.state, row.reason_code, row.reason_params, row.reason_evidence, row.claim_uid) == (
        "failed",
        "volume_full",
        {"free": 0},
        ["ENOSPC"],
        "u1",
    )
    assert row.state_since is not None
    entry = AuditEntry.objects.as_system().get(object_id=volume.pk)
    assert (entry.verb, entry.detail["from"], entry.detail["to"]) == ("volume.failed", "creating", "failed")
    assert entry.queue_id == volume.queue_id


def test_staying_put_with_the_same_reason_writes_nothing(volume: Volume) -> None:
    reason = Reason(code="x", params={"a": 1})
    transition(volume, "failed", actor=SYSTEM, reason=reason)
    before = Volume.objects.as_system().get(pk=volume.pk).updated_at
    assert transition(volume, "failed", actor=SYSTEM, reason=reason)
    assert Volume.objects.as_system().get(pk=volume.pk).updated_at == before
    assert AuditEntry.objects.as_system().filter(object_id=volume.pk).count() == 1


def test_a_step_outside_the_table_is_refused_and_writes_nothing(volume: Volume) -> None:
    with pytest.raises(IllegalStep):
        transition(volume, "deleted", actor=SYSTEM)
    assert Volume.objects.as_system().get(pk=volume.pk).state == "creating"


def test_a_stale_decision_is_answered_false_and_refreshes_the_object(volume: Volume) -> None:
    stale = Volume.objects.as_system().get(pk=volume.pk)
    transition(volume, "deleting", actor=SYSTEM)
    assert not transition(stale, "bound", actor=SYSTEM, expect={"creating"})
    assert stale.state == "deleting"


def test_a_late_worker_is_fenced_by_its_token(volume: Volume) -> None:
    old = claims.take(Volume, volume.pk)
    assert old is not None
    claims.release(Volume, old, due_at=None)
    new = claims.take(Volume, volume.pk)
    assert new is not None
    with pytest.raises(ClaimLost):
        transition(volume, "bound", actor=SYSTEM, claim=old)
    assert transition(volume, "bound", actor=SYSTEM, claim=new)


def test_the_state_and_its_audit_row_roll_back_together(volume: Volume) -> None:
    with pytest.raises(RuntimeError), transaction.atomic():
        transition(volume, "bound", actor=SYSTEM)
        raise RuntimeError("after the step")
    assert Volume.objects.as_system().get(pk=volume.pk).state == "creating"
    assert not AuditEntry.objects.as_system().filter(object_id=volume.pk).exists()


@pytest.mark.django_db(transaction=True)
def test_of_two_threads_that_leave_the_same_state_one_wins(volume: Volume) -> None:
    answers: list[bool] = []
    start = threading.Barrier(2)

    def go(to: str) -> None:
        mine = Volume.objects.as_system().get(pk=volume.pk)
        start.wait()
        answers.append(transition(mine, to, actor=SYSTEM, expect={"creating"}))
        connection.close()

    threads = [threading.Thread(target=go, args=(to,)) for to in ("bound", "deleting")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [False, True]


def test_the_audit_log_refuses_changes(volume: Volume) -> None:
    from django.db import DatabaseError

    transition(volume, "bound", actor=SYSTEM)
    with pytest.raises(DatabaseError, match="append-only"):
        AuditEntry.objects.as_system().filter(object_id=volume.pk).update(verb="nothing.happened")


# -- many at once ----------


@pytest.fixture
def volumes(volume: Volume) -> list[Volume]:
    """Three of one queue, being made."""
    more = [
        Volume.objects.create(
            name=f"more-{number}", queue=volume.queue, owner=volume.owner, size_bytes=1, state="creating"
        )
        for number in range(2)
    ]
    return [volume, *more]


def pks(volumes: list[Volume]) -> list[Any]:
    return [volume.pk for volume in volumes]


def test_many_rows_move_in_two_statements_with_one_audit_row_each_and_one_signal(
    volumes: list[Volume],
    django_assert_num_queries: Any,
    django_capture_on_commit_callbacks: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[Any] = []
    monkeypatch.setattr(live, "_send", lambda rows: sent.append({name: sorted(found) for name, found in rows.items()}))
    reason = Reason(code="volume_full", params={"free": 0}, evidence=["ENOSPC"])
    step = Step(to="failed", reason=reason, values={"claim_uid": "u1"})
    # Two, and the savepoint that a transaction inside the test's own is.
    with django_capture_on_commit_callbacks(execute=True), django_assert_num_queries(4):
        transition_many(Volume, pks(volumes), lambda row: step, actor=SYSTEM, joins=("queue",))
    for row in Volume.objects.as_system().filter(pk__in=pks(volumes)):
        assert (row.state, row.reason_code, row.reason_params, row.reason_evidence, row.claim_uid) == (
            "failed",
            "volume_full",
            {"free": 0},
            ["ENOSPC"],
            "u1",
        )
        assert row.state_since is not None
        assert row.updated_at > volumes[0].updated_at
        entry = AuditEntry.objects.as_system().get(object_id=row.pk)
        assert (entry.verb, entry.actor_name, entry.object_name) == ("volume.failed", SYSTEM.name, row.name)
        assert (entry.detail["from"], entry.detail["to"], entry.queue_id) == ("creating", "failed", row.queue_id)
    queue = volumes[0].queue_id
    assert sent == [{f"live.{queue.hex}": sorted(("volume", str(pk)) for pk in pks(volumes))}]


def test_of_many_rows_those_without_a_step_and_those_that_stay_as_they_are_are_not_written(
    volumes: list[Volume], django_assert_num_queries: Any
) -> None:
    first, second, third = volumes
    transition(second, "bound", actor=SYSTEM)
    second.refresh_from_db()
    with django_assert_num_queries(4):
        transition_many(
            Volume,
            pks(volumes),
            lambda row: None if row.pk == third.pk else Step(to="bound"),
            actor=SYSTEM,
            joins=("queue",),
        )
    assert [Volume.objects.as_system().get(pk=row.pk).state for row in volumes] == ["bound", "bound", "creating"]
    assert Volume.objects.as_system().get(pk=second.pk).updated_at == second.updated_at
    assert AuditEntry.objects.as_system().filter(object_id=second.pk).count() == 1
    with django_assert_num_queries(3):
        transition_many(Volume, pks([first, second]), lambda row: Step(to="bound"), actor=SYSTEM)


def test_one_step_of_many_that_the_table_lacks_has_none_written(volumes: list[Volume]) -> None:
    with pytest.raises(IllegalStep):
        transition_many(
            Volume, pks(volumes), lambda row: Step(to="deleted" if row == volumes[1] else "bound"), actor=SYSTEM
        )
    assert {row.state for row in Volume.objects.as_system().filter(pk__in=pks(volumes))} == {"creating"}


def test_columns_that_a_poke_guards_are_written_only_while_nobody_asked_for_a_look(volumes: list[Volume]) -> None:
    now = timezone.now()
    resting, poked, _ = volumes
    Volume.objects.as_system().filter(pk=resting.pk).update(due_at=now + timedelta(seconds=3))
    Volume.objects.as_system().filter(pk=poked.pk).update(due_at=now - timedelta(seconds=3))
    step = Step(to="bound", unless_poked={"due_at": None})
    transition_many(Volume, pks(volumes), lambda row: step, actor=SYSTEM, joins=("queue",))
    due = {row.pk: row.due_at for row in Volume.objects.as_system().filter(pk__in=pks(volumes))}
    assert due[resting.pk] is None
    assert due[poked.pk] == now - timedelta(seconds=3)


@pytest.mark.django_db(transaction=True)
def test_rows_that_a_transaction_holds_are_left_out_instead_of_waited_for(volumes: list[Volume]) -> None:
    met: list[Any] = []

    def plan(row: Any) -> Step:
        met.append(row.pk)
        return Step(to="bound")

    def write() -> None:
        transition_many(Volume, pks(volumes), plan, actor=SYSTEM, joins=("queue",), skip_locked=True)
        connection.close()

    with transaction.atomic():
        Volume.objects.as_system().select_for_update().get(pk=volumes[0].pk)
        other = threading.Thread(target=write)
        other.start()
        other.join(90)
        assert not other.is_alive()
    assert sorted(met) == sorted(pks(volumes[1:]))
    assert [Volume.objects.as_system().get(pk=row.pk).state for row in volumes] == ["creating", "bound", "bound"]
