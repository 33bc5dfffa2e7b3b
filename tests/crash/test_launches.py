"""SIGKILL at every point of an instance's life: it starts, stops and goes all the same, with one pod per launch."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from tests.crash.harness import FIRST_START_S, PATIENCE_S, Stage
from tests.journeys.portal import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("crash")]

#: (point of the start, of the stop, of the deletion), each with the process that is killed there.
LIVES = [
    (("instance-committed", "web"), ("instance-stop-committed", "web"), ("instance-delete-stateful-set", "worker")),
    (("instance-inserted", "web"), ("instance-delete-route", "worker"), ("instance-delete-service", "worker")),
    (("instance-apply-service", "worker"), ("instance-claimed", "worker"), ("instance-delete-committed", "web")),
    (("instance-apply-key", "worker"), ("instance-scale-to-zero", "worker"), ("instance-delete-key", "worker")),
    (("instance-apply-stateful-set", "worker"), ("instance-scale-to-zero", "worker"), ("instance-deleted", "worker")),
    (("instance-apply-route", "worker"), ("instance-stopped", "worker"), ("instance-claimed", "worker")),
    (("watch-instance-up", "control"), ("instance-claimed", "worker"), ("instance-delete-route", "worker")),
]


@pytest.mark.parametrize(
    ("start", "stop", "delete"), LIVES, ids=["+".join(point for point, _program in life) for life in LIVES]
)
def test_an_instance_survives_three_deaths_of_its_keepers(
    stage: Stage, start: tuple[str, str], stop: tuple[str, str], delete: tuple[str, str]
) -> None:
    name = f"life-{start[0]}"
    wanted = {"name": name, "image": "jupyter", "size": "small", "queue": "default"}
    with ExitStack() as held:
        if start[1] == "control":
            # A worker that looks first would see the pod ready, and control would find nothing to write.
            held.enter_context(stage.held_at("instance-apply-stateful-set", "worker"))
        with stage.killed_at(*start):
            asked = stage.ask_later("POST", "instances", wanted, key=name)
    made = asked.result().json
    path = f"instances/{made['id']}"

    stage.in_state(path, "running", seconds=FIRST_START_S)
    assert stage.pods_made(made["id"]) == [1], "one launch, one pod"
    assert stage.reserved() == {made["id"]}
    key = stage.ask("GET", f"{path}/key").json["key"]
    wait_until(
        "JupyterLab that answers to its key",
        lambda: stage.jupyter(made, key=key) == 200,
        seconds=PATIENCE_S,
    )
    assert len([row for row in stage.ask("GET", "instances").json["items"] if row["name"] == name]) == 1

    with stage.killed_at(*stop):
        asked = stage.ask_later("POST", f"{path}/stop")
    asked.result()
    stage.in_state(path, "stopped")
    answer = wait_until("answer of the front", lambda: stage.jupyter(made, key=key), seconds=PATIENCE_S)
    assert answer in (404, 502, 503)
    assert not stage.reserved()
    assert [raw["kind"] for raw in stage.observer.objects() if raw["kind"] in ("Pod", "Ingress")] == []

    with stage.killed_at(*delete):
        # A repeat, after the first request died with its process, may find that it is gone.
        stage.ask_later("DELETE", path)
    stage.everything_is_gone()
    state = "SELECT state, at_rest, claimed_until FROM instances_instance WHERE id = %s::uuid"
    wait_until(
        "row that says so",
        lambda: stage.sql(state, made["id"]) == [("deleted", True, None)],
        seconds=PATIENCE_S,
    )
    assert stage.pods_made(made["id"]) == [1]


def test_a_stopped_instance_starts_again_once_though_the_request_dies_with_its_process(stage: Stage) -> None:
    wanted = {"name": "again", "image": "jupyter", "size": "small", "queue": "default"}
    made = stage.ask("POST", "instances", wanted, key="again").json
    path = f"instances/{made['id']}"
    stage.in_state(path, "running", seconds=FIRST_START_S)
    stage.ask("POST", f"{path}/stop")
    stage.in_state(path, "stopped")
    with stage.killed_at("instance-start-committed", "web"):
        asked = stage.ask_later("POST", f"{path}/start")
    asked.result()
    stage.in_state(path, "running")
    wait_until("second launch", lambda: len(stage.pods_made(made["id"])) == 2, seconds=PATIENCE_S)
    assert stage.pods_made(made["id"]) == [1, 1], "two launches, a pod each"
    assert stage.reserved() == {made["id"]}
    stage.ask("DELETE", path)
    stage.everything_is_gone()
