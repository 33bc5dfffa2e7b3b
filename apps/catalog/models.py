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
from apps.tenants.models import Team, team_ids


class Purpose(models.TextChoices):
    """What an image is for."""

    DEV = "dev", _("dev instances")
    TASK = "task", _("tasks")


class Architecture(models.TextChoices):
    """What processors an image is built for, as Kubernetes calls them."""

    ANY = "", _("any")
    AMD64 = "amd64", "amd64"
    ARM64 = "arm64", "arm64"


class Image(Record):
    """A container image under a plain name. ``retired`` images run on but cannot be chosen any more.

    ``replaced_by`` says what to use instead of a retired one. A ``hidden`` one is offered to the teams of its
    `ImageTeam` rows alone, without any to nobody. ``prepared`` images have the portal's own entrypoint in them; into
    any other the portal's tools are put at each start. ``cuda`` is the version that an image for GPUs is built with.

    A row with a ``team`` is no entry of the catalogue: it is a reference that this team's members typed themselves.
    """

    name = models.CharField(_("name"), max_length=63)
    reference = models.CharField(_("reference"), max_length=512)
    purpose = models.CharField(_("purpose"), max_length=10, choices=Purpose.choices)
    description = models.CharField(_("description"), max_length=300, blank=True, default="")
    version = models.CharField(_("version"), max_length=40, blank=True, default="")
    architecture = models.CharField(
        _("architecture"), max_length=10, choices=Architecture.choices, blank=True, default=Architecture.ANY
    )
    cuda = models.CharField(_("CUDA"), max_length=10, blank=True, default="")
    prepared = models.BooleanField(_("made for the portal"), default=True)
    position = models.PositiveIntegerField(default=100)
    retired = models.BooleanField(_("retired"), default=False)
    replaced_by = models.ForeignKey(
        "self", on_delete=models.SET_NULL, null=True, blank=True, related_name="replaces", verbose_name=_("use instead")
    )
    hidden = models.BooleanField(_("hidden"), default=False)
    team = models.ForeignKey(Team, on_delete=models.CASCADE, null=True, blank=True, related_name="own_image_rows")

    objects: ClassVar[ScopedManager[Any]] = ScopedManager()

    class Meta:
        verbose_name = _("image")
        verbose_name_plural = _("images")
        constraints = [
            models.UniqueConstraint(fields=["name"], condition=Q(team__isnull=True), name="image_name_in_catalogue"),
            models.UniqueConstraint(
                fields=["team", "reference"], condition=Q(team__isnull=False), name="image_of_team_once"
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def is_pinned(self) -> bool:
        """Whether its reference has a digest and so means the same bytes for ever."""
        return "@" in self.reference

    @property
    def short_reference(self) -> str:
        """The reference with twelve digits of its digest, which are enough to tell two of them apart."""
        head, at, digest = self.reference.partition("@sha256:")
        return f"{head}@{digest[:12]}…" if at else head

    @classmethod
    def visible_to(cls, actor: Actor) -> Q:
        """The catalogue is public inside the portal, but for what is hidden or a team's own."""
        if actor.is_admin:
            return EVERYTHING
        mine = team_ids(actor)
        shown = ImageTeam.objects.as_system().filter(team_id__in=mine).values("image_id")
        return Q(team__isnull=True) & (Q(hidden=False) | Q(pk__in=shown)) | Q(team_id__in=mine)


class ImageTeam(models.Model):
    """A team that a hidden image is offered to."""

    image = models.ForeignKey(Image, on_delete=models.CASCADE, related_name="shown_to")
    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="shown_images")

    objects: ClassVar[ScopedManager[Any]] = ScopedManager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["image", "team"], name="image_team_once")]

    def __str__(self) -> str:
        return f"{self.image_id} for {self.team_id}"

    @classmethod
    def visible_to(cls, actor: Actor) -> Q:
        """Those of one's own teams."""
        return EVERYTHING if actor.is_admin else Q(team_id__in=team_ids(actor))


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
