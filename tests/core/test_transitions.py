"""The one writer of states: table, guard, fence, audit, hooks."""

from __future__ import annotations

import threading

import pytest
from django.db import connection, transaction

from apps.core import actors, claims
from apps.core.claims import ClaimLost
from apps.core.models import AuditEntry
from apps.core.reasons import Reason
from apps.core.states import IllegalStep
from apps.core.transitions import transition
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
