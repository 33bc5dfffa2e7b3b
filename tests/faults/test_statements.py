"""What a launch asks the database, statement by statement: the request, the worker's round, what the watch tells."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test import Client

from apps.core import reconciling
from apps.instances import watch
from apps.instances.models import Instance
from apps.tenants import tokens
from tests.faults.world import World, fresh, until

#: Without BEGIN and COMMIT; whoever lowers one of them writes the lower number here.
REQUEST = {"new": 17, "start": 17, "stop": 11}
ROUND = {"new": 6, "start": 6, "stop": 5}
TOLD = 2


@contextmanager
def statements() -> Iterator[list[str]]:
    """What this thread asks meanwhile."""
    asked: list[str] = []

    def note(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        asked.append(sql)
        return execute(sql, *rest)

    with connection.execute_wrapper(note):
        yield asked


@pytest.fixture
def browser(world: World) -> Client:
    """A program with a token that has been used within the last minute."""
    _row, text = tokens.create(actor=world.actor, name="counts")
    client = Client(headers={"authorization": f"Bearer {text}"})
    assert client.get("/api/v1/queues").status_code == 200
    return client


def asks(client: Client, path: str, body: dict[str, str] | None = None) -> tuple[Any, list[str]]:
    """Send it; the answer, and the statements that it took."""
    with statements() as asked:
        answer = client.post(f"/api/v1/{path}", body, content_type="application/json")
    assert answer.status_code in {201, 202}, answer.content
    return answer.json(), asked


def round_of(pk: UUID) -> list[str]:
    """A worker's round."""
    with statements() as asked:
        assert reconciling.reconcile_one("instance", pk)
    return asked


def told(world: World, pk: UUID) -> list[str]:
    """The watch says that the pod is up."""
    pod = world.runs()
    with statements() as asked:
        watch.pods_changed(world.cluster.pk, [("MODIFIED", pod)])
    assert fresh(Instance(pk=pk)).state == "running"
    return asked


def gone(world: World, pk: UUID) -> None:
    """Rounds until it is stopped."""

    def stopped() -> bool:
        reconciling.reconcile_one("instance", pk)
        return bool(fresh(Instance(pk=pk)).state == "stopped")

    until("stopped instance", stopped)


def test_requests_rounds_and_news_of_a_launch_take_no_more_statements_than_written_here(
    world: World, browser: Client
) -> None:
    world.instance("first")  # with it the home is made
    wanted = {"name": "counted", "image": "jupyter", "size": "small", "queue": world.queue.name}
    made, request = asks(browser, "instances", wanted)
    pk = UUID(made["id"])
    found = {"new": (request, round_of(pk), told(world, pk))}
    _row, request = asks(browser, f"instances/{pk}/stop")
    found["stop"] = (request, round_of(pk), [])
    gone(world, pk)
    _row, request = asks(browser, f"instances/{pk}/start")
    found["start"] = (request, round_of(pk), told(world, pk))
    most = {what: (REQUEST[what], ROUND[what], TOLD) for what in REQUEST}
    counts = {what: tuple(len(part) for part in parts) for what, parts in found.items()}
    above = {
        what for what, here in counts.items() if any(one > limit for one, limit in zip(here, most[what], strict=True))
    }
    asked = "\n".join(sql[:200] for what in above for part in found[what] for sql in ("--", *part))
    assert not above, f"{counts} instead of {most}:\n{asked}"
