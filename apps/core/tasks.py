"""Celery tasks of the base. A message carries a row's id and nothing else."""

from __future__ import annotations

from uuid import UUID

from celery import shared_task

from apps.core import outbox, pulse, reconciling


@shared_task(name="core.reconcile", ignore_result=True)
def reconcile(kind: str, pk: str, only_due: bool = False) -> None:
    """Bring one row to its desired state, when nobody else is at it."""
    reconciling.reconcile_one(kind, UUID(pk), only_due=only_due)


@shared_task(name="core.deliver", ignore_result=True)
def deliver(pk: str) -> None:
    """Deliver one outbox message, when nobody else is at it."""
    outbox.deliver_one(UUID(pk))


@shared_task(name="core.pulse", ignore_result=True)
def answer_pulse() -> None:
    """Say that work gets through."""
    pulse.answer()
