"""Many attempts that begin at once, and many whose programs begin at once: as one by one, at a fraction of the cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.core import claims, reconciling
from apps.core.actors import Actor
from apps.flows import beginning, services, watch
from apps.flows.models import Attempt, Flow, Run
from apps.tenants.models import Queue, Reservation
from kubekit.errors import QuotaExceeded, Unreachable
from tests.flows.conftest import attempt_of, look
from tests.flows.fakes import FakeKube

Runs = Callable[[int], list[Run]]


@pytest.fixture
def runs(flow: Flow, actor: Actor, queue: Queue) -> Runs:
    Queue.objects.as_system().filter(pk=queue.pk).update(cpu_millis=500 * 100, memory_bytes=100 << 30)
    return lambda count: [services.run_now(actor=actor, flow=flow) for _ in range(count)]


def begin(limit: int = 64) -> int:
    return reconciling.reconcile_due("attempt", limit=limit)


def rows() -> list[Attempt]:
    return list(Attempt.objects.as_system().select_related("run", "queue").order_by("created_at"))


def statements(work: Callable[[], object]) -> int:
    with CaptureQueriesContext(
        connection,
    ) as captured:
        work()
    return len(captured)


def test_many_begin_with_one_create_each_no_read_and_as_many_statements_as_few(kube: FakeKube, runs: Runs) -> None:
    runs(2)
    begin()  # the first one finds out which installation this is
    runs(4)
    few = statements(begin)
    runs(12)
    assert statements(begin) == few
    assert few < 30
    assert sorted({verb for verb, _name in kube.calls}) == ["create"]
    assert len(kube.calls) == len(kube.pods) == 18


def test_what_began_together_is_as_what_began_alone(kube: FakeKube, runs: Runs) -> None:
    (alone,) = runs(1)
    look(attempt_of(alone))
    runs(2)
    begin()
    one, *others = rows()
    differs = {"id", "run_id", "created_at", "updated_at", "state_since", "not_before", "start_deadline_at"}
    differs |= {"due_at", "pod_name", "pod_uid"}
    for other in others:
        for column in Attempt._meta.concrete_fields:
            if column.attname not in differs:
                assert getattr(other, column.attname) == getattr(one, column.attname), column.attname
        pod = kube.pods[other.queue.namespace, other.pod_name]
        assert (other.pod_uid, str(other.pk)) == (pod["metadata"]["uid"], pod["metadata"]["labels"]["mlportal.io/id"])
        assert other.start_deadline_at is not None
        assert other.due_at is not None
        assert one.due_at is not None
        assert abs((other.due_at - one.due_at).total_seconds()) < 60
    assert Reservation.objects.as_system().filter(released_at__isnull=True).count() == 3


def test_only_those_begin_for_which_there_is_room_and_the_others_say_behind_what_they_wait(
    kube: FakeKube, runs: Runs, queue: Queue
) -> None:
    runs(5)
    Queue.objects.as_system().filter(pk=queue.pk).update(cpu_millis=1700)  # 500 each
    begin()
    found = rows()
    assert [bool(row.pod_name) for row in found] == [True, True, True, False, False]
    assert {row.reason_code for row in found[3:]} == {"attempt_waits_for_quota"}
    held = Reservation.objects.as_system().filter(released_at__isnull=True)
    assert set(held.values_list("object_id", flat=True)) == {row.pk for row in found[:3]}
    assert len(kube.pods) == 3


def test_a_claim_that_another_worker_took_over_lets_nothing_in_and_holds_no_room(kube: FakeKube, runs: Runs) -> None:
    runs(3)
    held = claims.take_due(Attempt, limit=3)
    Attempt.objects.as_system().filter(pk=held[0].pk).update(claim_token=held[0].token + 1)
    done = beginning.together(held)
    assert {claim.pk for claim in done} == {claim.pk for claim in held[1:]}
    assert len(kube.pods) == 2
    lost = Attempt.objects.as_system().get(pk=held[0].pk)
    assert (lost.pod_name, lost.pod_uid) == ("", "")
    assert not Reservation.objects.as_system().filter(object_id=lost.pk, released_at__isnull=True).exists()


def test_a_pod_whose_attempt_was_ended_meanwhile_is_taken_back(
    kube: FakeKube, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs(2)
    held = claims.take_due(Attempt, limit=2)

    def meanwhile(name: str) -> None:
        if name == "attempt-created":
            row = Attempt.objects.as_system().filter(pk=held[0].pk)
            row.update(claim_token=held[0].token + 1, state="cancelled", due_at=None)

    monkeypatch.setattr(beginning.crashpoints, "reach", meanwhile)
    beginning.together(held)
    assert len(kube.created) == 2
    (left,) = kube.pods.values()
    assert left["metadata"]["labels"]["mlportal.io/id"] == str(held[1].pk)


def test_a_pod_that_is_there_already_is_found_and_not_asked_for_twice(kube: FakeKube, runs: Runs) -> None:
    runs(3)
    kube.lose_answers = 3
    begin()
    assert {row.pod_uid for row in rows()} == {""}
    Attempt.objects.as_system().update(due_at=None)
    for row in rows():
        assert look(row).pod_uid == kube.pods[row.queue.namespace, row.pod_name]["metadata"]["uid"]
    assert len(kube.created) == 3


def test_where_no_connection_can_be_made_one_try_speaks_for_all(
    kube: FakeKube, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beginning, "IN_FLIGHT", 1)
    monkeypatch.setattr(beginning, "_senders", {})
    runs(20)
    kube.away = True
    begin()
    assert [verb for verb, _name in kube.calls] == ["create"]
    assert {(row.reason_code, row.failures) for row in rows()} == {("cluster_unreachable", 0)}


def test_a_refusal_of_the_clusters_quota_is_said_as_alone(kube: FakeKube, runs: Runs) -> None:
    runs(3)
    kube.refuse_create = QuotaExceeded(
        "exceeded quota", quota="queue", requested={"pods": "1"}, used={"pods": "3"}, limited={"pods": "3"}
    )
    begin()
    assert kube.pods == {}
    assert {row.state for row in rows()} == {"queued"}
    assert all(row.reason_code for row in rows())
    assert len(kube.calls) == 3


def test_nothing_is_sent_when_the_claim_is_too_old(kube: FakeKube, runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beginning, "FRESH_S", -1.0)
    runs(3)
    begin()
    assert kube.calls == []
    for row in rows():
        assert row.claimed_until is None
        assert row.due_at is not None
        assert row.due_at <= timezone.now()


def test_programs_that_begin_at_once_are_written_at_once(kube: FakeKube, runs: Runs, no_hints: list[Any]) -> None:
    def started(count: int) -> list[tuple[str, Any]]:
        made = runs(count)
        begin()
        found = [attempt_of(run) for run in made]
        pods = [kube.pods[row.queue.namespace, row.pod_name] for row in found]
        for pod in pods:
            kube.run(pod)
        return [("MODIFIED", pod) for pod in pods]

    few, many = started(2), started(6)
    cluster = Queue.objects.as_system().get().cluster_id
    no_hints.clear()
    least = statements(lambda: watch.pods_changed(cluster, few))
    assert statements(lambda: watch.pods_changed(cluster, many)) == least
    assert no_hints == []
    assert {(row.state, row.run.state, row.run.started_at == row.started_at) for row in rows()} == {
        ("running", "running", True)
    }


def test_more_that_want_a_look_than_one_worker_has_time_for_are_left_to_the_others(
    kube: FakeKube, runs: Runs, no_hints: list[Any]
) -> None:
    runs(12)
    begin()
    Attempt.objects.as_system().update(due_at=timezone.now())
    no_hints.clear()
    kube.calls.clear()
    begin()
    assert sum(verb == "get" for verb, _name in kube.calls) == reconciling.MOST_ALONE
    assert len(no_hints) == 12 - reconciling.MOST_ALONE
    assert all(row.claimed_until is None and row.due_at is not None for row in rows())


def test_a_fault_in_what_is_done_together_leaves_each_to_itself(
    kube: FakeKube, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise Unreachable("not here")

    monkeypatch.setattr(beginning.finishing, "admit_many", broken)
    runs(3)
    begin()
    assert len(kube.pods) == 3
