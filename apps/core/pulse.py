"""Whether work gets through: a message to the workers every other minute, whose answer is a row (failure F17).

A worker may look alive and hear nothing, after a restart of Redis for one. Only what has passed through the broker and
has been written down by a worker says that hints arrive; without them everything waits for the sweep's next hint,
which is lost as well.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

from celery import current_app
from celery.exceptions import CeleryError
from django.utils import timezone
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from apps.core import control, standing
from apps.core.models import Pulse

log = logging.getLogger(__name__)

NAME = "worker"
EVERY = timedelta(minutes=2)
#: A worker that is busy with slow clusters may take its time.
SILENT = timedelta(minutes=4)


async def loop(stop: asyncio.Event) -> None:
    """The control loop."""
    while not await control.sleep(stop, EVERY.total_seconds()):
        await control.in_thread(ask)


def ask() -> None:
    """Ask the workers for an answer, and tell administrators when the last question has had none for too long."""
    now = timezone.now()
    row, _made = Pulse.objects.as_system().get_or_create(name=NAME, defaults={"asked_at": now})
    own = Pulse.objects.as_system().filter(pk=NAME)
    if row.answered_at is not None and row.answered_at >= row.asked_at:
        if row.told:
            standing.over(standing.WORKERS_SILENT, NAME)
        own.update(asked_at=now, told=False)
    elif not row.told and now - row.asked_at >= SILENT:
        log.error("no worker has answered since %s", row.asked_at)
        standing.note(standing.WORKERS_SILENT, NAME, params={}, lasting=timedelta())
        own.update(told=True)
    try:
        current_app.send_task("core.pulse", retry=False, ignore_result=True)
    except (OperationalError, RedisError, CeleryError, OSError) as error:
        log.warning("the workers could not be asked: %s", error)


def answer() -> None:
    """A worker has heard it."""
    Pulse.objects.as_system().filter(pk=NAME).update(answered_at=timezone.now())
