"""What people choose from: images and sizes, kept by administrators."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from apps.core.actors import Actor
from apps.core.models import Record
from apps.core.scoping import EVERYTHING, ScopedManager
from apps.tenants.ledger import Amount


class Purpose(models.TextChoices):
    """What an image is for."""

    DEV = "dev", _("dev instances")
    TASK = "task", _("tasks")


class Image(Record):
    """A container image under a plain name. ``retired`` images run on but cannot be chosen any more."""

    name = models.CharField(_("name"), max_length=63, unique=True)
    reference = models.CharField(_("reference"), max_length=512)
    purpose = models.CharField(_("purpose"), max_length=10, choices=Purpose.choices)
    description = models.CharField(_("description"), max_length=300, blank=True, default="")
    position = models.PositiveIntegerField(default=100)
    retired = models.BooleanField(_("retired"), default=False)

    objects: ClassVar[ScopedManager[Any]] = ScopedManager()

    class Meta:
        verbose_name = _("image")
        verbose_name_plural = _("images")

    def __str__(self) -> str:
        return self.name

    @classmethod
    def visible_to(cls, actor: Actor) -> Q:
        """The catalogue is public inside the portal."""
        return EVERYTHING


class Size(Record):
    """CPU (thousandths), memory (bytes) and whole GPUs of one model. ``retired`` as for images."""

    name = models.CharField(_("name"), max_length=63, unique=True)
    cpu_millis = models.PositiveBigIntegerField(_("CPU"))
    memory_bytes = models.PositiveBigIntegerField(_("memory"))
    gpus = models.PositiveIntegerField(_("GPUs"), default=0)
    gpu_resource = models.CharField(_("GPU resource"), max_length=253, blank=True, default="nvidia.com/gpu")
    position = models.PositiveIntegerField(default=100)
    retired = models.BooleanField(_("retired"), default=False)

    objects: ClassVar[ScopedManager[Any]] = ScopedManager()

    class Meta:
        verbose_name = _("size")
        verbose_name_plural = _("sizes")

    def __str__(self) -> str:
        return self.name

    @property
    def amount(self) -> Amount:
        """What something of this size holds of its queue."""
        gpus = {self.gpu_resource: self.gpus} if self.gpus else {}
        return Amount(cpu_millis=self.cpu_millis, memory_bytes=self.memory_bytes, gpus=gpus)

    @classmethod
    def visible_to(cls, actor: Actor) -> Q:
        """The catalogue is public inside the portal."""
        return EVERYTHING
