"""The bar of a start: each stage with its seconds, from the row alone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext_lazy as _

from apps.instances.models import Instance
from apps.instances.states import LAUNCHED, InstanceState

LABELS = {
    "scheduled": _("scheduled"),
    "volume": _("volume"),
    "image": _("image"),
    "started": _("started"),
    "ready": _("ready"),
}


@dataclass(frozen=True, kw_only=True)
class StageRow:
    """A stage: when it was reached, and how many seconds after the one before (so far, when ``current``)."""

    name: str
    label: Any
    at: datetime | None
    seconds: float | None
    current: bool

    @property
    def done(self) -> bool:
        """Whether it was reached."""
        return self.at is not None


def rows(instance: Instance, *, now: datetime | None = None) -> list[StageRow]:
    """The stages in their order; empty before the first start, and when a start that is over reached none."""
    moving = instance.state in LAUNCHED and instance.state != InstanceState.RUNNING
    if instance.start_requested_at is None or not (moving or instance.stages):
        return []
    now = now or timezone.now()
    found: list[StageRow] = []
    before = instance.start_requested_at
    waiting = False
    for name, label in LABELS.items():
        text = instance.stages.get(name)
        at = parse_datetime(text) if text else None
        current = at is None and moving and not waiting
        waiting = waiting or at is None
        seconds: float | None = None
        if at is not None:
            seconds = max(0.0, (at - before).total_seconds())
            before = max(before, at)
        elif current:
            seconds = max(0.0, (now - before).total_seconds())
        found.append(StageRow(name=name, label=label, at=at, seconds=seconds, current=current))
    return found


def total_s(instance: Instance) -> float | None:
    """Seconds from the request to ready; None before that."""
    text = instance.stages.get("ready")
    ready = parse_datetime(text) if text else None
    if ready is None or instance.start_requested_at is None:
        return None
    return max(0.0, (ready - instance.start_requested_at).total_seconds())
