"""Volumes: a person's home in each queue, and data volumes."""

from __future__ import annotations

from typing import Any, ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.urls import reverse
from django.utils.translation import gettext_lazy as _

from apps.clusters.eventful import Eventful
from apps.core.actors import Actor
from apps.core.models import Claimable, Record, Stateful
from apps.core.scoping import EVERYTHING, ScopedManager
from apps.core.states import StateTable
from apps.storage.states import VOLUME_STATES, VolumeState
from apps.tenants.models import InQueue, Queue, team_ids


class VolumeKind(models.TextChoices):
    """A home belongs at /root of its owner's instances; data goes where the owner says."""

    HOME = "home", _("home")
    DATA = "data", _("data")


class Volume(InQueue, Record, Stateful, Claimable, Eventful):
    """One PersistentVolumeClaim in a queue's namespace; it outlives the instances that mount it."""

    TABLE: ClassVar[StateTable] = VOLUME_STATES

    name = models.CharField(_("name"), max_length=63)
    queue = models.ForeignKey(Queue, on_delete=models.PROTECT, related_name="volumes", verbose_name=_("queue"))
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="volumes", verbose_name=_("owner")
    )
    kind = models.CharField(_("kind"), max_length=10, choices=VolumeKind.choices, default=VolumeKind.DATA)
    size_bytes = models.PositiveBigIntegerField(_("size"))
    claim = models.CharField(max_length=63, editable=False)
    claim_uid = models.CharField(max_length=60, blank=True, default="", editable=False)
    generation = models.PositiveIntegerField(default=1)

    objects: ClassVar[ScopedManager[Any]] = ScopedManager()

    class Meta:
        verbose_name = _("volume")
        verbose_name_plural = _("volumes")
        constraints = [
            models.UniqueConstraint(
                fields=["queue", "name"], condition=~Q(state=VolumeState.DELETED), name="volume_name_alive"
            ),
            models.UniqueConstraint(
                fields=["queue", "owner"],
                condition=Q(kind=VolumeKind.HOME) & ~Q(state=VolumeState.DELETED),
                name="volume_one_home",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @classmethod
    def visible_to(cls, actor: Actor) -> Q:
        """One's own, the data volumes of one's queues, and all homes for administrators."""
        if actor.is_admin:
            return EVERYTHING
        return Q(queue__team_id__in=team_ids(actor)) & (Q(owner_id=actor.user_id) | Q(kind=VolumeKind.DATA))

    def get_absolute_url(self) -> str:
        return reverse("storage:volume", args=[self.pk])
