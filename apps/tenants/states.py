"""States of a queue."""

from __future__ import annotations

from enum import StrEnum

from django.utils.translation import gettext_lazy as _

from apps.core.states import StateTable


class QueueState(StrEnum):
    """A queue is usable when its namespace with quota, defaults and policies stands."""

    CREATING = "creating"
    READY = "ready"
    FAILED = "failed"
    DELETING = "deleting"
    DELETED = "deleted"


QUEUE_STATES = StateTable(
    kind="queue",
    steps={
        QueueState.CREATING: frozenset({QueueState.READY, QueueState.FAILED, QueueState.DELETING}),
        QueueState.READY: frozenset({QueueState.FAILED, QueueState.DELETING}),
        QueueState.FAILED: frozenset({QueueState.READY, QueueState.DELETING}),
        QueueState.DELETING: frozenset({QueueState.DELETED}),
        QueueState.DELETED: frozenset(),
    },
    labels={
        QueueState.CREATING: _("being made"),
        QueueState.READY: _("ready"),
        QueueState.FAILED: _("failed"),
        QueueState.DELETING: _("deleting"),
        QueueState.DELETED: _("deleted"),
    },
)
