"""States of a registered cluster."""

from __future__ import annotations

from enum import StrEnum

from django.utils.translation import gettext_lazy as _

from apps.core.states import StateTable


class ClusterState(StrEnum):
    """Whether the portal reaches the cluster."""

    PENDING = "pending"
    CONNECTED = "connected"
    UNREACHABLE = "unreachable"
    REMOVED = "removed"


CLUSTER_STATES = StateTable(
    kind="cluster",
    steps={
        ClusterState.PENDING: frozenset({ClusterState.CONNECTED, ClusterState.UNREACHABLE, ClusterState.REMOVED}),
        ClusterState.CONNECTED: frozenset({ClusterState.UNREACHABLE, ClusterState.REMOVED}),
        ClusterState.UNREACHABLE: frozenset({ClusterState.CONNECTED, ClusterState.REMOVED}),
        ClusterState.REMOVED: frozenset(),
    },
    labels={
        ClusterState.PENDING: _("connecting"),
        ClusterState.CONNECTED: _("connected"),
        ClusterState.UNREACHABLE: _("unreachable"),
        ClusterState.REMOVED: _("removed"),
    },
)


class CheckState(StrEnum):
    """How far the latest check of a cluster is. It can be asked for again at any time."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"


CHECK_STATES = StateTable(
    kind="clustercheck",
    steps={
        CheckState.QUEUED: frozenset({CheckState.RUNNING}),
        CheckState.RUNNING: frozenset({CheckState.SUCCEEDED}),
        CheckState.SUCCEEDED: frozenset({CheckState.QUEUED}),
    },
    labels={
        CheckState.QUEUED: _("waiting for a worker"),
        CheckState.RUNNING: _("running"),
        CheckState.SUCCEEDED: _("done"),
    },
)
