"""Users, teams, queues (one namespace each), the quota ledger and API tokens."""

from __future__ import annotations

import uuid
from typing import Any, ClassVar

from django.conf import settings
from django.contrib.auth.models import AbstractUser, UserManager
from django.db import models
from django.db.models import Q, QuerySet
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from apps.clusters.models import Cluster
from apps.core.actors import Actor
from apps.core.models import Claimable, Record, Stateful
from apps.core.scoping import EVERYTHING, NOTHING, ScopedManager
from apps.core.states import StateTable
from apps.tenants.states import QUEUE_STATES, QueueState


class People(UserManager["User"]):
    """Django's own manager (sign-in needs it) with the scoped entrance of all other models."""

    def for_actor(self, actor: Actor) -> QuerySet[User]:
        """Administrators see all, others the members of their teams."""
        return self.get_queryset().filter(User.visible_to(actor)).distinct()

    def as_system(self) -> QuerySet[User]:
        """All users, for the portal's own loops."""
        return self.get_queryset()


class User(AbstractUser):
    """A person. ``is_platform_admin`` is the one global role; all else comes from memberships."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    is_platform_admin = models.BooleanField(_("platform administrator"), default=False)
    language = models.CharField(_("language"), max_length=10, blank=True, default="")
    theme = models.CharField(_("theme"), max_length=10, blank=True, default="")
    must_change_password = models.BooleanField(default=False)

    objects: ClassVar[People] = People()

    @classmethod
    def visible_to(cls, actor: Actor) -> Q:
        """See ``People.for_actor``."""
        if actor.is_admin:
            return EVERYTHING
        return Q(pk=actor.user_id) | Q(memberships__team__memberships__user=actor.user_id)

    @property
    def name(self) -> str:
        """What pages and audit show."""
        return self.username

    def audit_scope(self) -> dict[str, Any]:
        """Users belong to no team alone."""
        return {}

    def live_scope(self) -> str:
        """Administrators' group."""
        return ""


class Role(models.TextChoices):
    """What a member may do in the queues of a team; each role includes the ones after it."""

    ADMIN = "admin", _("team administrator")
    MEMBER = "member", _("member")
    VIEWER = "viewer", _("viewer")


class Team(Record):
    """People who share queues.

    With ``own_images`` its members may start instances from images that are not in the catalogue; ``image_prefixes``
    are the registries, or beginnings of paths in them, that these may come from (none: from anywhere).
    """

    name = models.CharField(_("name"), max_length=63, unique=True)
    description = models.CharField(_("description"), max_length=300, blank=True, default="")
    members = models.ManyToManyField(settings.AUTH_USER_MODEL, through="Membership", related_name="teams")
    own_images = models.BooleanField(_("own images"), default=False)
    image_prefixes = models.JSONField(_("allowed registries"), default=list, blank=True)

    objects: ClassVar[ScopedManager[Any]] = ScopedManager()

    class Meta:
        verbose_name = _("team")
        verbose_name_plural = _("teams")

    def __str__(self) -> str:
        return self.name

    @classmethod
    def visible_to(cls, actor: Actor) -> Q:
        """One's own teams."""
        return EVERYTHING if actor.is_admin else Q(pk__in=team_ids(actor))

    def audit_scope(self) -> dict[str, Any]:
        return {"team_id": self.pk}

    def live_scope(self) -> str:
        return self.pk.hex

    def get_absolute_url(self) -> str:
        return reverse("tenants:team", args=[self.pk])


class Membership(models.Model):
    """A person's role in a team."""

    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(_("role"), max_length=10, choices=Role.choices, default=Role.MEMBER)
    created_at = models.DateTimeField(auto_now_add=True)

    objects: ClassVar[ScopedManager[Any]] = ScopedManager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["team", "user"], name="membership_once")]

    def __str__(self) -> str:
        return f"{self.user_id} in {self.team_id}: {self.role}"

    @classmethod
    def visible_to(cls, actor: Actor) -> Q:
        """Memberships of one's own teams."""
        return EVERYTHING if actor.is_admin else Q(team_id__in=team_ids(actor))


class LifetimeRule(Record):
    """How long instances of a team run without anybody asking: limits that administrators set.

    None in a column means the default for all teams; the row without a team holds those, and where that says nothing
    either, ``apps.tenants.lifetimes`` does. Zero switches a rule off.
    """

    team = models.OneToOneField(
        Team, null=True, on_delete=models.CASCADE, related_name="lifetime_rule", verbose_name=_("team")
    )
    idle_minutes = models.PositiveIntegerField(_("stopped when idle for (minutes)"), null=True)
    warning_minutes = models.PositiveIntegerField(_("warned before (minutes)"), null=True)
    lease_hours = models.PositiveIntegerField(_("longest lease (hours)"), null=True)
    keep_hours = models.PositiveIntegerField(_("longest “keep until” (hours)"), null=True)

    objects: ClassVar[ScopedManager[Any]] = ScopedManager()

    class Meta:
        verbose_name = _("rule for instances")
        verbose_name_plural = _("rules for instances")

    def __str__(self) -> str:
        return self.name

    @property
    def name(self) -> str:
        """What the audit log shows."""
        return self.team.name if self.team is not None else ""

    @classmethod
    def visible_to(cls, actor: Actor) -> Q:
        """One's own teams', and the defaults."""
        return EVERYTHING if actor.is_admin else Q(team_id__in=team_ids(actor)) | Q(team=None)

    def audit_scope(self) -> dict[str, Any]:
        """With the team's entries."""
        return {"team_id": self.team_id}


def team_ids(actor: Actor) -> QuerySet[Any]:
    """Ids of the actor's teams, as a subquery."""
    return Membership.objects.as_system().filter(user_id=actor.user_id).values("team_id")


class Queue(Record, Stateful, Claimable):
    """A namespace of one cluster with a quota, owned by a team.

    ``cpu_millis``, ``memory_bytes``: guaranteed (sum of requests). Limits may go up to the oversell ratio
    times that. ``gpus``: resource name -> count, never oversold. ``generation`` rises with each change of
    what the namespace should be; ``observed_generation`` is the last one applied.
    """

    TABLE: ClassVar[StateTable] = QUEUE_STATES

    name = models.CharField(_("name"), max_length=63)
    team = models.ForeignKey(Team, on_delete=models.PROTECT, related_name="queues", verbose_name=_("team"))
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="queues", verbose_name=_("cluster"))
    namespace = models.CharField(_("namespace"), max_length=63, editable=False)
    cpu_millis = models.PositiveBigIntegerField(_("CPU"))
    memory_bytes = models.PositiveBigIntegerField(_("memory"))
    gpus = models.JSONField(_("GPUs"), default=dict, blank=True)
    storage_bytes = models.PositiveBigIntegerField(_("storage"))
    claims = models.PositiveIntegerField(_("volumes"), default=50)
    pods = models.PositiveIntegerField(_("pods"), default=200)
    cpu_oversell = models.DecimalField(_("CPU oversell"), max_digits=5, decimal_places=2, default=1)
    memory_oversell = models.DecimalField(_("memory oversell"), max_digits=5, decimal_places=2, default=1)
    generation = models.PositiveIntegerField(default=1)
    observed_generation = models.PositiveIntegerField(default=0)

    objects: ClassVar[ScopedManager[Any]] = ScopedManager()

    class Meta:
        verbose_name = _("queue")
        verbose_name_plural = _("queues")
        constraints = [
            models.UniqueConstraint(fields=["name"], condition=~Q(state=QueueState.DELETED), name="queue_name_alive"),
            models.UniqueConstraint(fields=["cluster", "namespace"], name="queue_namespace_once"),
        ]

    def __str__(self) -> str:
        return self.name

    @classmethod
    def visible_to(cls, actor: Actor) -> Q:
        """Queues of one's own teams."""
        return EVERYTHING if actor.is_admin else Q(team_id__in=team_ids(actor))

    def audit_scope(self) -> dict[str, Any]:
        return {"team_id": self.team_id, "queue_id": self.pk}

    def live_scope(self) -> str:
        return self.pk.hex

    def get_absolute_url(self) -> str:
        return reverse("tenants:queue", args=[self.pk])


class InQueue(models.Model):
    """What lives in a queue: its team's members see it, its audit entries and live updates belong there.

    A model that inherits this has the foreign key ``queue``.
    """

    scope_through: ClassVar[tuple[str, ...]] = ("queue",)

    class Meta:
        abstract = True

    @classmethod
    def visible_to(cls, actor: Actor) -> Q:
        """What is in the queues of one's own teams."""
        return EVERYTHING if actor.is_admin else Q(queue__team_id__in=team_ids(actor))

    def audit_scope(self) -> dict[str, Any]:
        """The queue and its team."""
        return {"team_id": self.queue.team_id, "queue_id": self.queue_id}  # type: ignore[attr-defined]

    def live_scope(self) -> str:
        """Everybody who may see the queue."""
        return str(self.queue_id.hex)  # type: ignore[attr-defined]


class Reservation(models.Model):
    """A line of the quota ledger: what one object holds of its queue until ``released_at``.

    Amounts are limits (what the object may use), ``gpus`` by resource name. Written by
    ``apps.tenants.ledger`` alone.
    """

    queue = models.ForeignKey(Queue, on_delete=models.CASCADE, related_name="reservations")
    kind = models.CharField(max_length=20)
    object_id = models.UUIDField()
    cpu_millis = models.PositiveBigIntegerField(default=0)
    memory_bytes = models.PositiveBigIntegerField(default=0)
    gpus = models.JSONField(default=dict)
    storage_bytes = models.PositiveBigIntegerField(default=0)
    created_at = models.DateTimeField(auto_now_add=True)
    released_at = models.DateTimeField(null=True)

    objects: ClassVar[ScopedManager[Any]] = ScopedManager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["kind", "object_id"], condition=Q(released_at__isnull=True), name="reservation_once"
            )
        ]
        indexes = [models.Index(fields=["queue"], condition=Q(released_at__isnull=True), name="reservation_open")]

    def __str__(self) -> str:
        return f"{self.kind} {self.object_id}"

    @classmethod
    def visible_to(cls, actor: Actor) -> Q:
        """Reservations in one's own queues."""
        return EVERYTHING if actor.is_admin else Q(queue__team_id__in=team_ids(actor))


class ApiToken(Record):
    """A personal token for REST and the CLI: only its SHA-256 is stored; it is shown once.

    ``scopes`` empty means all that the person may do; else verbs such as ``flow:run:<id>``.
    """

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_tokens")
    name = models.CharField(_("name"), max_length=100)
    digest = models.CharField(max_length=64, unique=True, editable=False)
    prefix = models.CharField(max_length=12, editable=False)
    scopes = models.JSONField(default=list, blank=True)
    expires_at = models.DateTimeField(_("expires"))
    last_used_at = models.DateTimeField(_("last used"), null=True)
    revoked_at = models.DateTimeField(_("revoked"), null=True)

    objects: ClassVar[ScopedManager[Any]] = ScopedManager()

    @classmethod
    def visible_to(cls, actor: Actor) -> Q:
        """One's own."""
        return Q(user_id=actor.user_id) if actor.user_id else NOTHING

    @property
    def is_expired(self) -> bool:
        """True when its time is over."""
        return self.expires_at <= timezone.now()


class SshKey(Record):
    """A public key with which a person comes in over SSH; ``public`` is its kind and the key, without a comment."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="ssh_keys")
    name = models.CharField(_("name"), max_length=63)
    kind = models.CharField(max_length=40, editable=False)
    public = models.TextField(editable=False)
    fingerprint = models.CharField(max_length=60, editable=False)
    last_used_at = models.DateTimeField(_("last used"), null=True)

    objects: ClassVar[ScopedManager[Any]] = ScopedManager()

    class Meta:
        verbose_name = _("SSH key")
        verbose_name_plural = _("SSH keys")
        constraints = [models.UniqueConstraint(fields=["user", "fingerprint"], name="ssh_key_once")]

    def __str__(self) -> str:
        return self.name

    @classmethod
    def visible_to(cls, actor: Actor) -> Q:
        """One's own."""
        return Q(user_id=actor.user_id) if actor.user_id else NOTHING
