"""States of flows, runs and attempts."""

from __future__ import annotations

from enum import StrEnum

from django.utils.translation import gettext_lazy as _

from apps.core.states import StateTable


class FlowState(StrEnum):
    """A paused flow keeps its schedules but none of them fires; a deleted one keeps its runs."""

    ACTIVE = "active"
    PAUSED = "paused"
    DELETED = "deleted"


FLOW_STATES = StateTable(
    kind="flow",
    steps={
        FlowState.ACTIVE: frozenset({FlowState.PAUSED, FlowState.DELETED}),
        FlowState.PAUSED: frozenset({FlowState.ACTIVE, FlowState.DELETED}),
        FlowState.DELETED: frozenset(),
    },
    labels={FlowState.ACTIVE: _("active"), FlowState.PAUSED: _("paused"), FlowState.DELETED: _("deleted")},
)


class RunState(StrEnum):
    """A run follows its attempts; between two attempts it stays running."""

    QUEUED = "queued"
    RUNNING = "running"
    CANCELLING = "cancelling"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"


RUN_STATES = StateTable(
    kind="run",
    steps={
        RunState.QUEUED: frozenset(
            {RunState.RUNNING, RunState.CANCELLING, RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED}
        ),
        RunState.RUNNING: frozenset({RunState.CANCELLING, RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED}),
        RunState.CANCELLING: frozenset({RunState.CANCELLED, RunState.SUCCEEDED, RunState.FAILED}),
        RunState.SUCCEEDED: frozenset(),
        RunState.FAILED: frozenset(),
        RunState.CANCELLED: frozenset(),
        RunState.SKIPPED: frozenset(),
    },
    labels={
        RunState.QUEUED: _("queued"),
        RunState.RUNNING: _("running"),
        RunState.CANCELLING: _("cancelling"),
        RunState.SUCCEEDED: _("succeeded"),
        RunState.FAILED: _("failed"),
        RunState.CANCELLED: _("cancelled"),
        RunState.SKIPPED: _("skipped"),
    },
)


class AttemptState(StrEnum):
    """Queued until the container runs; cancelling until the pod is gone; lost when its end was never seen."""

    QUEUED = "queued"
    RUNNING = "running"
    CANCELLING = "cancelling"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"


ATTEMPT_ALIVE = (AttemptState.QUEUED, AttemptState.RUNNING, AttemptState.CANCELLING)
"""The states of attempts that have not ended, for a partial index."""
_ENDS = frozenset({AttemptState.SUCCEEDED, AttemptState.FAILED, AttemptState.CANCELLED, AttemptState.LOST})

ATTEMPT_STATES = StateTable(
    kind="attempt",
    steps={
        AttemptState.QUEUED: frozenset({AttemptState.RUNNING, AttemptState.CANCELLING}) | _ENDS,
        AttemptState.RUNNING: frozenset({AttemptState.CANCELLING}) | _ENDS,
        AttemptState.CANCELLING: _ENDS,
        AttemptState.SUCCEEDED: frozenset(),
        AttemptState.FAILED: frozenset(),
        AttemptState.CANCELLED: frozenset(),
        AttemptState.LOST: frozenset(),
    },
    labels={
        AttemptState.QUEUED: _("queued"),
        AttemptState.RUNNING: _("running"),
        AttemptState.CANCELLING: _("stopping"),
        AttemptState.SUCCEEDED: _("succeeded"),
        AttemptState.FAILED: _("failed"),
        AttemptState.CANCELLED: _("cancelled"),
        AttemptState.LOST: _("lost"),
    },
)


class StopCause(StrEnum):
    """Why the portal ends an attempt before the program does."""

    CANCEL = "cancel"
    TIMEOUT = "timeout"
    START_TIMEOUT = "start_timeout"


class Charge(StrEnum):
    """Which budget another attempt is taken from; NONE when nothing is repeated."""

    NONE = "none"
    USER = "user"
    INFRA = "infra"
