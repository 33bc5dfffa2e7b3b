"""States of a volume."""

from __future__ import annotations

from enum import StrEnum

from django.utils.translation import gettext_lazy as _

from apps.core.states import StateTable


class VolumeState(StrEnum):
    """A volume is its claim: waiting until the cluster has bound it."""

    CREATING = "creating"
    BOUND = "bound"
    FAILED = "failed"
    DELETING = "deleting"
    DELETED = "deleted"


VOLUME_STATES = StateTable(
    kind="volume",
    steps={
        VolumeState.CREATING: frozenset({VolumeState.BOUND, VolumeState.FAILED, VolumeState.DELETING}),
        VolumeState.BOUND: frozenset({VolumeState.FAILED, VolumeState.DELETING}),
        VolumeState.FAILED: frozenset({VolumeState.BOUND, VolumeState.DELETING}),
        VolumeState.DELETING: frozenset({VolumeState.DELETED}),
        VolumeState.DELETED: frozenset(),
    },
    labels={
        VolumeState.CREATING: _("being made"),
        VolumeState.BOUND: _("ready"),
        VolumeState.FAILED: _("failed"),
        VolumeState.DELETING: _("deleting"),
        VolumeState.DELETED: _("deleted"),
    },
)
