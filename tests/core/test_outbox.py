"""The outbox: one row per cause, retried until delivered, never sent before commit."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import transaction
from django.utils import timezone

from apps.core import outbox
from apps.core.models import OutboxMessage
from apps.core.outbox import DeliveryFailed


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[OutboxMessage]:
    """Messages that the handler of topic ``t`` got."""
    got: list[OutboxMessage] = []
    monkeypatch.setattr(outbox, "_handlers", {"t": got.append})
    return got


def _only() -> OutboxMessage:
    return OutboxMessage.objects.as_system().get()


def test_the_same_cause_is_announced_once(db: None, sent: list[OutboxMessage]) -> None:
    assert outbox.put(topic="t", key="run-1:failed:mail", payload={"n": 1})
    assert not outbox.put(topic="t", key="run-1:failed:mail", payload={"n": 2})
    outbox.deliver_one(_only().pk)
    outbox.deliver_one(_only().pk)
    assert [message.payload for message in sent] == [{"n": 1}]
    assert _only().delivered_at is not None and _only().due_at is None


def test_a_rolled_back_cause_leaves_no_message_and_no_hint(
    db: None, hints: list, django_capture_on_commit_callbacks: object
) -> None:
    with pytest.raises(RuntimeError), transaction.atomic():
        outbox.put(topic="t", key="k", payload={})
        raise RuntimeError
    assert not OutboxMessage.objects.as_system().exists() and hints == []


def test_a_failed_delivery_is_due_again_later_and_keeps_the_receivers_words(
    db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(message: OutboxMessage) -> None:
        raise DeliveryFailed("answered 500")

    monkeypatch.setattr(outbox, "_handlers", {"t": refuse})
    outbox.put(topic="t", key="k", payload={})
    outbox.deliver_one(_only().pk)
    row = _only()
    assert row.attempts == 1 and row.last_error == "answered 500" and row.delivered_at is None
    assert row.due_at is not None and row.due_at > timezone.now() + timedelta(seconds=3)


def test_a_permanent_refusal_is_not_tried_again(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(message: OutboxMessage) -> None:
        raise DeliveryFailed("internal address", permanent=True)

    monkeypatch.setattr(outbox, "_handlers", {"t": refuse})
    outbox.put(topic="t", key="k", payload={})
    outbox.deliver_one(_only().pk)
    assert _only().due_at is None and _only().delivered_at is None


def test_a_worker_that_dies_while_delivering_leaves_the_message_due(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(message: OutboxMessage) -> None:
        raise SystemExit

    monkeypatch.setattr(outbox, "_handlers", {"t": die})
    outbox.put(topic="t", key="k", payload={})
    with pytest.raises(SystemExit):
        outbox.deliver_one(_only().pk)
    row = _only()
    assert row.due_at is not None and row.due_at <= timezone.now() + outbox.LEASE


def test_a_late_failure_does_not_send_again_what_another_worker_delivered(
    db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []

    def hang_once(message: OutboxMessage) -> None:
        """The first worker hangs for longer than its lease; the second one delivers meanwhile."""
        if message.attempts == 1:
            OutboxMessage.objects.as_system().update(due_at=timezone.now())
            outbox.deliver_one(message.pk)
            raise DeliveryFailed("timed out")
        sent.append(message.attempts)

    monkeypatch.setattr(outbox, "_handlers", {"t": hang_once})
    outbox.put(topic="t", key="k", payload={})
    outbox.deliver_one(_only().pk)
    assert sent == [2]
    assert _only().delivered_at is not None and _only().due_at is None
