"""The log on an instance's page: while it starts, after it failed, without the key, and told when there is more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from django.test import Client

from apps.clusters import access
from apps.core import control
from apps.core.secret import MASK
from apps.instances import consumers, startlog
from apps.instances.models import Instance
from kubekit.errors import BadRequest
from tests.core.test_consumers import WAIT_S, opened
from tests.instances.conftest import World
from tests.instances.test_api import LIST, Rest


@pytest.fixture
def client(world: World) -> Client:
    made = Client()
    made.force_login(world.owner)
    return made


def starting(world: World) -> Instance:
    """One whose container runs and is not ready yet."""
    instance = world.create()
    world.reconcile(instance)
    world.cluster.make_pod()
    world.cluster.container(state={"running": {"startedAt": "2026-01-01T00:00:00Z"}})
    return world.reconcile(instance)


def test_the_page_shows_what_it_prints_while_it_starts_and_no_more_once_it_runs(world: World, client: Client) -> None:
    instance = starting(world)
    world.cluster.logs = b"installing packages\n"
    path = f"/instances/{instance.pk}/log/start"
    assert f'hx-get="{path}"' in client.get(f"/instances/{instance.pk}").text
    text = client.get(path).text
    assert "installing packages" in text and "data-log-grows" in text
    world.cluster.run_pod()
    world.reconcile(instance)
    assert "installing packages" not in client.get(path).text
    assert "installing packages" in client.get(f"/instances/{instance.pk}/log/tail").text


def test_of_one_that_failed_to_start_the_sentence_and_the_last_lines_stay(world: World, client: Client) -> None:
    instance = world.create()
    Instance.objects.as_system().filter(pk=instance.pk).update(
        state="failed", at_rest=True, reason_code="crashed_at_start", reason_params={"exit_code": 3},
        reason_evidence=["ModuleNotFoundError: no module named torch"],
    )  # fmt: skip
    instance.refresh_from_db()
    text = client.get(f"/instances/{instance.pk}/log/start").text
    assert "data-log-reason" in text and "no module named torch" in text and "data-log-grows" not in text
    assert str(instance.reason.sentence) in text.replace("&#x27;", "'")
    assert "no module named torch" in client.get(f"/instances/{instance.pk}/log/tail").text


def test_the_key_is_in_no_log_that_is_shown_also_not_half_of_it(world: World, client: Client) -> None:
    instance = starting(world)
    key = instance.key.reveal()
    world.cluster.logs = f"the key is {key}, again {key}\nlast line\n".encode()
    answers = [
        client.get(f"/instances/{instance.pk}/log/start").text,
        client.get(f"/instances/{instance.pk}/log/tail").text,
        Rest(world.owner).get(f"{LIST}/{instance.pk}/log").content.decode(),
        Rest(world.colleague).get(f"{LIST}/{instance.pk}/log").content.decode(),
    ]
    for text in answers:
        assert key not in text and text.count(MASK) == 2 and "last line" in text
    cut = b"first\n" + b"x" * (startlog.BYTES - 6 - 10) + key.encode()[:10]
    world.cluster.logs = cut[: startlog.BYTES - 20] + b"\n" + key.encode()[:19]
    assert len(world.cluster.logs) == startlog.BYTES
    assert key[:10] not in startlog.read(instance).lines


def test_the_key_is_in_no_evidence_of_why_it_failed(world: World, client: Client) -> None:
    instance = world.reconcile(world.create())
    key = instance.key.reveal()
    world.cluster.make_pod()
    world.cluster.logs = f"fatal: {key} is no good\n".encode()
    last = {"exitCode": 3, "reason": "Error", "message": f"fatal: {key} is no good"}
    world.cluster.wait("CrashLoopBackOff", restarts=3, last=last)
    world.reconcile(instance)
    assert instance.reason_evidence and "is no good" in str(instance.reason_evidence)
    assert key not in str(instance.reason_evidence) and MASK in str(instance.reason_evidence)
    assert key not in client.get(f"/instances/{instance.pk}").text


def test_rest_says_why_there_is_no_log(world: World) -> None:
    instance, rest = world.create(), Rest(world.owner)
    answer = rest.get(f"{LIST}/{instance.pk}/log")
    assert (answer.status_code, answer.content, answer["Cache-Control"]) == (200, b"", "no-store")
    assert "not%20begun" in answer["Log-Note"]
    assert Rest(world.stranger).get(f"{LIST}/{instance.pk}/log").status_code == 404


class Growing:
    """Stands for the streams of a cluster: refuses once, then two pieces, then silence."""

    asked = 0

    def __init__(self, credentials: Any) -> None:
        assert credentials == "credentials"

    async def __aenter__(self) -> Growing:
        return self

    async def __aexit__(self, *_: Any) -> None:
        return None

    async def follow_log(self, namespace: str, pod: str, container: str, **_: Any) -> AsyncIterator[bytes]:
        Growing.asked += 1
        if Growing.asked == 1:
            raise BadRequest("the container has not started", status=400)
        yield b"one"
        yield b"two"
        await asyncio.Event().wait()


@pytest.fixture
def growing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumers, "Streams", Growing)
    monkeypatch.setattr(Growing, "asked", 0)
    monkeypatch.setattr(consumers, "AGAIN_S", 0.01)
    monkeypatch.setattr(consumers, "QUIET_S", 0.01)
    monkeypatch.setattr(access, "credentials_of", lambda cluster: "credentials")


@pytest.mark.django_db(transaction=True)
async def test_a_page_is_told_that_there_is_more_and_the_stream_ends_with_the_page(
    transactional_db: None, world: World, growing: None
) -> None:
    instance = await control.in_thread(world.create)
    found, answer = await opened(f"/live/instances/{instance.pk}/log", world.colleague)
    assert answer["type"] == "websocket.accept"
    for _ in range(2):
        told = await found.receive_output(timeout=WAIT_S)
        assert told["text"] == '{"more": true}'
    assert consumers.LogFollower.following == 1
    await found.send_input({"type": "websocket.disconnect", "code": 1000})
    await found.wait(timeout=WAIT_S)
    assert consumers.LogFollower.following == 0


@pytest.mark.django_db(transaction=True)
async def test_strangers_hear_nothing_and_a_full_process_says_so(
    transactional_db: None, world: World, growing: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = await control.in_thread(world.create)
    for user, most, code in ((world.stranger, 200, 4404), (world.owner, 0, 4429)):
        monkeypatch.setattr(consumers, "MOST", most)
        found, answer = await opened(f"/live/instances/{instance.pk}/log", user)
        assert (answer["type"], answer["code"]) == ("websocket.close", code)
        await found.send_input({"type": "websocket.disconnect", "code": code})
        await found.wait(timeout=WAIT_S)
    assert Growing.asked == 0
