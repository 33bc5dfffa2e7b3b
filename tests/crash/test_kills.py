"""SIGKILL of what the portal stands on, and of everything at once: what runs goes on, what was asked for happens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.crash.harness import FIRST_START_S, PATIENCE_S, Made, Stage
from tests.crash.test_runs import FAILS, SLEEPS, ended_as_it_should, new_flow
from tests.journeys.portal import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("crash")]


@pytest.fixture(scope="module")
def instance(stage: Stage) -> Iterator[Made]:
    """One that runs when the killing begins, and is still the same when it ends."""
    wanted = {"name": "bystander", "image": "jupyter", "size": "small", "queue": "default"}
    made = stage.ask("POST", "instances", wanted, key="bystander").json
    yield stage.in_state(f"instances/{made['id']}", "running", seconds=FIRST_START_S)
    stage.ask("DELETE", f"instances/{made['id']}")
    stage.everything_is_gone()


@pytest.mark.parametrize("program", ["redis", "postgres", "caddy", "localkube", "web", "worker", "control"])
def test_a_killed_program_comes_back_and_a_run_asked_for_meanwhile_ends_once(
    stage: Stage, instance: Made, program: str
) -> None:
    flow = new_flow(stage, f"kill-{program}", FAILS)
    with ExitStack() as held:
        if program == "localkube":
            # The observer's own watch breaks off with it: the pod stays until the observer has listed again.
            held.enter_context(stage.held_at("attempt-finalizer-off", "worker"))
        asked = stage.ask_later("POST", f"flows/{flow}/run", key=program)
        stage.kill(program)
        if program == "localkube":
            rows = stage.ask("GET", f"attempts?run={asked.result().json['id']}").json["items"]
            assert stage.pods_made(rows[0]["id"]) == [1]
    run = stage.in_state(f"runs/{asked.result().json['id']}", "succeeded", "failed", "cancelled")
    ended_as_it_should(stage, run, but=instance["id"])
    wait_until("instance that answers", lambda: stage.jupyter(instance) == 200, seconds=PATIENCE_S)
    stage.in_state(f"instances/{instance['id']}", "running")
    assert stage.pods_made(instance["id"]) == [1], "the instance went on"


@pytest.mark.parametrize(
    ("doomed", "pods_go_on"),
    [
        pytest.param({}, False, id="supervisor"),
        pytest.param({"programs": True}, True, id="supervisor-and-programs"),
        pytest.param({"programs": True, "pods": True}, False, id="everything"),
    ],
)
def test_after_a_kill_of_the_supervisor_the_next_up_recovers(
    stage: Stage, instance: Made, request: pytest.FixtureRequest, doomed: dict[str, bool], *, pods_go_on: bool
) -> None:
    name = request.node.callspec.id
    flow = new_flow(stage, f"up-{name}", SLEEPS)
    run = stage.ask("POST", f"flows/{flow}/run", key=name).json
    stage.in_state(f"runs/{run['id']}", "running")
    (attempt,) = stage.ask("GET", f"attempts?run={run['id']}").json["items"]
    assert stage.pods_made(attempt["id"]) == [1]

    stage.kill_supervisor(**doomed)
    stage.portal.start()
    stage.wait_for_all()

    if not pods_go_on:
        # The machine's fault is not the program's: another attempt follows though the flow has no retries.
        before = stage.in_state(f"attempts/{attempt['id']}", "lost", "failed")
        rows = stage.ask("GET", f"attempts?run={run['id']}").json["items"]
        (attempt,) = [row for row in rows if row["id"] != before["id"]]
        assert stage.pods_made(before["id"]) == [1]
    stage.in_state(f"attempts/{attempt['id']}", "running")
    wait_until("instance that answers", lambda: stage.jupyter(instance) == 200, seconds=PATIENCE_S)
    stage.in_state(f"instances/{instance['id']}", "running")
    assert stage.reserved() == {instance["id"], attempt["id"]}

    stage.ask("POST", f"runs/{run['id']}/cancel")
    stage.in_state(f"runs/{run['id']}", "cancelled")
    assert stage.pods_made(attempt["id"]) == [1]
    stage.everything_is_gone(but=instance["id"])


def test_an_orphan_goes_after_its_grace_though_the_reaper_dies_twice(stage: Stage, instance: Made) -> None:
    with stage.killed_at("orphan-recorded", "control"):
        stage.observer.make_orphan()
    with stage.killed_at("orphan-removed", "control"):
        pass
    stage.everything_is_gone(but=instance["id"])
    wait_until(
        "record of the orphan",
        lambda: stage.sql("SELECT count(*) FROM clusters_orphan WHERE removed_at IS NOT NULL") == [(1,)],
        seconds=PATIENCE_S,
    )
