"""Requests whose answers do not come, come late or are refusals: one pod, one charge, and the right one."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from apps.clusters import access, reaper
from apps.core import claims
from apps.flows import logs, services
from apps.flows.models import Attempt
from kubekit import client, names
from tests.faults.world import Background, Killed, World, attempts_of, die_at, fresh, until

POST_POD = {"method": "POST", "path": r"/pods$"}


def creates(world: World) -> int:
    """How many times the portal asked for a pod, whatever came of it."""
    return len(world.proxy.asked("POST", r"/pods$"))


def ends_well(world: World, attempt: Attempt) -> None:
    """One pod, one attempt, one charge; and nothing is left behind."""
    world.end(log=("42",))
    attempt = world.rounds(attempt, "succeeded", "failed", "lost")
    assert (attempt.state, logs.read(attempt, 0).data) == ("succeeded", b"42\n")
    assert (attempts_of(attempt.run), world.pods(), world.held()) == (1, [], 0)
    until("quota that counts nothing", lambda: world.used().get("pods", "0") == "0")


# -- F3: a portal that dies between its database and the cluster ----------


@pytest.mark.parametrize("point", ["attempt-admitted", "attempt-created"])
def test_f03_a_worker_that_dies_around_the_create_leaves_neither_twin_nor_orphan(
    world: World, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    attempt = world.run()
    die_at(monkeypatch, point)
    with pytest.raises(Killed):
        world.look(attempt)
    assert len(world.pods()) == (point == "attempt-created")
    world.clock.forward(seconds=claims.LEASE.total_seconds() + 1)
    attempt = world.look(attempt)
    assert attempt.pod_uid == world.pod()["metadata"]["uid"]
    ends_well(world, attempt)


def test_f03_what_belongs_to_no_row_goes_after_its_grace_and_not_before(world: World, settings: Any) -> None:
    settings.PORTAL_ORPHAN_GRACE_S = 300
    attempt = world.look(world.run())
    Attempt.objects.as_system().filter(pk=attempt.pk).delete()  # a database that was restored from last night
    assert reaper.reap(world.cluster) == []
    world.clock.forward(seconds=200)
    assert reaper.reap(world.cluster) == []
    assert not world.pod()["metadata"].get("deletionTimestamp")
    world.clock.forward(seconds=101)
    assert [orphan.row_id for orphan in reaper.reap(world.cluster)] == [str(attempt.pk)]
    assert world.pod()["metadata"]["deletionTimestamp"]


def test_f03_what_a_row_owns_is_no_orphan_however_old(world: World, settings: Any) -> None:
    settings.PORTAL_ORPHAN_GRACE_S = 0
    attempt = world.look(world.run())
    world.clock.forward(days=2)
    assert reaper.reap(world.cluster) == reaper.reap(world.cluster) == []
    assert not world.pod()["metadata"].get("deletionTimestamp")
    assert fresh(attempt).pod_uid


# -- F4, F12: the answer to a create does not come ----------


@pytest.mark.parametrize("fault", ["drop", "answer-after"])
def test_f04_a_create_whose_answer_was_lost_is_adopted(world: World, fault: str) -> None:
    lost = world.proxy.plan(fault, status=504, reason="Timeout", **POST_POD)
    attempt = world.look(world.run())
    assert (lost.met, attempt.state, attempt.pod_uid) == (1, "queued", "")
    made = world.pod()["metadata"]["uid"]
    attempt = world.look(attempt)
    assert attempt.pod_uid == made == world.pod()["metadata"]["uid"]
    ends_well(world, attempt)


def test_f04_a_create_that_was_still_on_its_way_when_its_worker_gave_up_is_adopted(world: World) -> None:
    first = world.proxy.plan("hold", **POST_POD)
    attempt = world.look(world.run())
    assert (first.met, attempt.pod_uid, world.pods()) == (1, "", [])
    second = world.proxy.plan("hold", **POST_POD)
    again = Background(lambda: world.look(attempt))
    second.wait()
    first.release()
    made = until("pod of the first create", world.pods)[0]["metadata"]["uid"]
    second.release()
    attempt = again.wait()
    assert attempt.pod_uid == made
    ends_well(world, attempt)


def test_f04_a_name_that_something_else_has_is_left_alone(world: World) -> None:
    world.proxy.plan("reset", **POST_POD)
    attempt = world.look(world.run())
    namespace, name = world.queue.namespace, attempt.pod_name
    foreign = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "image": "x",
                    "resources": {key: {"cpu": "1m", "memory": "1Mi"} for key in ("requests", "limits")},
                }
            ]
        },
    }
    uid = world.direct.create(foreign)["metadata"]["uid"]
    attempt = world.rounds(attempt, "failed")
    assert attempt.reason_code == "pod_refused"
    assert world.pod()["metadata"]["uid"] == uid
    assert not world.pod()["metadata"].get("deletionTimestamp")


@pytest.mark.parametrize("fault", ["drop", "answer-after"])
def test_f12_a_create_is_asked_for_once_and_charged_once_however_often_it_is_looked_at(
    world: World, fault: str
) -> None:
    world.proxy.plan(fault, status=500, **POST_POD)
    attempt = world.run()
    for _ in range(5):
        attempt = world.look(attempt)
    assert creates(world) == 1
    assert until("quota that counted", lambda: world.used().get("pods")) == "1"
    ends_well(world, attempt)


def test_f12_before_a_create_is_repeated_the_name_is_looked_up(world: World) -> None:
    world.proxy.plan("reset", times=3, **POST_POD)
    attempt = world.run()
    for _ in range(4):
        attempt = world.look(attempt)
    asked = [seen.method for seen in world.proxy.seen if "/pods" in seen.path]
    assert asked[:7] == ["POST", "GET", "POST", "GET", "POST", "GET", "POST"]
    assert world.pod()["metadata"]["uid"] == attempt.pod_uid
    ends_well(world, attempt)


@pytest.mark.parametrize(
    ("status", "reason"), [(409, "Conflict"), (429, "TooManyRequests"), (500, "InternalError"), (504, "Timeout")]
)
def test_f12_a_refusal_that_passes_costs_neither_the_attempt_nor_a_second_charge(
    world: World, status: int, reason: str
) -> None:
    world.proxy.plan("answer", status=status, reason=reason, retry_after=1, **POST_POD)
    attempt = world.look(world.run())
    assert (attempt.state, world.pods()) == ("queued", [])
    attempt = world.look(attempt)
    assert attempt.pod_uid == world.pod()["metadata"]["uid"]
    ends_well(world, attempt)


# -- F5: the name means another object now ----------


def test_f05_a_pod_made_anew_under_the_same_name_is_not_ours(world: World) -> None:
    attempt = world.look(world.run())
    world.runs()
    other = world.pod()
    name, namespace = other["metadata"]["name"], world.queue.namespace
    world.direct.patch_merge("Pod", namespace, name, {"metadata": {"finalizers": None}})
    world.direct.delete("Pod", namespace, name, grace_s=0)
    kept = {key: other["metadata"][key] for key in ("name", "namespace", "labels")}
    made = world.direct.create({"apiVersion": "v1", "kind": "Pod", "metadata": kept, "spec": _plain(other["spec"])})
    world.end(exit_code=0, log=("the log of another run",))
    attempt = world.rounds(attempt, "succeeded", "failed", "lost")
    assert (attempt.state, attempt.reason_code) == ("lost", "pod_gone")
    assert b"another run" not in logs.read(attempt, 0).data
    assert world.pod()["metadata"]["uid"] == made["metadata"]["uid"]


def _plain(spec: dict[str, Any]) -> dict[str, Any]:
    return {"containers": [{key: spec["containers"][0][key] for key in ("name", "image", "resources")}]}


def test_f05_a_delete_names_the_pod_that_was_seen_and_not_its_successor(world: World) -> None:
    attempt = world.look(world.run())
    world.runs()
    attempt = world.look(attempt)
    services.cancel(actor=world.actor, run=attempt.run)
    world.look(attempt)
    (asked,) = world.proxy.asked("DELETE", r"/pods/")
    assert attempt.pod_uid.encode() in asked.body


# -- F26, F27: what never starts, and what does not end ----------


def test_f26_a_pod_that_never_starts_is_given_up_with_a_reason_and_frees_its_room(world: World, settings: Any) -> None:
    world.node.hold = True
    attempt = world.look(world.run())
    attempt = world.look(attempt)
    assert (attempt.state, world.held()) == ("queued", 1)
    world.clock.forward(seconds=settings.PORTAL_TASK_START_TIMEOUT_S - 5)
    assert world.look(attempt).state == "queued"
    world.clock.forward(seconds=6)
    attempt = world.rounds(attempt, "failed", "lost")
    assert (attempt.state, attempt.stop_cause) == ("failed", "start_timeout")
    assert attempt.reason is not None
    assert (world.pods(), world.held()) == ([], 0)
    # Not the program's fault: another attempt waits for its time, and holds no room before.
    run = fresh(attempt.run)
    assert (run.state, run.reason_code, attempts_of(run)) == ("queued", "run_retries_infra", 2)


def test_f27_a_cancelled_run_ends_when_its_pod_is_gone_and_not_before(world: World) -> None:
    attempt = world.look(world.run())
    world.runs()
    attempt = world.look(attempt)
    world.node.deaf = True
    services.cancel(actor=world.actor, run=attempt.run)
    for _ in range(3):
        attempt = world.look(attempt)
    assert (attempt.state, fresh(attempt.run).state, world.held()) == ("cancelling", "cancelling", 1)
    assert world.pod()["metadata"]["deletionTimestamp"]
    world.wake_node()
    attempt = world.rounds(attempt, "cancelled")
    assert (fresh(attempt.run).state, world.pods(), world.held()) == ("cancelled", [], 0)


def test_f27_a_time_out_ends_the_pod_and_the_cluster_has_a_later_one_of_its_own(world: World, settings: Any) -> None:
    attempt = world.look(world.run(timeout_s=60))
    pod = world.runs()
    assert 60 < pod["spec"]["activeDeadlineSeconds"] <= 60 + settings.PORTAL_TASK_START_TIMEOUT_S + 600
    attempt = world.look(attempt)
    world.node.deaf = True
    world.clock.forward(seconds=61)
    attempt = world.look(attempt)
    assert (attempt.state, attempt.stop_cause, world.held()) == ("cancelling", "timeout", 1)
    assert world.pod()["metadata"]["deletionTimestamp"]
    world.wake_node()
    attempt = world.rounds(attempt, "failed")
    assert (attempt.reason_code, world.pods(), world.held()) == ("run_timeout", [], 0)


@pytest.mark.parametrize("fault", ["drop", "reset", "answer", "answer-after"])
def test_f27_a_cancel_whose_delete_was_disturbed_or_whose_worker_died_still_ends_the_pod(
    world: World, fault: str
) -> None:
    attempt = world.look(world.run())
    world.runs()
    attempt = world.look(attempt)
    services.cancel(actor=world.actor, run=attempt.run)
    met = world.proxy.plan(fault, method="DELETE", path=r"/pods/")
    claim = claims.take(Attempt, attempt.pk)  # of a worker that is killed now
    assert claim is not None
    world.clock.forward(seconds=claims.LEASE.total_seconds() + 1)
    attempt = world.rounds(attempt, "cancelled")
    assert (met.met, world.pods(), world.held()) == (1, [], 0)


# -- F16, F19: more than one worker, and workers that die ----------


def test_f16_a_message_that_is_delivered_again_while_its_row_is_worked_on_makes_no_second_pod(world: World) -> None:
    attempt = world.run()
    held = world.proxy.plan("hold", **POST_POD)
    first = Background(lambda: world.look(attempt))
    held.wait()
    with pytest.raises(AssertionError, match="another worker"):
        world.look(attempt)
    held.release()
    first.wait()
    assert ("attempt", attempt.pk) in world.hints, "whoever came too early is heard afterwards"
    attempt = world.look(attempt)
    assert creates(world) == 1
    ends_well(world, attempt)


def test_f19_a_create_that_comes_through_after_its_attempt_has_ended_runs_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient = {**client.Cluster.__init__.__kwdefaults__, "read_timeout_s": 90.0}
    monkeypatch.setattr(client.Cluster.__init__, "__kwdefaults__", patient)
    access.forget(world.cluster.pk)
    attempt = world.run()
    held = world.proxy.plan("hold", **POST_POD)
    late = Background(lambda: world.look(attempt))
    held.wait()
    world.clock.forward(seconds=claims.LEASE.total_seconds() + 1)
    attempt = world.look(attempt)
    ends_well(world, attempt)
    held.release()
    late.wait()
    assert (creates(world), world.pods()) == (2, [])
    assert fresh(attempt).state == "succeeded"


def test_f19_a_worker_that_comes_back_after_its_lease_writes_nothing_more(world: World) -> None:
    attempt = world.look(world.run())
    world.end(exit_code=3, log=("42",))
    held = world.proxy.plan("hold", method="GET", path=r"/log$")
    late = Background(lambda: world.look(attempt))
    held.wait()
    world.clock.forward(seconds=claims.LEASE.total_seconds() + 1)
    ended = world.rounds(attempt, "failed")
    before = (ended.claim_token, ended.updated_at)
    asked = len(world.proxy.seen)
    held.release()
    late.wait()
    assert not [seen.path for seen in world.proxy.seen[asked:] if seen.path.endswith(attempt.pod_name)]
    ended = fresh(attempt)
    assert (ended.claim_token, ended.updated_at) == before
    assert (ended.state, logs.read(ended, 0).data) == ("failed", b"42\n")


def test_f19_a_dead_workers_row_is_due_again_when_its_lease_ends(world: World) -> None:
    from apps.core import reconciling

    attempt = world.run()
    assert claims.take(Attempt, attempt.pk) is not None
    when = next(when for kind, pk, when in reconciling.due_soonest() if pk == attempt.pk)
    assert timedelta() < when - world.clock() <= claims.LEASE
    assert reconciling.reconcile_due("attempt", limit=10) == 0
    world.clock.forward(seconds=claims.LEASE.total_seconds() + 1)
    assert reconciling.reconcile_due("attempt", limit=10) == 1
    assert names.RESULT_FINALIZER in world.pod()["metadata"]["finalizers"]
