"""What the cluster says of a pod while its program runs: stored and shown without anybody asking."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from apps.clusters import watching
from apps.core import live
from apps.flows import services, watch
from apps.flows.models import Attempt, Flow, Run
from apps.flows.states import AttemptState
from apps.tenants.models import User
from kubekit import names
from tests.flows.conftest import attempt_of, look
from tests.flows.fakes import FakeKube


@pytest.fixture
def signals(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """(kind, id) of every row that pages were told to fetch again."""
    sent: list[tuple[str, str]] = []
    monkeypatch.setattr(live, "_send", lambda rows: sent.extend(row for group in rows.values() for row in group))
    return sent


def event(pod: dict[str, Any], reason: str, message: str, *, second: int = 0) -> tuple[dict[str, Any], dict[str, str]]:
    """An Event about a pod and that pod's labels, as the watch hands them over."""
    raw = {
        "reason": reason,
        "message": message,
        "type": "Warning",
        "lastTimestamp": f"2026-11-30T10:00:{second:02}Z",
        "involvedObject": {"kind": "Pod", "name": pod["metadata"]["name"]},
    }
    return raw, pod["metadata"]["labels"]


def running(run: Run, kube: FakeKube) -> tuple[Attempt, dict[str, Any]]:
    look(attempt_of(run))
    pod = kube.only()
    kube.run(pod)
    attempt = look(attempt_of(run))
    assert attempt.state == AttemptState.RUNNING
    return attempt, pod


def test_an_event_while_the_program_runs_is_on_the_page_and_the_page_fetches_it(
    run: Run,
    kube: FakeKube,
    person: User,
    signals: list[tuple[str, str]],
    django_capture_on_commit_callbacks: Callable[..., Any],
) -> None:
    assert watch.events_came in watching.registry.events
    attempt, pod = running(run, kube)
    web = Client()
    web.force_login(person)
    kube.calls.clear()
    with django_capture_on_commit_callbacks(execute=True):
        watch.events_came(
            run.queue.cluster_id,
            [
                event(pod, "NodeNotReady", "Node is not ready", second=1),
                event(pod, "Evicted", "The node was low on memory", second=2),
            ],
        )
    assert {("attempt", str(attempt.pk)), ("run", str(run.pk)), ("flow", str(run.flow_id))} == set(signals)
    assert kube.calls == [], "the cluster is not asked"
    for page in (f"/runs/{run.pk}/events", f"/flows/{run.flow_id}/events"):
        text = web.get(page).text
        assert text.index("The node was low on memory") < text.index("Node is not ready")
    assert f'data-live="run:{run.pk}"' in web.get(f"/runs/{run.pk}/events").text


def test_a_burst_about_many_attempts_costs_as_many_statements_as_one_event(
    new_flow: Callable[..., Flow], actor: Any, kube: FakeKube, django_assert_num_queries: Any
) -> None:
    told = []
    for number in range(3):
        started = services.run_now(actor=actor, flow=new_flow(name=f"flow-{number}"))
        look(attempt_of(started))
    for pod in kube.pods.values():
        told += [event(pod, "Pulling", "Pulling image", second=1), event(pod, "Created", "Created", second=2)]
    cluster_id = started.queue.cluster_id
    with django_assert_num_queries(5):  # savepoint, rows, write, savepoint, runs
        watch.events_came(cluster_id, told)
    assert {len(row.last_events) for row in Attempt.objects.as_system()} == {2}


def test_what_concerns_no_living_attempt_of_this_cluster_is_not_kept(
    run: Run, kube: FakeKube, signals: list[tuple[str, str]], django_capture_on_commit_callbacks: Callable[..., Any]
) -> None:
    attempt, pod = running(run, kube)
    raw, labels = event(pod, "Killing", "Stopping container main")
    signals.clear()
    with django_capture_on_commit_callbacks(execute=True):
        watch.events_came(uuid.uuid4(), [(raw, labels)])
        watch.events_came(run.queue.cluster_id, [(raw, {**labels, names.ID: "no id"}), (raw, {})])
        watch.events_came(run.queue.cluster_id, [(raw, {**labels, names.ID: str(uuid.uuid4())})])
        Attempt.objects.as_system().filter(pk=attempt.pk).update(state=AttemptState.SUCCEEDED)
        watch.events_came(run.queue.cluster_id, [(raw, labels)])
    assert attempt_of(run).last_events == [] and signals == []
