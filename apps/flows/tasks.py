"""Celery tasks of flows. A message carries nothing: the rows are the queue."""

from __future__ import annotations

from celery import shared_task

from apps.core import reconciling
from apps.flows import scheduler

#: So many that what they share costs little, and few enough that all workers have some of what is due at one instant.
BATCH = 64


@shared_task(name="flows.start_queued", ignore_result=True)
def start_queued() -> None:
    """Take some due attempts and bring each on its way; a full batch calls the next worker."""
    reconciling.reconcile_due("attempt", limit=BATCH, before=scheduler.hint_queued)
