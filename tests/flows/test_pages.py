"""Pages of flows and runs: what they show, to whom, and with how many statements."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from apps.core.actors import Actor
from apps.flows import forms, logs, rendering, services
from apps.flows.models import Flow, Run
from apps.storage.models import Volume, VolumeKind
from apps.storage.states import VolumeState
from apps.tenants.models import Queue, User
from tests.flows.conftest import attempt_of, look
from tests.flows.fakes import FakeKube
from tests.tenants import make


@pytest.fixture
def web(person: User) -> Client:
    """The member's browser."""
    client = Client()
    client.force_login(person)
    return client


@pytest.fixture
def home(queue: Queue, person: User) -> Volume:
    """The member's home."""
    return Volume.objects.create(
        name="home-ada", queue=queue, owner=person, kind=VolumeKind.HOME, size_bytes=1, claim="home-claim",
        state=VolumeState.BOUND,
    )  # fmt: skip


def typed(queue: Queue, **changes: Any) -> dict[str, Any]:
    return {
        "name": "nightly", "image": "python", "size": "small", "queue": queue.name, "command": "python /root/job.py",
        "preset": "* * * * *", "cron": "* * * * *", "timezone": "Asia/Shanghai", "timeout_s": "60", "retries": "1",
        "interval_s": "0", "misfire": "latest", **changes,
    }  # fmt: skip


def test_the_form_arrives_filled_in_from_an_instance(web: Client, queue: Queue, home: Volume) -> None:
    query = f"image=python&size=small&queue={queue.name}&volume=home-ada&path=/root&workdir=/root"
    page = web.get(f"/flows/new?{query}").text
    assert f'<option value="{home.pk}" selected>' in page
    assert 'value="/root"' in page
    assert '<option value="python" selected>' in page


def test_the_name_that_an_instance_proposes_is_one_that_the_queue_has_free(
    web: Client, queue: Queue, new_flow: Callable[..., Flow], actor: Actor
) -> None:
    def proposed(wanted: str, **more: str) -> str:
        page = web.get("/flows/new", {"queue": queue.name, "name": wanted, **more}).text
        found = re.search(r'name="name"(?: value="([^"]*)")?', page)
        assert found is not None
        return found[1] or ""

    assert proposed("nightly") == "nightly"
    gone = new_flow(name="nightly")
    assert proposed("nightly") == "nightly-2"
    new_flow(name="nightly-2")
    new_flow(name="night")
    assert proposed("nightly") == "nightly-3" and proposed("night") == "night-2"
    services.delete_flow(actor=actor, flow=gone)
    assert proposed("nightly") == "nightly", "a deleted flow's name is free"
    long = "x" * 63
    new_flow(name=long)
    assert proposed(long) == "x" * 50 + "-2"
    assert proposed("") == ""


def test_a_flow_is_made_by_the_form_with_alarms_and_shown_with_its_next_five_times(
    web: Client, queue: Queue, home: Volume
) -> None:
    answer = web.post(
        "/flows/new",
        typed(
            queue, volume=str(home.pk), mail="ada@example.org", webhook="https://hooks.example.org/x", workdir="/root"
        ),
    )
    assert answer.status_code == 302, answer.text
    flow = Flow.objects.as_system().select_related("version").get()
    assert flow.version is not None
    document = flow.version.document
    assert document["nodes"][0]["command"] == ["python", "/root/job.py"]
    assert document["nodes"][0]["volumes"] == [{"volume": "home-ada", "path": "/root", "read_only": False}]
    assert [rule["channel"] for rule in document["alerts"]] == ["mail", "webhook"]
    page = web.get(answer["Location"]).text
    assert page.count("<time") >= 5
    assert re.search(r"In Asia/Shanghai the next is <time [^>]+>\d{4}-\d\d-\d\d \d\d:\d\d CST</time>\.", page)


def test_a_double_click_on_create_makes_one_flow(web: Client, queue: Queue) -> None:
    body = typed(queue, once="6f6f2d1e-3f0e-4f9b-8f6e-0a6e7b1c2d3e")
    places = {web.post("/flows/new", body)["Location"] for _ in range(2)}
    assert len(places) == 1
    assert Flow.objects.as_system().count() == 1


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"cron": "0 0 30 2 *"}, "cron"),
        ({"name": "a/b"}, "name"),
        ({"mail": "nobody"}, "mail"),
        ({"webhook": "ftp://x"}, "webhook"),
        ({"workdir": "relative"}, "workdir"),
        ({"timeout_s": "0"}, "timeout_s"),
        ({"command": ""}, "command"),
    ],
)
def test_a_fault_stands_beside_its_field_and_nothing_typed_is_lost(
    web: Client, queue: Queue, changes: dict[str, str], field: str
) -> None:
    answer = web.post("/flows/new", typed(queue, **changes))
    assert answer.status_code == 422
    assert f'id="id_{field}-error"' in answer.text
    if changes.get("command") != "":
        assert "python /root/job.py" in answer.text


def test_the_panel_names_the_next_five_times_and_whether_it_would_run(web: Client, queue: Queue) -> None:
    page = web.post("/flows/new/panel", typed(queue, cron="0 9 * * *")).text
    assert page.count("09:00 CST") == 5
    assert "data-answer" in page
    assert "cron: 0 9 * * *" in page
    bad = web.post("/flows/new/panel", typed(queue, cron="0 0 30 2 *")).text
    assert "data-cron-error" in bad
    empty = web.post("/flows/new/panel", {})
    assert empty.status_code == 200


def test_editing_keeps_what_the_form_does_not_show(web: Client, new_flow: Callable[..., Flow], queue: Queue) -> None:
    flow = new_flow(
        env={"A": "1"},
        schedules=[{"cron": "0 1 * * *", "timezone": "UTC"}, {"cron": "0 5 * * *", "timezone": "UTC"}],
        alerts=[{"on": ["succeeded"], "channel": "mail", "to": ["a@example.org"]}],
    )
    page = web.get(f"/flows/{flow.pk}/edit").text
    assert "print(6*7)" in page
    answer = web.post(f"/flows/{flow.pk}/edit", typed(queue, cron="0 2 * * *", mail="b@example.org"))
    assert answer.status_code == 302, answer.text
    flow = Flow.objects.as_system().select_related("version").get()
    assert flow.version is not None
    assert flow.version.number == 2
    assert flow.version.document["nodes"][0]["env"] == {"A": "1"}
    assert [line["cron"] for line in flow.version.document["schedules"]] == ["0 2 * * *", "0 5 * * *"]
    assert flow.version.document["alerts"] == [{"on": ["succeeded"], "channel": "mail", "to": ["b@example.org"]}]


def test_the_document_can_be_edited_as_yaml(web: Client, flow: Flow) -> None:
    page = web.get(f"/flows/{flow.pk}/edit-yaml").text
    assert re.search(r"name: nightly\s+queue: .*\s+schedules: \[\]\s+nodes:\s+- name: main\s+executor: container", page)
    assert "timeout_s: 60" in page
    assert flow.version is not None
    text = rendering.dump(flow.version.document).replace("timeout_s: 60", "timeout_s: 90")
    assert web.post(f"/flows/{flow.pk}/edit-yaml", {"document": text}).status_code == 302
    bad = web.post(f"/flows/{flow.pk}/edit-yaml", {"document": text.replace("timeout_s: 90", "timeout_s: soon")})
    assert bad.status_code == 422
    assert "nodes.0.timeout_s" in bad.text
    assert web.post(f"/flows/{flow.pk}/edit-yaml", {"document": "a: [b"}).status_code == 422


def test_run_now_leads_to_the_run(web: Client, flow: Flow) -> None:
    answer = web.post(f"/flows/{flow.pk}/run")
    run = Run.objects.as_system().get()
    assert answer["Location"] == f"/runs/{run.pk}"
    assert run.trigger == "manual"


def test_a_run_shows_attempts_reason_and_log_without_escapes(web: Client, run: Run, kube: FakeKube) -> None:
    look(attempt_of(run))
    kube.run(kube.only())
    attempt = look(attempt_of(run))
    logs.append(attempt, b"\x1b[31mred\x1b[0m <script>alert(1)</script>\n", {"stamp": "", "seen": 0})
    page = web.get(f"/runs/{run.pk}").text
    assert "red &lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "\x1b" not in page
    assert f"/attempts/{attempt.pk}/log?offset={attempt.log_bytes}" in page
    part = web.get(f"/attempts/{attempt.pk}/log?offset={attempt.log_bytes}").text
    assert "hx-get" in part
    kube.finish(kube.only(), exit_code=3)
    look(attempt)
    page = web.get(f"/runs/{run.pk}").text
    assert "exit code 3" in page
    part = web.get(f"/attempts/{attempt.pk}/log?offset={attempt.log_bytes}").text
    assert "hx-get" not in part
    for tab in ("log", "events", "yaml", "history"):
        assert web.get(f"/runs/{run.pk}/{tab}").status_code == 200, tab
    assert web.get(f"/runs/{run.pk}?part=attempts").text.count("<tr") == 3


@pytest.mark.parametrize("tab", ["", "/runs", "/log", "/events", "/yaml", "/history"])
def test_each_tab_of_a_flow_opens(web: Client, run: Run, tab: str) -> None:
    assert web.get(f"/flows/{run.flow_id}{tab}").status_code == 200


def pulled(kube: FakeKube, about: str) -> None:
    """The cluster says that a pod's image was pulled."""
    kube.events = [
        {
            "reason": "Pulled",
            "message": 'Successfully pulled image "python:3" in 2.1s (2.1s including waiting)',
            "type": "Normal",
            "lastTimestamp": "2026-11-30T10:00:00Z",
            "involvedObject": {"kind": "Pod", "name": about},
        }
    ]


def test_what_happens_to_a_runs_pod_is_told_by_run_flow_and_queue_in_plain_words(
    web: Client, run: Run, kube: FakeKube
) -> None:
    pages = (f"/runs/{run.pk}/events", f"/flows/{run.flow_id}/events", f"/queues/{run.queue_id}/events")
    for page in pages:
        assert "stands here" in web.get(page).text, page
    look(attempt_of(run))
    pulled(kube, kube.only()["metadata"]["name"])
    look(attempt_of(run))
    for page in pages:
        text = web.get(page).text
        assert "The image python:3 was pulled in 2.1s." in text, page
        assert "stands here" not in text, page
    assert f'href="/runs/{run.pk}"' in web.get(pages[1]).text
    for page in pages:
        found = web.get(f"/api/v1{page}").json()["items"]
        assert [row["reason"] for row in found] == ["Pulled"], page


def test_a_flow_shows_the_log_of_its_latest_run_and_tells_of_a_newer_one(
    web: Client, run: Run, kube: FakeKube, actor: Actor
) -> None:
    page = f"/flows/{run.flow_id}/log"
    look(attempt_of(run))
    kube.run(kube.only())
    attempt = look(attempt_of(run))
    logs.append(attempt, b"the first line\n", {"stamp": "", "seen": 0})
    text = web.get(page).text
    assert "the first line" in text
    assert f'href="/runs/{run.pk}"' in text
    top = f"{page}?part=log-top&attempt={attempt.pk}"
    assert "a newer one" not in web.get(top).text
    second = services.run_now(actor=actor, flow=run.flow)
    assert "There is a newer one" in web.get(top).text
    text = web.get(page).text
    assert f'href="/runs/{second.pk}"' in text
    assert "the first line" not in text


def test_a_flow_that_never_ran_says_what_its_log_and_events_will_hold(web: Client, flow: Flow) -> None:
    for tab in ("log", "events"):
        assert "Run it, and what" in web.get(f"/flows/{flow.pk}/{tab}").text


def test_the_webhook_secret_is_shown_once_to_whom_has_just_made_the_flow(
    web: Client, queue: Queue, person: User
) -> None:
    body = typed(queue, webhook="https://hooks.example.org/x", once="6f6f2d1e-3f0e-4f9b-8f6e-0a6e7b1c2d3e")
    mate = Client()
    mate.force_login(make.user(role_in=queue.team))
    place = web.post("/flows/new", body)["Location"]
    secret = Flow.objects.as_system().get().webhook_secret.reveal()
    assert secret not in str(dict(web.session))
    mate.post("/flows/new", body)  # the same id again answers the flow, but not its secret
    assert secret not in mate.get(place).text
    first = web.get(place)
    assert secret in first.text
    assert first["Cache-Control"] == "no-store"
    assert secret not in web.get(place).text
    web.post("/flows/new", body)  # a double click still shows it
    assert secret in web.get(place).text
    Flow.objects.as_system().update(created_at=timezone.now() - timedelta(minutes=2))
    web.post("/flows/new", body)  # the form sent again later does not
    assert secret not in web.get(place).text


def test_a_flow_without_a_webhook_shows_no_secret(web: Client, queue: Queue) -> None:
    place = web.post("/flows/new", typed(queue, mail="ada@example.org"))["Location"]
    assert "Webhook secret" not in web.get(place).text


def test_strangers_get_404_and_nothing_is_said(run: Run, kube: FakeKube) -> None:
    client = Client()
    client.force_login(make.user(role_in=make.team()))
    attempt = attempt_of(run)
    for address in (
        f"/flows/{run.flow_id}", f"/flows/{run.flow_id}/log", f"/flows/{run.flow_id}/events",
        f"/flows/{run.flow_id}/log?part=log-top", f"/flows/{run.flow_id}/edit", f"/flows/{run.flow_id}/edit-yaml",
        f"/runs/{run.pk}", f"/runs/{run.pk}/log", f"/runs/{run.pk}/events", f"/attempts/{attempt.pk}/log",
    ):  # fmt: skip
        answer = client.get(address)
        assert answer.status_code == 404, address
        assert "nightly" not in answer.text
    for address in (f"/flows/{run.flow_id}/run", f"/flows/{run.flow_id}/secret", f"/runs/{run.pk}/cancel"):
        assert client.post(address).status_code == 404, address
    assert "nightly" not in client.get("/runs").text
    assert "nightly" not in client.get("/flows").text


@pytest.mark.parametrize("address", ["/flows", "/runs"])
def test_lists_take_at_most_three_statements_beside_session_and_person(
    web: Client, new_flow: Callable[..., Flow], actor: Actor, address: str, django_assert_max_num_queries: Any
) -> None:
    for number in range(8):
        flow = new_flow(name=f"f{number}", schedules=[{"cron": "0 1 * * *", "timezone": "UTC"}])
        for _ in range(3):
            services.run_now(actor=actor, flow=flow)
    web.get(address)
    with django_assert_max_num_queries(5):
        page = web.get(address).text
    assert page.count('<tr id="row-') >= 8
    assert web.get(f"{address}?queue=nope").status_code == 200


def test_the_empty_lists_say_what_to_do(web: Client, queue: Queue) -> None:
    assert "/flows/new" in web.get("/flows").text
    assert "Nothing has run yet." in web.get("/runs").text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("python /root/job.py", ["python", "/root/job.py"]),
        ("python -c 'print(6*7)'", ["/bin/sh", "-c", "python -c 'print(6*7)'"]),
        ("a | b", ["/bin/sh", "-c", "a | b"]),
        ("echo $HOME", ["/bin/sh", "-c", "echo $HOME"]),
        ("", []),
    ],
)
def test_a_typed_command_becomes_words_or_goes_to_a_shell_and_back(text: str, words: list[str]) -> None:
    assert forms.command_of(text) == words
    assert forms.text_of(words) == text


def test_logs_become_plain_text() -> None:
    raw = "\x1b]0;title\x07\x1b[1;32mok\x1b[0m\r\n10%\r50%\r100%\n\x00\x08x\x1b[2J"
    assert rendering.plain(raw) == "ok\n100%\nx"
