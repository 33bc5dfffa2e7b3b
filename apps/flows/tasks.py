"""Celery tasks of flows. A message carries nothing: the rows are the queue."""

from __future__ import annotations

from celery import shared_task

from apps.core import reconciling
from apps.flows import scheduler

#: Few enough that the last one of a batch starts well before its lease ends.
BATCH = 8


@shared_task(name="flows.start_queued", ignore_result=True)
def start_queued() -> None:
    """Take some due attempts and bring each on its way; a full batch calls the next worker."""
    reconciling.reconcile_due("attempt", limit=BATCH, before=scheduler.hint_queued)
