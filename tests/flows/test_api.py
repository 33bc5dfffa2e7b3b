"""REST of flows, runs and attempts as scripts use it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from apps.core.actors import Actor
from apps.flows import logs, services
from apps.flows.models import Flow, Run
from apps.tenants.models import Queue, User
from tests.flows.conftest import attempt_of, fresh, look
from tests.flows.fakes import FakeKube
from tests.tenants import make

JSON = "application/json"


@pytest.fixture
def api(person: User) -> Client:
    """The member's session."""
    client = Client()
    client.force_login(person)
    return client


@pytest.fixture
def stranger(queue: Queue) -> Client:
    """Somebody of another team."""
    client = Client()
    client.force_login(make.user(role_in=make.team()))
    return client


def test_a_flow_is_made_read_changed_and_deleted(api: Client, document: dict[str, Any]) -> None:
    document["schedules"] = [{"cron": "30 2 * * *", "timezone": "Asia/Shanghai"}]
    document["alerts"] = [{"on": ["failed", "timeout"], "channel": "mail", "to": "ada@example.org"}]
    made = api.post("/api/v1/flows", document, JSON)
    assert made.status_code == 201, made.content
    body = made.json()
    assert body["webhook_secret"].startswith("whsec_")
    assert body["schedules"] == [
        {"cron": "30 2 * * *", "timezone": "Asia/Shanghai", "misfire": "latest", "enabled": True}
    ]
    assert body["nodes"][0]["retries"] == {"count": 1, "interval_s": 0}
    assert body["alerts"][0]["to"] == ["ada@example.org"]
    assert len(body["next_fires"]) == 5
    assert body["next_fires"][0].endswith("T18:30:00+00:00")
    address = f"/api/v1/flows/{body['id']}"
    read = api.get(address).json()
    assert "webhook_secret" not in read
    changed = {key: read[key] for key in ("name", "queue", "schedules", "nodes", "alerts")} | {"schedules": []}
    answer = api.put(address, changed, JSON)
    assert answer.status_code == 200, answer.content
    assert (answer.json()["version"], answer.json()["next_fires"]) == (2, [])
    assert api.put(address, changed, JSON).json()["version"] == 2
    assert api.delete(address).status_code == 204
    assert api.get(address).status_code == 404


@pytest.mark.parametrize(
    ("place", "value", "code", "pointer"),
    [
        (("schedules",), [{"cron": "0 0 30 2 *"}], "cron_never_fires", "/schedules/0/cron"),
        (("schedules",), [{"cron": "61 * * * *"}], "cron_invalid", "/schedules/0/cron"),
        (
            ("schedules",),
            [{"cron": "* * * * *", "timezone": "Mars/Olympus"}],
            "timezone_unknown",
            "/schedules/0/timezone",
        ),
        (("nodes", 0, "image"), "nope", "image_unknown", "/nodes/0/image"),
        (("nodes", 0, "size"), "nope", "size_unknown", "/nodes/0/size"),
        (("nodes", 0, "timeout_s"), 0, "flow_invalid", "/nodes/0/timeout_s"),
        (("nodes", 0, "volumes"), [{"volume": "nope"}], "volume_unknown", "/nodes/0/volumes/0/volume"),
        (("nodes", 0, "command"), "python job.py", "flow_invalid", "/nodes/0/command"),
        (("nodes", 0, "env"), {"MLPORTAL_RUN_ID": "x"}, "reserved_env", "/nodes/0/env"),
        (("nodes", 0, "surprise"), 1, "unknown_field", "/nodes/0/surprise"),
        (("nodes", 0, "executor"), "magic", "flow_invalid", "/nodes/0/executor"),
        (("nodes",), [], "flow_invalid", "/nodes"),
        (("name",), "a/b", "name_invalid", "/name"),
        (("name",), "x" * 64, "name_invalid", "/name"),
        (("queue",), "nope", "queue_unknown", "/queue"),
        (("alerts",), [{"on": ["failed"], "channel": "mail", "to": ["nobody"]}], "flow_invalid", "/alerts/0/to"),
        (("alerts",), [{"channel": "webhook", "url": "ftp://a.example.org/"}], "flow_invalid", "/alerts/0/url"),
        (("alerts",), [{"channel": "webhook", "url": "https://a.example.org/b c"}], "flow_invalid", "/alerts/0/url"),
        (("alerts",), [{"channel": "webhook", "url": "https://me:x@a.example.org/"}], "flow_invalid", "/alerts/0/url"),
        (("alerts",), [{"on": ["exploded"], "channel": "mail", "to": ["a@b.cc"]}], "flow_invalid", "/alerts/0/on"),
    ],
)
def test_each_fault_of_a_document_has_a_code_and_a_place(
    api: Client, document: dict[str, Any], place: tuple[Any, ...], value: Any, code: str, pointer: str
) -> None:
    target: Any = document
    for step in place[:-1]:
        target = target[step]
    target[place[-1]] = value
    answer = api.post("/api/v1/flows", document, JSON)
    assert answer.status_code == 422, answer.content
    problem = answer.json()
    assert problem["code"] == code
    assert pointer in [error["pointer"] for error in problem["errors"]]
    assert problem["next"]
    assert Flow.objects.as_system().count() == 0


def test_all_faults_are_told_at_once(api: Client, document: dict[str, Any]) -> None:
    document["nodes"][0] |= {"timeout_s": -1, "command": 5}
    document["schedules"] = [{"cron": "x"}]
    pointers = {error["pointer"] for error in api.post("/api/v1/flows", document, JSON).json()["errors"]}
    assert pointers >= {"/nodes/0/timeout_s", "/nodes/0/command", "/schedules/0/cron"}


def test_several_nodes_are_refused_with_their_own_code(api: Client, document: dict[str, Any]) -> None:
    document["nodes"].append({**copy.deepcopy(document["nodes"][0]), "name": "second"})
    assert api.post("/api/v1/flows", document, JSON).json()["code"] == "one_node_only"


def test_a_size_that_the_queue_can_never_give_is_refused_before_anything_is_made(
    api: Client, document: dict[str, Any]
) -> None:
    from apps.catalog.models import Size

    Size.objects.create(name="huge", cpu_millis=64_000, memory_bytes=1)
    document["nodes"][0]["size"] = "huge"
    assert api.post("/api/v1/flows", document, JSON).json()["code"] == "size_exceeds_queue"


@pytest.mark.parametrize("name", ["训练 nightly", "a" * 63, "x.y_z-1"])
def test_names_of_any_script_are_taken(api: Client, document: dict[str, Any], name: str) -> None:
    answer = api.post("/api/v1/flows", {**document, "name": name}, JSON)
    assert answer.status_code == 201, answer.content
    assert answer.json()["name"] == name


def test_a_name_is_taken_once_in_a_queue_and_free_again_after_deletion(api: Client, document: dict[str, Any]) -> None:
    first = api.post("/api/v1/flows", document, JSON).json()
    again = api.post("/api/v1/flows", document, JSON)
    assert (again.status_code, again.json()["code"]) == (409, "name_taken")
    api.delete(f"/api/v1/flows/{first['id']}")
    assert api.post("/api/v1/flows", document, JSON).status_code == 201


def test_an_idempotency_key_makes_one_flow_and_one_run(api: Client, document: dict[str, Any]) -> None:
    ids = {api.post("/api/v1/flows", document, JSON, headers={"Idempotency-Key": "k"}).json()["id"] for _ in range(2)}
    assert len(ids) == 1
    address = f"/api/v1/flows/{ids.pop()}/run"
    runs = [
        api.post(address, {"parameters": {"rev": "abc"}}, JSON, headers={"Idempotency-Key": "push-1"}).json()
        for _ in range(3)
    ]
    assert len({run["id"] for run in runs}) == 1
    assert (runs[0]["trigger"], runs[0]["parameters"]) == ("api", {"rev": "abc"})
    assert Run.objects.as_system().count() == 1


def test_a_parameter_reaches_the_program_as_a_variable(api: Client, flow: Flow, kube: FakeKube) -> None:
    made = api.post(f"/api/v1/flows/{flow.pk}/run", {"parameters": {"rev": "abc"}}, JSON).json()
    look(attempt_of(Run.objects.as_system().get(pk=made["id"])))
    env = {row["name"]: row["value"] for row in kube.only()["spec"]["containers"][0]["env"]}
    assert env["PARAM_rev"] == "abc"
    assert env["MLPORTAL_RUN_ID"] == made["id"]
    bad = api.post(f"/api/v1/flows/{flow.pk}/run", {"parameters": {"a b": "x"}}, JSON)
    assert bad.status_code == 422


def test_pause_stops_the_clock_and_resume_starts_it_from_now(api: Client, new_flow: Callable[..., Flow]) -> None:
    flow = new_flow(schedules=[{"cron": "* * * * *", "timezone": "UTC"}])
    paused = api.post(f"/api/v1/flows/{flow.pk}/pause").json()
    assert (paused["state"], paused["next_fire_at"], paused["next_fires"]) == ("paused", None, [])
    resumed = api.post(f"/api/v1/flows/{flow.pk}/resume").json()
    assert resumed["state"] == "active"
    assert resumed["next_fire_at"] is not None


def test_next_fires_answers_before_anything_is_saved(api: Client, queue: Queue) -> None:
    good = api.post("/api/v1/flows/next-fires", {"cron": "0 9 * * 1", "timezone": "Europe/Berlin"}, JSON)
    assert len(good.json()["next_fires"]) == 5
    bad = api.post("/api/v1/flows/next-fires", {"cron": "0 0 31 6 *", "timezone": "UTC"}, JSON)
    assert (bad.status_code, bad.json()["code"]) == (422, "cron_never_fires")


def test_a_run_with_its_attempts_and_log_is_read_cancelled_and_rerun(
    api: Client, flow: Flow, run: Run, kube: FakeKube
) -> None:
    attempt = look(attempt_of(run))
    kube.run(kube.only())
    attempt = look(attempt)
    item = api.get(f"/api/v1/runs/{run.pk}").json()
    assert (item["state"], item["flow"]) == ("running", "nightly")
    (row,) = api.get(f"/api/v1/attempts?run={run.pk}").json()["items"]
    assert (row["state"], row["number"], row["pod"]) == ("running", 1, attempt.pod_name)
    logs.append(attempt, "é42\n".encode(), {"stamp": "", "seen": 0})
    log = api.get(f"/api/v1/attempts/{attempt.pk}/log?offset=2")
    assert (log.content, log["Next-Offset"], log["Complete"]) == (b"42\n", "5", "false")
    assert log["Content-Type"].startswith("text/plain")
    assert api.get(f"/api/v1/attempts/{attempt.pk}/log?offset=-1").status_code == 422
    assert api.post(f"/api/v1/runs/{run.pk}/rerun").json()["code"] == "run_active"
    assert api.post(f"/api/v1/runs/{run.pk}/cancel").status_code == 202
    look(attempt)
    look(attempt)
    assert fresh(run).state == "cancelled"
    assert api.post(f"/api/v1/runs/{run.pk}/cancel").json()["code"] == "run_ended"
    again = api.post(f"/api/v1/runs/{run.pk}/rerun").json()
    assert (again["trigger"], again["state"]) == ("rerun", "queued")
    listed = api.get(f"/api/v1/runs?flow={flow.pk}&state=cancelled").json()["items"]
    assert [one["id"] for one in listed] == [str(run.pk)]
    assert len(api.get("/api/v1/runs?flow=nightly").json()["items"]) == 2


def test_a_stranger_gets_404_for_everything_and_an_empty_list(stranger: Client, run: Run, actor: Actor) -> None:
    flow, attempt = run.flow_id, attempt_of(run).pk
    for address in (f"flows/{flow}", f"runs/{run.pk}", f"attempts/{attempt}", f"attempts/{attempt}/log"):
        assert stranger.get(f"/api/v1/{address}").status_code == 404, address
    for address in (f"flows/{flow}/run", f"flows/{flow}/pause", f"runs/{run.pk}/cancel", f"runs/{run.pk}/rerun"):
        assert stranger.post(f"/api/v1/{address}", {}, JSON).status_code == 404, address
    for kind in ("flows", "runs", "attempts"):
        assert stranger.get(f"/api/v1/{kind}").json()["items"] == []
    assert stranger.delete(f"/api/v1/flows/{flow}").status_code == 404


def test_a_viewer_sees_but_does_not_act(run: Run) -> None:
    from apps.tenants.models import Role

    client = Client()
    client.force_login(make.user(role_in=run.queue.team, role=Role.VIEWER))
    assert client.get(f"/api/v1/runs/{run.pk}").status_code == 200
    for address in (f"flows/{run.flow_id}/run", f"runs/{run.pk}/cancel", f"flows/{run.flow_id}/pause"):
        assert client.post(f"/api/v1/{address}", {}, JSON).status_code == 403, address


def test_the_address_of_a_webhook_is_hidden_from_those_who_may_not_act_on_the_flow(
    api: Client, new_flow: Callable[..., Flow], queue: Queue
) -> None:
    secret = "https://hooks.example.org:8443/services/T0/B0/s3cret?key=1"
    rules = [{"on": ["failed"], "channel": "webhook", "url": secret}]
    flow = new_flow(alerts=rules)
    new_flow(alerts=rules, name="weekly")
    other = Client()
    other.force_login(make.user(role_in=queue.team))
    hidden = "https://hooks.example.org:8443/•••"
    assert other.get(f"/api/v1/flows/{flow.pk}").json()["alerts"][0]["url"] == hidden
    assert [one["alerts"][0]["url"] for one in other.get("/api/v1/flows").json()["items"]] == [hidden, hidden]
    for tab in ("", "/yaml"):
        page = other.get(f"/flows/{flow.pk}{tab}").text
        assert hidden in page
        assert "s3cret" not in page
    assert api.get(f"/api/v1/flows/{flow.pk}").json()["alerts"][0]["url"] == secret
    assert "s3cret" in api.get(f"/flows/{flow.pk}").text
    assert "s3cret" in api.get(f"/flows/{flow.pk}/yaml").text
    read = other.get(f"/api/v1/flows/{flow.pk}").json()
    copied = {key: read[key] for key in ("queue", "nodes", "alerts")} | {"name": "copy"}
    refused = other.post("/api/v1/flows", copied, JSON)
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/alerts/0/url")


def test_another_members_home_cannot_be_mounted(api: Client, document: dict[str, Any], queue: Queue) -> None:
    from apps.storage.models import Volume, VolumeKind
    from apps.storage.states import VolumeState

    other = make.user(role_in=queue.team)
    home = Volume.objects.create(
        name="home-other",
        queue=queue,
        owner=other,
        kind=VolumeKind.HOME,
        size_bytes=1,
        claim="c",
        state=VolumeState.BOUND,
    )
    document["nodes"][0]["volumes"] = [{"volume": str(home.pk)}]
    assert api.post("/api/v1/flows", document, JSON).json()["code"] == "volume_unknown"


def test_the_secret_can_be_changed_and_is_shown_then(api: Client, flow: Flow) -> None:
    answer = api.post(f"/api/v1/flows/{flow.pk}/rotate-secret")
    secret = answer.json()["webhook_secret"]
    assert answer["Cache-Control"] == "no-store"
    stored = Flow.objects.as_system().get(pk=flow.pk).webhook_secret
    assert stored is not None
    assert stored.reveal() == secret


def test_a_deleted_flow_keeps_its_runs_and_cancels_what_runs(api: Client, run: Run, kube: FakeKube) -> None:
    look(attempt_of(run))
    kube.run(kube.only())
    look(attempt_of(run))
    api.delete(f"/api/v1/flows/{run.flow_id}")
    assert fresh(run).state == "cancelling"
    assert api.get(f"/api/v1/runs/{run.pk}").status_code == 200


@pytest.mark.parametrize("kind", ["flows", "runs", "attempts"])
def test_a_list_takes_few_statements_at_any_number_of_rows(
    api: Client, new_flow: Callable[..., Flow], actor: Actor, kind: str, django_assert_max_num_queries: Any
) -> None:
    for number in range(12):
        services.run_now(actor=actor, flow=new_flow(name=f"f{number}"))
    api.get(f"/api/v1/{kind}")
    with django_assert_max_num_queries(5):  # two of them are session and person
        assert len(api.get(f"/api/v1/{kind}").json()["items"]) == 12
