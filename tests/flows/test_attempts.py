"""An attempt from its room in the queue to its end, against a cluster in the test's hand."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F
from django.utils import timezone

from apps.clusters.states import ClusterState
from apps.core import actors
from apps.core.actors import Actor
from apps.core.transitions import transition
from apps.flows import logs, services, watch
from apps.flows.models import Attempt, Flow, Run
from apps.tenants import ledger
from apps.tenants.models import Reservation
from kubekit.errors import Forbidden, QuotaExceeded
from tests.flows.conftest import attempt_of, fresh, look
from tests.flows.fakes import FakeKube, has_finalizer, stamp


def open_reservations() -> int:
    return Reservation.objects.as_system().filter(released_at__isnull=True).count()


def test_a_success_keeps_log_and_exit_code_and_leaves_no_pod_and_no_reservation(kube: FakeKube, run: Run) -> None:
    attempt = look(attempt_of(run))
    assert (attempt.state, attempt.pod_uid, open_reservations()) == ("queued", "uid-1", 1)
    pod = kube.only()
    assert pod["spec"]["restartPolicy"] == "Never"
    assert has_finalizer(pod)
    kube.run(pod, log=f"{stamp()} 42\n".encode())
    attempt = look(attempt)
    assert (attempt.state, fresh(run).state) == ("running", "running")
    assert attempt.deadline_at is not None
    assert attempt.started_at is not None
    assert attempt.deadline_at - attempt.started_at == timedelta(seconds=60)
    kube.finish(pod, exit_code=0)
    attempt = look(attempt)
    assert (attempt.state, fresh(run).state, attempt.exit_code) == ("succeeded", "succeeded", 0)
    assert logs.read(attempt, 0) == logs.Piece(data=b"42\n", next=3, complete=True)
    assert kube.pods == {}
    assert open_reservations() == 0
    assert attempt.due_at is None


def test_a_failure_is_repeated_once_then_the_run_fails_with_the_exit_code(kube: FakeKube, run: Run) -> None:
    for number in (1, 2):
        attempt = look(attempt_of(run, number))
        kube.run(kube.only())
        kube.finish(kube.only(), exit_code=3)
        attempt = look(attempt)
        assert (attempt.state, attempt.exit_code, attempt.charge) == ("failed", 3, "user")
    ended = fresh(run)
    assert (ended.state, ended.reason_code, ended.reason_params["exit_code"]) == ("failed", "exit_code", 3)
    assert Attempt.objects.as_system().filter(run=run).count() == 2
    assert len({pod["metadata"]["name"] for pod in kube.created}) == 2


def test_between_two_attempts_the_run_says_when_the_next_one_starts(
    kube: FakeKube, new_flow: Callable[..., Flow], actor: Actor
) -> None:
    run = services.run_now(actor=actor, flow=new_flow(retries={"count": 1, "interval_s": 600}))
    look(attempt_of(run))
    kube.run(kube.only())
    kube.finish(kube.only(), exit_code=1)
    look(attempt_of(run))
    assert (fresh(run).state, fresh(run).reason_code) == ("queued", "run_retries")
    second = look(attempt_of(run, 2))
    assert (second.state, second.pod_name) == ("queued", "")
    assert second.due_at == second.not_before > timezone.now() + timedelta(seconds=500)


def test_a_time_out_says_so_only_when_the_pod_is_gone_and_uses_up_a_retry(kube: FakeKube, run: Run) -> None:
    kube.ignore_sigterm = True
    for number in (1, 2):
        attempt = look(attempt_of(run, number))
        pod = kube.only()
        kube.run(pod, at=timezone.now() - timedelta(seconds=90))
        attempt = look(attempt)  # notes that it runs, and that its time is over
        assert (attempt.state, attempt.stop_cause) == ("cancelling", "timeout")
        assert "deletionTimestamp" in pod["metadata"]
        attempt = look(attempt)
        assert attempt.state == "cancelling"
        assert fresh(run).state == "running"
        kube.finish(pod, exit_code=137)
        attempt = look(attempt)
        assert (attempt.state, attempt.reason_code, attempt.charge) == ("failed", "run_timeout", "user")
        assert kube.pods == {}
    assert (fresh(run).state, fresh(run).reason_code) == ("failed", "run_timeout")


def test_an_eviction_has_a_budget_of_its_own(kube: FakeKube, run: Run) -> None:
    for number in (1, 2, 3):
        look(attempt_of(run, number))
        kube.run(kube.only())
        kube.finish(kube.only(), exit_code=137, pod_reason="Evicted")
        attempt = look(attempt_of(run, number))
        assert (attempt.state, attempt.charge, attempt.reason_code) == ("failed", "infra", "evicted")
        Attempt.objects.as_system().filter(run=run, state="queued").update(not_before=timezone.now())
    look(attempt_of(run, 4))
    kube.run(kube.only())
    kube.finish(kube.only(), exit_code=1)
    look(attempt_of(run, 4))
    fifth = attempt_of(run, 5)  # the user's one retry is still there
    assert fifth.state == "queued"
    kube_run_to_end(kube, fifth, exit_code=1)
    assert fresh(run).state == "failed"
    assert Attempt.objects.as_system().filter(run=run).count() == 5


def kube_run_to_end(kube: FakeKube, attempt: Attempt, *, exit_code: int) -> None:
    look(attempt)
    kube.run(kube.only())
    kube.finish(kube.only(), exit_code=exit_code)
    look(attempt)


def test_evictions_without_end_fail_the_run_after_the_budget(kube: FakeKube, run: Run) -> None:
    for number in range(1, 5):
        Attempt.objects.as_system().filter(run=run, state="queued").update(not_before=timezone.now())
        look(attempt_of(run, number))
        kube.run(kube.only())
        kube.finish(kube.only(), exit_code=137, pod_reason="Evicted")
        look(attempt_of(run, number))
    assert (fresh(run).state, fresh(run).reason_code) == ("failed", "evicted")


def test_a_lost_answer_to_create_makes_no_twin_and_no_second_charge(kube: FakeKube, run: Run) -> None:
    kube.lose_answers = 1
    attempt = look(attempt_of(run))
    assert (attempt.state, attempt.pod_uid) == ("queued", "")
    attempt = look(attempt)
    assert attempt.pod_uid == kube.only()["metadata"]["uid"]
    assert [verb for verb, _name in kube.calls if verb == "create"] == ["create"]
    assert open_reservations() == 1


def test_a_pod_of_somebody_else_under_our_name_is_left_alone(kube: FakeKube, run: Run) -> None:
    kube.lose_answers = 1
    attempt = look(attempt_of(run))
    pod = kube.only()
    pod["metadata"]["labels"]["mlportal.io/id"] = "00000000-0000-0000-0000-000000000000"
    attempt = look(attempt)
    assert (attempt.state, attempt.reason_code) == ("failed", "pod_refused")
    assert kube.only() is pod
    assert has_finalizer(pod)


def test_without_room_it_stays_queued_and_says_how_much_is_missing(kube: FakeKube, run: Run) -> None:
    holder = run.pk
    amount = ledger.Amount(cpu_millis=3800, memory_bytes=1)
    ledger.reserve(queue_id=run.queue_id, kind="instance", object_id=holder, amount=amount)
    attempt = look(attempt_of(run))
    assert (attempt.state, attempt.reason_code) == ("queued", "attempt_waits_for_quota")
    assert "0.3 CPU" in fresh(run).reason.sentence  # type: ignore[union-attr]
    assert kube.calls == []
    ledger.release(kind="instance", object_id=holder)
    assert look(attempt).pod_uid


def test_freed_room_wakes_what_waits(
    kube: FakeKube, run: Run, no_hints: list, django_capture_on_commit_callbacks
) -> None:
    ledger.reserve(
        queue_id=run.queue_id, kind="instance", object_id=run.pk, amount=ledger.Amount(cpu_millis=4000, memory_bytes=1)
    )
    attempt = look(attempt_of(run))
    with django_capture_on_commit_callbacks(execute=True):
        ledger.release(kind="instance", object_id=run.pk)
    assert ("attempt", attempt.pk) in no_hints


def test_the_clusters_own_quota_keeps_it_queued(kube: FakeKube, run: Run) -> None:
    kube.refuse_create = QuotaExceeded(
        "exceeded quota", quota="queue", requested={"pods": "1"}, used={"pods": "3"}, limited={"pods": "3"}
    )
    attempt = look(attempt_of(run))
    assert (attempt.state, attempt.reason_code) == ("queued", "quota_exceeded")
    kube.refuse_create = None
    assert look(attempt).pod_uid


def test_a_refusal_that_no_repetition_mends_fails_the_run_at_once(kube: FakeKube, run: Run) -> None:
    kube.refuse_create = Forbidden("admission webhook denied the request", status=403)
    attempt = look(attempt_of(run))
    assert (attempt.state, attempt.charge, fresh(run).state) == ("failed", "none", "failed")
    assert open_reservations() == 0


def test_a_cluster_that_does_not_answer_changes_nothing_but_the_reason(kube: FakeKube, run: Run) -> None:
    look(attempt_of(run))
    kube.run(kube.only())
    look(attempt_of(run))
    kube.away = True
    attempt = look(attempt_of(run))
    assert (attempt.state, attempt.reason_code) == ("running", "cluster_unreachable")
    kube.away = False
    assert look(attempt).reason_code == ""


def test_a_cluster_that_is_known_to_be_away_is_not_asked_and_its_attempts_begin_when_it_is_back(
    kube: FakeKube, run: Run, hints: list[Any]
) -> None:
    cluster = run.queue.cluster
    assert transition(cluster, ClusterState.UNREACHABLE, actor=actors.system("test"))
    attempt = look(attempt_of(run))
    assert (attempt.state, attempt.reason_code, kube.calls) == ("queued", "cluster_unreachable", [])
    assert open_reservations() == 0
    assert attempt.due_at is not None and attempt.due_at > timezone.now() + timedelta(seconds=30)
    hints.clear()
    assert transition(cluster, ClusterState.CONNECTED, actor=actors.system("test"))
    attempt.refresh_from_db()
    assert attempt.due_at is not None and attempt.due_at <= timezone.now()
    assert look(attempt).pod_uid == "uid-1"


def test_a_pod_that_vanished_is_lost_not_failed_and_is_repeated_from_the_infra_budget(kube: FakeKube, run: Run) -> None:
    look(attempt_of(run))
    kube.run(kube.only())
    look(attempt_of(run))
    kube.vanish(kube.only())
    attempt = look(attempt_of(run))
    assert (attempt.state, attempt.charge, attempt.reason_code) == ("lost", "infra", "pod_gone")
    assert attempt_of(run, 2).state == "queued"


def test_another_pod_of_the_same_name_is_not_taken_for_ours(kube: FakeKube, run: Run) -> None:
    look(attempt_of(run))
    pod = kube.only()
    kube.run(pod)
    look(attempt_of(run))
    pod["metadata"]["uid"] = "uid-of-another"
    kube.finish(pod, exit_code=0)
    assert look(attempt_of(run)).state == "lost"


def test_a_cancelled_run_is_cancelled_once_its_pod_is_gone(kube: FakeKube, run: Run, actor: Actor) -> None:
    look(attempt_of(run))
    pod = kube.only()
    kube.run(pod)
    look(attempt_of(run))
    services.cancel(actor=actor, run=run)
    assert (fresh(run).state, attempt_of(run).state) == ("cancelling", "cancelling")
    look(attempt_of(run))  # deletes; the program ends on SIGTERM
    attempt = look(attempt_of(run))
    assert (attempt.state, fresh(run).state) == ("cancelled", "cancelled")
    assert kube.pods == {}
    assert Attempt.objects.as_system().filter(run=run).count() == 1


def test_a_run_cancelled_before_its_pod_was_made_makes_none(kube: FakeKube, run: Run, actor: Actor) -> None:
    services.cancel(actor=actor, run=run)
    assert look(attempt_of(run)).state == "cancelled"
    assert fresh(run).state == "cancelled"
    assert kube.created == []


def test_a_pod_that_no_node_ever_took_is_cleared_away_on_cancel(kube: FakeKube, run: Run, actor: Actor) -> None:
    look(attempt_of(run))
    services.cancel(actor=actor, run=run)
    look(attempt_of(run))
    attempt = look(attempt_of(run))
    assert attempt.state == "cancelled"
    assert kube.pods == {}


def test_what_does_not_start_is_given_up_with_the_clusters_reason(kube: FakeKube, run: Run) -> None:
    look(attempt_of(run))
    pod = kube.only()
    pod["spec"]["nodeName"] = "node-1"
    waiting = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "nope:1"'}
    pod["status"]["containerStatuses"] = [{"name": "main", "image": "nope:1", "state": {"waiting": waiting}}]
    look(attempt_of(run))
    assert attempt_of(run).reason_code.startswith("image")
    Attempt.objects.as_system().filter(run=run).update(start_deadline_at=timezone.now() - timedelta(seconds=1))
    attempt = look(attempt_of(run))
    assert (attempt.state, attempt.stop_cause) == ("cancelling", "start_timeout")
    kube.finish(pod, exit_code=137)
    attempt = look(attempt)
    assert attempt.state == "failed"
    assert attempt.reason_code.startswith("image")
    assert open_reservations() == 0


def test_the_result_is_stored_before_the_pod_is_let_go(
    kube: FakeKube, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    look(attempt_of(run))
    pod = kube.only()
    kube.run(pod, log=f"{stamp()} 42\n".encode())
    look(attempt_of(run))
    kube.finish(pod, exit_code=0)

    def check(namespace: str, name: str) -> None:
        row = attempt_of(run)
        assert row.ending is not None
        assert row.log_complete

    real = kube.patch_merge
    monkeypatch.setattr(
        kube, "patch_merge", lambda kind, ns, name, patch: (check(ns, name), real(kind, ns, name, patch))[1]
    )
    assert look(attempt_of(run)).state == "succeeded"


def test_a_crash_after_the_ending_was_stored_does_not_change_it(kube: FakeKube, run: Run) -> None:
    look(attempt_of(run))
    pod = kube.only()
    kube.run(pod)
    look(attempt_of(run))
    kube.finish(pod, exit_code=0)
    real, kube.patch_merge = kube.patch_merge, None  # type: ignore[assignment, method-assign]
    assert look(attempt_of(run)).state == "running"  # the round failed half-way
    kube.patch_merge = real  # type: ignore[method-assign]
    kube.vanish(pod)
    assert look(attempt_of(run)).state == "succeeded"


def test_a_late_worker_is_fenced(kube: FakeKube, run: Run) -> None:
    from apps.core import claims
    from apps.core.claims import ClaimLost
    from apps.flows import reconcile

    attempt = attempt_of(run)
    old = claims.take(Attempt, attempt.pk, lease=timedelta(seconds=0))
    assert old is not None
    look(attempt)
    kube.run(kube.only())
    with pytest.raises(ClaimLost):
        reconcile.run(attempt.pk, old)


def test_a_worker_whose_lease_ran_out_neither_stores_an_end_nor_lets_the_pod_go(
    kube: FakeKube, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = look(attempt_of(run))
    kube.run(kube.only(), log=f"{stamp()} 42\n".encode())
    kube.finish(kube.only())
    real = kube.log_tail

    def slow(*args: Any, **more: Any) -> bytes:
        """While the log is read, another worker takes the row over."""
        monkeypatch.setattr(kube, "log_tail", real)
        rows = Attempt.objects.as_system().filter(pk=attempt.pk)
        rows.update(claim_token=F("claim_token") + 1, claimed_until=timezone.now() + timedelta(minutes=1))
        return real(*args, **more)

    monkeypatch.setattr(kube, "log_tail", slow)
    attempt = look(attempt)
    assert (attempt.state, attempt.ending) == ("queued", None)
    assert has_finalizer(kube.only())
    Attempt.objects.as_system().filter(pk=attempt.pk).update(claimed_until=None)
    assert look(attempt).state == "succeeded"


def test_waiting_attempts_start_in_their_order(
    kube: FakeKube, flow: Flow, actor: Actor, no_hints: list, django_capture_on_commit_callbacks: Any
) -> None:
    blocker = services.run_now(actor=actor, flow=flow).pk
    hold = ledger.Amount(cpu_millis=4000, memory_bytes=1)
    ledger.reserve(queue_id=flow.queue_id, kind="instance", object_id=blocker, amount=hold)
    first, second, third = (attempt_of(services.run_now(actor=actor, flow=flow)) for _ in range(3))
    for attempt in (third, first, second):
        look(attempt)
    no_hints.clear()
    with django_capture_on_commit_callbacks(execute=True):
        ledger.release(kind="instance", object_id=blocker)
    assert no_hints == [("attempt", first.pk)]
    with django_capture_on_commit_callbacks(execute=True):
        look(first)
    assert ("attempt", second.pk) in no_hints
    assert ("attempt", third.pk) not in no_hints


def test_an_end_that_the_watch_missed_is_looked_at_after_the_next_list(
    kube: FakeKube, run: Run, no_hints: list[tuple[str, Any]]
) -> None:
    attempt = look(attempt_of(run))
    pod = kube.only()
    kube.run(pod)
    attempt = look(attempt)
    no_hints.clear()
    watch.pods_listed(run.queue.cluster_id, [kube.only()])
    assert no_hints == []
    kube.finish(pod, exit_code=0)
    watch.pods_listed(run.queue.cluster_id, [kube.only()])
    assert no_hints == [("attempt", attempt.pk)]
