"""What lives in a queue. Apps above say so, and a queue in which something lives cannot be deleted."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from apps.tenants.models import Reservation

Finder = Callable[[UUID], list[str]]
"""``queue id -> what lives there``, each as a person reads it (``instance notebook``)"""

_finders: list[Finder] = []


def register(finder: Finder) -> None:
    """Add a function that names what lives in a queue; called from ``AppConfig.ready``."""
    _finders.append(finder)


def of(queue_id: UUID) -> list[str]:
    """Everything that lives in the queue. What nobody names but the ledger still counts is named by its kind."""
    found = [text for finder in _finders for text in finder(queue_id)]
    if found:
        return found
    held = Reservation.objects.as_system().filter(queue_id=queue_id, released_at__isnull=True)
    return sorted(set(held.values_list("kind", flat=True)))
