"""A team with a queue, an image and a size; a cluster in the test's hand; flows made through the service."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from apps.catalog.models import Image, Purpose, Size
from apps.clusters import access
from apps.core import reconciling
from apps.core.actors import Actor
from apps.flows import services
from apps.flows.models import Attempt, Flow, Run
from apps.tenants.models import Queue, User
from tests.flows.fakes import FakeKube
from tests.tenants import make

GIB = 1 << 30
DOCUMENT: dict[str, Any] = {
    "name": "nightly",
    "queue": "",
    "schedules": [],
    "nodes": [
        {
            "name": "main",
            "executor": "container",
            "image": "python",
            "size": "small",
            "command": ["python", "-c", "print(6*7)"],
            "retries": {"count": 1, "interval_s": 0},
            "timeout_s": 60,
        }
    ],
    "alerts": [],
}


@pytest.fixture
def kube(monkeypatch: pytest.MonkeyPatch) -> FakeKube:
    """What ``access.connect`` answers."""
    fake = FakeKube()
    monkeypatch.setattr(access, "connect", lambda cluster: fake)
    return fake


@pytest.fixture
def queue(db: None) -> Queue:
    """A ready queue with an image and a size to choose from."""
    Image.objects.create(name="python", reference="mlportal/python:1", purpose=Purpose.TASK)
    Size.objects.create(name="small", cpu_millis=500, memory_bytes=GIB)
    return make.queue()


@pytest.fixture
def person(queue: Queue) -> User:
    """A member of the queue's team."""
    return make.user(role_in=queue.team)


@pytest.fixture
def actor(person: User) -> Actor:
    """The member as services see them."""
    return make.actor(person)


@pytest.fixture
def document(queue: Queue) -> dict[str, Any]:
    """A flow's document, to be changed by the test."""
    return {**copy.deepcopy(DOCUMENT), "queue": queue.name}


@pytest.fixture
def new_flow(actor: Actor, document: dict[str, Any]) -> Callable[..., Flow]:
    """Make a flow; keywords replace fields of the document or of its node."""

    def build(**changes: Any) -> Flow:
        body = copy.deepcopy(document)
        for key, value in changes.items():
            if key in body:
                body[key] = value
            else:
                body["nodes"][0][key] = value
        return services.create_flow(actor=actor, document=body)

    return build


@pytest.fixture
def flow(new_flow: Callable[..., Flow]) -> Flow:
    """A flow with one retry and a time-out of a minute."""
    return new_flow()


@pytest.fixture
def run(actor: Actor, flow: Flow) -> Run:
    """A run that waits for its first round."""
    return services.run_now(actor=actor, flow=flow)


@pytest.fixture(autouse=True)
def no_hints(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, Any]]]:
    """Hints are kept and not sent: the test says when a round happens."""
    sent: list[tuple[str, Any]] = []
    monkeypatch.setattr(reconciling, "send_hint", lambda kind, pk, **_: sent.append((kind, pk)))
    return sent


def attempt_of(run: Run, number: int = 1) -> Attempt:
    """An attempt as the database has it."""
    return Attempt.objects.as_system().select_related("run", "queue").get(run=run, number=number)


def look(attempt: Attempt) -> Attempt:
    """One round; the row afterwards."""
    assert reconciling.reconcile_one("attempt", attempt.pk)
    return Attempt.objects.as_system().select_related("run", "queue").get(pk=attempt.pk)


def fresh(run: Run) -> Run:
    """The run as the database has it."""
    return Run.objects.as_system().get(pk=run.pk)
