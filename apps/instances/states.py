"""States of a dev instance (design: Names that others rely on)."""

from __future__ import annotations

from enum import StrEnum

from django.db import models
from django.utils.translation import gettext_lazy as _

from apps.core.states import StateTable


class InstanceState(StrEnum):
    """Where an instance is.

    ``queued``: the quota allows it but no node has room now. ``unreachable``: the cluster or the node does not
    answer, so that nothing is certain. ``deleted`` rows are kept for their history.
    """

    STOPPED = "stopped"
    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    FAILED = "failed"
    UNREACHABLE = "unreachable"
    DELETING = "deleting"
    DELETED = "deleted"


class Desired(models.TextChoices):
    """What its owner wants."""

    RUNNING = "running", _("running")
    STOPPED = "stopped", _("stopped")
    DELETED = "deleted", _("deleted")


S = InstanceState

#: A launch is under way or done: there may be a pod, and the key of this launch is alive.
LAUNCHED = frozenset({S.QUEUED, S.STARTING, S.RUNNING, S.UNREACHABLE})
#: The row still counts: its name is taken and pages list it.
ALIVE = frozenset(set(S) - {S.DELETED})

_launching = frozenset({S.STOPPING, S.FAILED, S.UNREACHABLE, S.DELETING})

INSTANCE_STATES = StateTable(
    kind="instance",
    steps={
        S.STOPPED: frozenset({S.STARTING, S.DELETING}),
        S.QUEUED: _launching | {S.STARTING, S.RUNNING},
        S.STARTING: _launching | {S.QUEUED, S.RUNNING},
        S.RUNNING: _launching | {S.STARTING, S.QUEUED},
        # Back to starting: a restart, once the old pod is gone for certain.
        S.STOPPING: frozenset({S.STOPPED, S.STARTING, S.UNREACHABLE, S.DELETING}),
        S.FAILED: frozenset({S.STARTING, S.STOPPING, S.DELETING}),
        S.UNREACHABLE: frozenset({S.QUEUED, S.STARTING, S.RUNNING, S.STOPPING, S.FAILED, S.DELETING}),
        S.DELETING: frozenset({S.DELETED}),
        S.DELETED: frozenset(),
    },
    labels={
        S.STOPPED: _("stopped"),
        S.QUEUED: _("queued"),
        S.STARTING: _("starting"),
        S.RUNNING: _("running"),
        S.STOPPING: _("stopping"),
        S.FAILED: _("failed"),
        S.UNREACHABLE: _("unreachable"),
        S.DELETING: _("deleting"),
        S.DELETED: _("deleted"),
    },
)
