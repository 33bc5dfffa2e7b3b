"""SIGKILL at every point of a run: one pod per attempt, one run per instant, one alarm per failure, the whole log."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.crash.harness import PATIENCE_S, Made, Stage
from tests.journeys.portal import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("crash")]

FAILS = "print('begun', flush=True)\nfor n in range(5): print(n)\nraise SystemExit(3)\n"
LOG = "begun\n0\n1\n2\n3\n4\n"
SLEEPS = "import time\nprint('begun', flush=True)\nwhile True: time.sleep(1)\n"
#: Prints until it is told to end, so that there is always a next line to collect.
COUNTS = """
import signal, sys, time
over = []
signal.signal(signal.SIGTERM, lambda *_: over.append(True))
n = 0
while not over:
    print(n, flush=True)
    n += 1
    time.sleep(0.05)
print('end', flush=True)
sys.exit(3)
"""
YEARLY = [{"cron": "0 0 1 1 *", "timezone": "UTC"}]


def new_flow(stage: Stage, name: str, program: str, **node: Any) -> str:
    """A flow that runs the program and tells mail and webhook when it fails; its id."""
    document = {
        "name": name,
        "queue": "default",
        "schedules": YEARLY,
        "nodes": [
            {
                "name": "main",
                "executor": "container",
                "image": "python",
                "size": "small",
                "command": ["python", "-c", program],
                **node,
            }
        ],
        "alerts": [
            {"on": ["failed"], "channel": "mail", "to": ["ops@example.org"]},
            {"on": ["failed"], "channel": "webhook", "url": stage.webhook.url},
        ],
    }
    pk: str = stage.ask("POST", "flows", document, key=name).json["id"]
    return pk


@dataclass(frozen=True)
class Alarms:
    """What the sinks got about one run: messages, and how many of them are different to their receiver."""

    mails: int
    different_mails: int
    calls: int
    different_calls: int


def alarms_of(stage: Stage, run: str) -> Alarms:
    """Count at the sinks."""
    mails = [
        str(mail["Message-ID"]) for mail in list(stage.mail.messages) if run in mail.get_payload(decode=True).decode()
    ]
    calls = [call.headers["webhook-id"] for call in list(stage.webhook.calls) if call.json["data"]["run"]["id"] == run]
    return Alarms(len(mails), len(set(mails)), len(calls), len(set(calls)))


def ended_as_it_should(
    stage: Stage, run: Made, *, attempts: int = 1, log: str | None = LOG, doubled: bool = False, but: str = ""
) -> None:
    """All that must hold of a failed run whatever was killed meanwhile."""
    assert run["state"] == "failed"
    rows = stage.ask("GET", f"attempts?run={run['id']}").json["items"]
    assert [row["state"] for row in rows] == ["failed"] * attempts
    for row in rows:
        assert stage.pods_made(row["id"]) == [1], "one attempt, one pod"
        if log is not None:
            assert stage.ask("GET", f"attempts/{row['id']}/log?offset=0").body.decode() == log
    deliveries = "SELECT count(*) FROM core_outboxmessage WHERE key LIKE %s AND delivered_at IS NULL"
    wait_until(
        "two alarms that are delivered",
        lambda: stage.sql(deliveries, f"{run['id']}:%") == [(0,)],
        seconds=PATIENCE_S,
    )
    found = alarms_of(stage, run["id"])
    assert (found.different_mails, found.different_calls) == (1, 1), "one alarm for each channel"
    if not doubled:
        assert (found.mails, found.calls) == (1, 1)
    stage.everything_is_gone(but=but)


@pytest.mark.parametrize(
    ("point", "program"),
    [
        ("run-inserted", "web"),
        ("run-committed", "web"),
        ("attempt-admitted", "worker"),
        ("attempt-created", "worker"),
        ("attempt-log-stored", "worker"),
        ("attempt-ending-stored", "worker"),
        ("attempt-finalizer-off", "worker"),
        ("attempt-pod-gone", "worker"),
        ("attempt-ending-written", "worker"),
        ("alarm-committed", "worker"),
        ("alarm-claimed", "worker"),
        ("alarm-sent", "worker"),
    ],
)
def test_a_failing_run_ends_once_and_is_told_once(stage: Stage, point: str, program: str) -> None:
    flow = new_flow(stage, f"fails-{point}", FAILS)
    with stage.killed_at(point, program):
        asked = stage.ask_later("POST", f"flows/{flow}/run", key=point)
    run = stage.in_state(f"runs/{asked.result().json['id']}", "succeeded", "failed", "cancelled")
    assert run["reason"]["code"] == "exit_code", run["reason"]
    assert len(stage.ask("GET", f"runs?flow={flow}").json["items"]) == 1
    # A sender that dies between sending and noting it sends again, with the same id.
    ended_as_it_should(stage, run, doubled=point == "alarm-sent")


@pytest.mark.parametrize("point", ["attempt-log-stored", "attempt-ending-stored", "attempt-finalizer-off"])
def test_log_and_ending_are_kept_though_somebody_deletes_the_pod_while_its_worker_is_dead(
    stage: Stage, point: str
) -> None:
    flow = new_flow(stage, f"taken-{point}", FAILS)

    def take_away() -> None:
        attempts = "SELECT a.id FROM flows_attempt a JOIN flows_run r ON r.id = a.run_id WHERE r.flow_id = %s::uuid"
        ((pk,),) = stage.sql(attempts, flow)
        stage.observer.delete_ended_pod(str(pk))

    with stage.killed_at(point, "worker", meanwhile=take_away):
        asked = stage.ask_later("POST", f"flows/{flow}/run", key=f"taken-{point}")
    run = stage.in_state(f"runs/{asked.result().json['id']}", "succeeded", "failed", "cancelled")
    assert run["reason"]["code"] == "exit_code", run["reason"]
    ended_as_it_should(stage, run)


def test_an_end_that_the_watch_saw_and_died_of_is_told_once(stage: Stage) -> None:
    flow = new_flow(stage, "seen", FAILS)
    # The pod ends while the worker stands still, so the watch is the first to see it.
    with stage.held_at("attempt-created", "worker"), stage.killed_at("watch-attempt-finished", "control"):
        asked = stage.ask_later("POST", f"flows/{flow}/run", key="seen")
    run = stage.in_state(f"runs/{asked.result().json['id']}", "succeeded", "failed", "cancelled")
    ended_as_it_should(stage, run)


def test_each_line_of_a_log_is_stored_once_though_its_collector_dies_twice(stage: Stage) -> None:
    flow = new_flow(stage, "counts", COUNTS)
    with stage.killed_at("log-piece-stored", "control"):
        run = stage.ask("POST", f"flows/{flow}/run", key="counts").json
    with stage.killed_at("log-piece-stored", "control"):
        pass
    stage.ask("POST", f"runs/{run['id']}/cancel")
    cancelled_with_its_log(stage, run)


def wait_for_a_line(stage: Stage, run: Made) -> None:
    """Until the program has printed: before that it would die of SIGTERM without a word."""
    (attempt,) = stage.ask("GET", f"attempts?run={run['id']}").json["items"]
    path = f"attempts/{attempt['id']}/log?offset=0"
    wait_until("first line", lambda: stage.ask("GET", path).body, seconds=PATIENCE_S)


def cancelled_with_its_log(stage: Stage, run: Made) -> None:
    """A run of COUNTS that was cancelled: one attempt, one pod, each line once, and nothing is left."""
    stage.in_state(f"runs/{run['id']}", "cancelled")
    (attempt,) = stage.ask("GET", f"attempts?run={run['id']}").json["items"]
    *numbers, last = stage.ask("GET", f"attempts/{attempt['id']}/log?offset=0").body.decode().splitlines()
    assert last == "end"
    assert numbers == [str(n) for n in range(len(numbers))]
    assert stage.pods_made(attempt["id"]) == [1]
    stage.everything_is_gone()


@pytest.mark.parametrize("point", ["attempt-ended", "attempt-next-inserted"])
def test_a_retry_follows_once_whoever_dies_between_two_attempts(stage: Stage, point: str) -> None:
    flow = new_flow(stage, f"retries-{point}", FAILS, retries={"count": 1, "interval_s": 1})
    with stage.killed_at(point, "worker"):
        asked = stage.ask_later("POST", f"flows/{flow}/run", key=point)
    run = stage.in_state(f"runs/{asked.result().json['id']}", "succeeded", "failed", "cancelled")
    ended_as_it_should(stage, run, attempts=2)


@pytest.mark.parametrize(
    ("point", "program"),
    [("watch-attempt-running", "control"), ("log-piece-came", "control")],
)
def test_a_run_goes_on_in_its_one_pod_whoever_dies_at_its_beginning(stage: Stage, point: str, program: str) -> None:
    flow = new_flow(stage, f"goes-on-{point}", COUNTS)
    with stage.killed_at(point, program):
        asked = stage.ask_later("POST", f"flows/{flow}/run", key=point)
    run = stage.in_state(f"runs/{asked.result().json['id']}", "running")
    wait_for_a_line(stage, run)
    stage.ask("POST", f"runs/{run['id']}/cancel")
    cancelled_with_its_log(stage, run)


@pytest.mark.parametrize(("point", "program"), [("run-cancel-committed", "web"), ("attempt-pod-deleted", "worker")])
def test_a_cancelled_run_ends_whoever_dies_on_the_way(stage: Stage, point: str, program: str) -> None:
    flow = new_flow(stage, f"cancelled-{point}", COUNTS)
    run = stage.ask("POST", f"flows/{flow}/run", key=point).json
    wait_for_a_line(stage, run)
    with stage.killed_at(point, program):
        # A repeat, after the first request died with its process, may find a run that has ended.
        stage.ask_later("POST", f"runs/{run['id']}/cancel")
    cancelled_with_its_log(stage, run)


def test_a_time_out_ends_the_pod_and_is_told_once(stage: Stage) -> None:
    flow = new_flow(stage, "late", SLEEPS, timeout_s=2)
    with stage.killed_at("attempt-stopping", "worker"):
        asked = stage.ask_later("POST", f"flows/{flow}/run", key="late")
    run = stage.in_state(f"runs/{asked.result().json['id']}", "succeeded", "failed", "cancelled")
    assert run["reason"]["code"] == "run_timeout", run["reason"]
    ended_as_it_should(stage, run, log="begun\n")


@pytest.mark.parametrize("point", ["tick-claimed", "tick-inserted", "tick-committed"])
def test_an_instant_fires_once_when_the_scheduler_dies_in_its_tick(stage: Stage, point: str) -> None:
    flow = new_flow(stage, f"fires-{point}", FAILS)
    instant = datetime.now(UTC).replace(microsecond=0)
    with stage.killed_at(point, "control"):
        stage.sql("UPDATE flows_schedule SET next_fire_at = %s WHERE flow_id = %s::uuid", instant, flow)
        stage.sql("NOTIFY mlportal_schedule")
    found = wait_until("run", lambda: stage.ask("GET", f"runs?flow={flow}").json["items"], seconds=PATIENCE_S)
    run = stage.in_state(f"runs/{found[0]['id']}", "succeeded", "failed", "cancelled")
    ended_as_it_should(stage, run)
    again = stage.ask("GET", f"runs?flow={flow}").json["items"]
    assert [datetime.fromisoformat(row["scheduled_at"]) for row in again] == [instant]
