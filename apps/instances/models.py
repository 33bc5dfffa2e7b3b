"""Dev instances and the volumes they mount beside the home."""

from __future__ import annotations

from typing import Any, ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q, QuerySet
from django.urls import reverse
from django.utils import timezone
from django.utils.functional import cached_property
from django.utils.translation import gettext_lazy as _

from apps.catalog.models import Image, Size
from apps.clusters.eventful import Eventful
from apps.core.actors import Actor
from apps.core.models import Claimable, Record, Stateful
from apps.core.scoping import EVERYTHING, ScopedManager
from apps.core.secret import SecretField
from apps.core.states import StateTable
from apps.instances.lifetime.rows import Lifetime  # noqa: F401 - a model of this app, in a module of its own
from apps.instances.states import INSTANCE_STATES, Desired, InstanceState
from apps.storage.models import Volume
from apps.tenants.models import InQueue, Queue, team_ids
from kubekit import names as kube_names


class Instance(InQueue, Record, Stateful, Claimable, Eventful):
    """One dev instance: a StatefulSet of 0 or 1 pods, its Service, route and Secret.

    Members of a team see each other's; entering is the owner's alone.

    ``generation`` rises with each change of what is desired; ``observed_generation`` is the last one written to
    the cluster. ``launch`` counts starts and labels the pods, so that a pod of an earlier launch is never taken
    for this one's. ``key`` lives from a start to the stop after it; ``next_key``
    replaces it as soon as the running program has it. ``at_rest`` is True once the cluster has
    confirmed that no pod of it is left; only then is its quota given back. ``stages`` maps a stage's name to the
    instant it was reached, ``ssh_host_key`` is the same at every launch, ``object_uids`` the kind of each other
    object to its UID when it was last applied (what another made under the same name is not ours to delete).
    ``entrances`` is what an image that was not made for the portal turned out to have (`entrances`).
    ``options`` are variables, start-up script, shared memory and time zone (`options`); ``pending`` is what was
    changed while it runs and counts from the next start on (`changing`). ``revision`` rises with each change of what
    a person has set. Its objects in the cluster are named after ``named_after`` when it was renamed since they were
    first made.
    """

    TABLE: ClassVar[StateTable] = INSTANCE_STATES

    name = models.CharField(_("name"), max_length=63)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="instances", verbose_name=_("owner")
    )
    queue = models.ForeignKey(Queue, on_delete=models.PROTECT, related_name="instances", verbose_name=_("queue"))
    image = models.ForeignKey(Image, on_delete=models.PROTECT, related_name="instances", verbose_name=_("image"))
    size = models.ForeignKey(Size, on_delete=models.PROTECT, related_name="instances", verbose_name=_("size"))
    home = models.ForeignKey(Volume, on_delete=models.PROTECT, related_name="home_of", verbose_name=_("home"))

    desired = models.CharField(max_length=10, choices=Desired.choices, default=Desired.RUNNING)
    generation = models.PositiveIntegerField(default=1)
    observed_generation = models.PositiveIntegerField(default=0)
    launch = models.PositiveIntegerField(default=0)
    key = SecretField(blank=True, default="", editable=False)
    next_key = SecretField(blank=True, default="", editable=False)
    ssh_host_key = SecretField(blank=True, default="", editable=False)
    ssh_host_public = models.CharField(max_length=200, blank=True, default="", editable=False)
    at_rest = models.BooleanField(default=True, editable=False)
    object_uids = models.JSONField(default=dict, editable=False)
    stateful_set_uid = models.CharField(max_length=60, blank=True, default="", editable=False)
    pod_uid = models.CharField(max_length=60, blank=True, default="", editable=False)
    node = models.CharField(_("node"), max_length=253, blank=True, default="", editable=False)
    restarts = models.PositiveIntegerField(default=0, editable=False)
    stages = models.JSONField(default=dict, editable=False)
    entrances = models.JSONField(default=dict, editable=False)
    options = models.JSONField(default=dict, editable=False)
    pending = models.JSONField(default=dict, editable=False)
    revision = models.PositiveIntegerField(default=1, editable=False)
    named_after = models.CharField(max_length=63, blank=True, default="", editable=False)
    start_requested_at = models.DateTimeField(null=True, editable=False)
    ready_at = models.DateTimeField(_("ready since"), null=True, editable=False)
    start_deadline_at = models.DateTimeField(null=True, editable=False)

    objects: ClassVar[ScopedManager[Any]] = ScopedManager()

    class Meta:
        verbose_name = _("instance")
        verbose_name_plural = _("instances")
        constraints = [
            models.UniqueConstraint(
                fields=["queue", "name"], condition=~Q(state=InstanceState.DELETED), name="instance_name_alive"
            )
        ]
        indexes = [models.Index(fields=["owner", "state"])]

    def __str__(self) -> str:
        return self.name

    @classmethod
    def visible_to(cls, actor: Actor) -> Q:
        """What is in the queues of one's own teams, and what was shared with oneself."""
        return EVERYTHING if actor.is_admin else super().visible_to(actor) | Q(pk__in=shared_with(actor))

    def get_absolute_url(self) -> str:
        return reverse("instances:detail", args=[self.pk])

    @cached_property
    def mounted(self) -> list[InstanceMount]:
        """What it mounts besides its home; selectors fill it for many rows at once."""
        return list(InstanceMount.objects.as_system().filter(instance_id=self.pk).select_related("volume"))

    @property
    def object_name(self) -> str:
        """The name that its objects in the cluster share; a change of its own name leaves it as it is."""
        return kube_names.instance_name(self.named_after or self.name, self.pk)

    @property
    def pod_name(self) -> str:
        """Its one pod, when it runs."""
        return kube_names.instance_pod_name(self.named_after or self.name, self.pk)

    @property
    def wants_to_run(self) -> bool:
        """Whether its owner wants it running."""
        return self.desired == Desired.RUNNING


class InstanceMount(models.Model):
    """A volume that an instance mounts at ``path`` besides its home."""

    instance = models.ForeignKey(Instance, on_delete=models.CASCADE, related_name="mounts")
    volume = models.ForeignKey(Volume, on_delete=models.PROTECT, related_name="instance_mounts")
    path = models.CharField(max_length=255)
    read_only = models.BooleanField(default=False)

    objects: ClassVar[ScopedManager[Any]] = ScopedManager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["instance", "path"], name="instance_mount_path")]

    def __str__(self) -> str:
        return self.path

    @classmethod
    def visible_to(cls, actor: Actor) -> Q:
        """With their instance."""
        return EVERYTHING if actor.is_admin else Q(instance__queue__team_id__in=team_ids(actor))


class InstanceViewer(models.Model):
    """A person who may look at an instance until a moment, also from outside its team: never enter it, never act."""

    instance = models.ForeignKey(Instance, on_delete=models.CASCADE, related_name="viewers")
    person = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    until = models.DateTimeField()

    objects: ClassVar[ScopedManager[Any]] = ScopedManager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["instance", "person"], name="instance_viewer_once")]

    def __str__(self) -> str:
        return f"{self.person_id} sees {self.instance_id}"

    @classmethod
    def visible_to(cls, actor: Actor) -> Q:
        """Members of the team, and whom it concerns."""
        mine = Q(person_id=actor.user_id) | Q(instance__queue__team_id__in=team_ids(actor))
        return EVERYTHING if actor.is_admin else mine


def shared_with(actor: Actor) -> QuerySet[Any]:
    """Ids of the instances that the actor may look at for a time, as a subquery."""
    rows = InstanceViewer.objects.as_system().filter(person_id=actor.user_id, until__gt=timezone.now())
    return rows.values("instance_id")


class OpenPort(models.Model):
    """A port of an instance that its owner opened: ``p<number>--i-<id>.<apps domain>`` leads to it, for the owner and
    for its guests."""

    instance = models.ForeignKey(Instance, on_delete=models.CASCADE, related_name="open_ports")
    number = models.PositiveIntegerField(_("port"))
    label = models.CharField(_("what it is"), max_length=40, blank=True, default="")

    objects: ClassVar[ScopedManager[Any]] = ScopedManager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["instance", "number"], name="instance_port_once")]
        ordering = ["number"]

    def __str__(self) -> str:
        return f"port {self.number}"

    @classmethod
    def visible_to(cls, actor: Actor) -> Q:
        """Members of the team, and the guests."""
        guest = Q(pk__in=PortGuest.objects.as_system().filter(person_id=actor.user_id).values("port_id"))
        return EVERYTHING if actor.is_admin else guest | Q(instance__queue__team_id__in=team_ids(actor))


class PortGuest(models.Model):
    """A person who may use an open port until a moment."""

    port = models.ForeignKey(OpenPort, on_delete=models.CASCADE, related_name="guests")
    person = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    until = models.DateTimeField()

    objects: ClassVar[ScopedManager[Any]] = ScopedManager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["port", "person"], name="port_guest_once")]

    def __str__(self) -> str:
        return f"{self.person_id} uses {self.port_id}"

    @classmethod
    def visible_to(cls, actor: Actor) -> Q:
        """Members of the team, and whom it concerns."""
        mine = Q(person_id=actor.user_id) | Q(port__instance__queue__team_id__in=team_ids(actor))
        return EVERYTHING if actor.is_admin else mine
