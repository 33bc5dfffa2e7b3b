"""Deliveries to the outside that happen exactly as often as their cause.

``put`` writes the row in the caller's transaction; its unique key makes a second announcement of the same
cause impossible. A worker claims the row, calls the topic's handler outside any transaction and marks it.
A handler may run again after a crash: the message's id is its deduplication id for the receiver.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

from celery import current_app
from celery.exceptions import CeleryError
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from apps.core import claims, crashpoints, wake
from apps.core.models import OutboxMessage
from apps.core.reconciling import Swept

log = logging.getLogger(__name__)

RETRY_S = (5, 15, 60, 300, 900, 3600, 3 * 3600, 6 * 3600)
#: Longer than any handler takes: mail servers and webhooks have ten seconds for each step.
LEASE = 2 * claims.LEASE
Handler = Callable[[OutboxMessage], None]
_handlers: dict[str, Handler] = {}


class DeliveryFailed(Exception):
    """The receiver did not take it; ``permanent`` means that another try is pointless."""

    def __init__(self, text: str, *, permanent: bool = False) -> None:
        super().__init__(text)
        self.permanent = permanent


def register(topic: str, handler: Handler) -> None:
    """Name the function that delivers messages of a topic. It raises ``DeliveryFailed``."""
    _handlers[topic] = handler


def put(*, topic: str, key: str, payload: Mapping[str, Any], queue_id: UUID | None = None) -> bool:
    """Queue a delivery with the current transaction; False when this cause was announced before."""
    message, made = OutboxMessage.objects.as_system().get_or_create(
        key=key, defaults={"topic": topic, "payload": dict(payload), "queue_id": queue_id, "due_at": timezone.now()}
    )
    if made:
        transaction.on_commit(lambda: crashpoints.reach("alarm-committed"))
        transaction.on_commit(lambda: send_hint(message.pk))
    return made


def send_hint(pk: UUID) -> None:
    """Ask a worker to deliver now; the sweep finds it otherwise."""
    try:
        current_app.send_task("core.deliver", (str(pk),), retry=False, ignore_result=True)
    except (OperationalError, RedisError, CeleryError, OSError) as error:
        log.warning("delivery hint for %s was not sent, the sweep will find it: %s", pk, error)


def deliver_one(pk: UUID) -> None:
    """Deliver the message if it is due; on failure note why and when to try again."""
    now = timezone.now()
    messages = OutboxMessage.objects.as_system()
    with transaction.atomic():
        message = messages.select_for_update(skip_locked=True).filter(pk=pk, due_at__lte=now).first()
        if message is None:
            return
        message.attempts += 1
        message.due_at = now + LEASE  # a crash during delivery leaves it due again
        message.save(update_fields=["attempts", "due_at"])
    crashpoints.reach("alarm-claimed")
    try:
        _handlers[message.topic](message)
    except DeliveryFailed as failure:
        _note_failure(message, str(failure), permanent=failure.permanent)
    except Exception as error:  # a handler's fault must not take the message down with it
        log.exception("delivery of %s failed", message.key)
        _note_failure(message, repr(error), permanent=False)
    else:
        crashpoints.reach("alarm-sent")
        _own(message).update(delivered_at=timezone.now(), due_at=None, last_error="")


def _note_failure(message: OutboxMessage, text: str, *, permanent: bool) -> None:
    given_up = permanent or message.attempts > len(RETRY_S)
    due = None if given_up else timezone.now() + timedelta(seconds=RETRY_S[message.attempts - 1])
    log.warning("delivery of %s failed (attempt %d): %s", message.key, message.attempts, text)
    _own(message).update(last_error=text[:2000], due_at=due)
    wake.notify(wake.DUE)


def _own(message: OutboxMessage) -> QuerySet[OutboxMessage]:
    """The row, unless another worker took it up meanwhile: a late failure must not send again what it delivered."""
    return OutboxMessage.objects.as_system().filter(pk=message.pk, attempts=message.attempts, delivered_at__isnull=True)


SWEPT = Swept(kind="outbox message", model=OutboxMessage, hint=send_hint)
