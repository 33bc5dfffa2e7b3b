"""What the portal knows of an instance's lifetime. Beside the instance's row, so that a look every few minutes at a
thousand of them touches nothing that a start or a stop waits for.
"""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from apps.core.actors import Actor
from apps.core.scoping import EVERYTHING, ScopedManager
from apps.tenants.models import team_ids


class Cause(models.TextChoices):
    """Why an instance is to be stopped."""

    IDLE = "idle", _("idle")
    LEASE = "lease", _("end of its lease")


class Lifetime(models.Model):
    """Ends that its owner set, and what was counted of one launch.

    ``ends_at`` and ``keep_until`` are the owner's words. All else is the portal's: ``idle_s`` are seconds of looks in
    a row that found nothing done (never a difference of two clocks' readings), ``active_by`` what the last look found,
    ``problem`` why it found nothing out. ``warned_s`` are the seconds that a warning has stood, counted likewise.
    """

    instance = models.OneToOneField(
        "instances.Instance", primary_key=True, on_delete=models.CASCADE, related_name="lifetime"
    )
    ends_at = models.DateTimeField(_("ends"), null=True)
    keep_until = models.DateTimeField(_("kept until"), null=True)
    launch = models.PositiveIntegerField(default=0)
    looked_at = models.DateTimeField(null=True)
    last_active_at = models.DateTimeField(null=True)
    active_by = models.JSONField(default=list)
    problem = models.CharField(max_length=300, blank=True, default="")
    idle_s = models.PositiveIntegerField(default=0)
    warned_for = models.CharField(max_length=10, choices=Cause.choices, blank=True, default="")
    warned_at = models.DateTimeField(null=True)
    warned_s = models.PositiveIntegerField(default=0)
    stops_at = models.DateTimeField(null=True)

    objects: ClassVar[ScopedManager[Any]] = ScopedManager()

    def __str__(self) -> str:
        return str(self.instance_id)

    @classmethod
    def visible_to(cls, actor: Actor) -> Q:
        """With their instance."""
        return EVERYTHING if actor.is_admin else Q(instance__queue__team_id__in=team_ids(actor))
