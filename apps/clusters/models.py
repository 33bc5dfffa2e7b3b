"""Clusters and what the portal last saw of their nodes."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import models
from django.db.models import Q
from django.urls import reverse
from django.utils.translation import gettext_lazy as _

from apps.clusters.nodes import resources_of
from apps.clusters.states import CHECK_STATES, CLUSTER_STATES, ClusterState
from apps.core.actors import Actor
from apps.core.models import Claimable, Record, Stateful
from apps.core.scoping import EVERYTHING, NOTHING, ScopedManager
from apps.core.secret import SecretField
from apps.core.states import StateTable

SOFT_LIMITS_LABEL = "localkube.io/limits"


class Exposure(models.TextChoices):
    """How instances become reachable from a browser: one route of this kind for each, or one for all of them."""

    INGRESS = "ingress", _("Ingress")
    HTTPROUTE = "httproute", _("HTTPRoute (Gateway API)")
    GATEWAY = "gateway", _("the portal's own gateway")


def ingress_namespaces() -> list[str]:
    """Where the usual controllers live; network policies let nobody else in to the instances."""
    return ["ingress-nginx", "kube-system", "traefik"]


class Cluster(Record, Stateful):
    """A Kubernetes cluster that the portal drives.

    ``server`` and the secret ``credentials`` (JSON: CA, token or client certificate and key) are what
    ``kubekit.credentials`` made of the pasted kubeconfig. ``apps_domain`` is the domain below which each
    instance has its own host; ``apps_port`` 0 means the scheme's own port. The ``gateway_`` columns name the Gateway
    that HTTPRoutes are attached to; without a listener's name, to all of its listeners. ``trusted``: the operator of
    the machine gave the kubeconfig, so its address may be internal; that of any other is checked again and again.
    """

    TABLE: ClassVar[StateTable] = CLUSTER_STATES

    name = models.CharField(_("name"), max_length=63)
    server = models.CharField(_("server"), max_length=300)
    credentials = SecretField(_("credentials"))
    embedded = models.BooleanField(default=False)
    trusted = models.BooleanField(default=False, editable=False)
    exposure = models.CharField(_("exposure"), max_length=20, choices=Exposure.choices, default=Exposure.INGRESS)
    ingress_class = models.CharField(_("ingress class"), max_length=253, blank=True, default="")
    ingress_namespaces = models.JSONField(_("namespaces of the ingress controller"), default=ingress_namespaces)
    gateway_namespace = models.CharField(_("namespace of the Gateway"), max_length=63, blank=True, default="")
    gateway_name = models.CharField(_("Gateway"), max_length=253, blank=True, default="")
    gateway_listener = models.CharField(_("listener of the Gateway"), max_length=253, blank=True, default="")
    apps_domain = models.CharField(_("apps domain"), max_length=200)
    apps_scheme = models.CharField(max_length=5, default="http")
    apps_port = models.PositiveIntegerField(default=0)
    storage_class = models.CharField(_("storage class"), max_length=253, blank=True, default="")
    user_namespaces = models.BooleanField(_("user namespaces"), default=False)
    version = models.CharField(_("version"), max_length=60, blank=True, default="")
    last_contact_at = models.DateTimeField(_("last contact"), null=True)

    objects: ClassVar[ScopedManager[Any]] = ScopedManager()

    class Meta:
        verbose_name = _("cluster")
        verbose_name_plural = _("clusters")
        constraints = [
            models.UniqueConstraint(
                fields=["name"], condition=~Q(state=ClusterState.REMOVED), name="cluster_name_alive"
            )
        ]

    def __str__(self) -> str:
        return self.name

    @classmethod
    def visible_to(cls, actor: Actor) -> Q:
        """Everybody may know the clusters' names and health; pages show the rest to administrators alone."""
        return EVERYTHING

    def get_absolute_url(self) -> str:
        return reverse("clusters:detail", args=[self.pk])


class ClusterCheck(Record, Stateful, Claimable):
    """The latest check of a cluster: what was found, line by line, and when. One row for each cluster.

    ``run`` is what the probe's namespace is named and labelled after; each run has another. ``lines`` are those of
    ``kubekit.checkup.Line``, in the order in which they were found; while it runs they are added one by one.
    """

    TABLE: ClassVar[StateTable] = CHECK_STATES

    cluster = models.OneToOneField(Cluster, on_delete=models.CASCADE, related_name="check_row")
    run = models.UUIDField(null=True, editable=False)
    lines = models.JSONField(default=list)
    started_at = models.DateTimeField(_("began"), null=True)
    finished_at = models.DateTimeField(_("ended"), null=True)

    objects: ClassVar[ScopedManager[Any]] = ScopedManager()

    class Meta:
        verbose_name = _("check of a cluster")
        verbose_name_plural = _("checks of clusters")

    def __str__(self) -> str:
        return f"check of {self.cluster_id}"

    def get_absolute_url(self) -> str:
        return reverse("clusters:tab", args=[self.cluster_id, "check"])

    @property
    def name(self) -> str:
        """The cluster's, for the audit log."""
        return str(self.cluster.name)


class Node(models.Model):
    """A node as last seen: what it could give, what pods ask of it, and what keeps pods away.

    ``allocatable`` and ``requested``: ``{"cpu_millis": int, "memory_bytes": int, "pods": int, "<gpu>": int}``.
    """

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="nodes")
    name = models.CharField(max_length=253)
    ready = models.BooleanField(default=False)
    schedulable = models.BooleanField(default=True)
    allocatable = models.JSONField(default=dict)
    requested = models.JSONField(default=dict)
    labels = models.JSONField(default=dict)
    taints = models.JSONField(default=list)
    seen_at = models.DateTimeField()

    objects: ClassVar[ScopedManager[Any]] = ScopedManager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["cluster", "name"], name="node_once")]

    def __str__(self) -> str:
        return self.name

    @classmethod
    def visible_to(cls, actor: Actor) -> Q:
        """Administrators only; others see sums."""
        return EVERYTHING if actor.is_admin else NOTHING

    @property
    def resources(self) -> list[tuple[str, int, int]]:
        """``(resource, requested, allocatable)`` for pages: CPU, memory, then GPUs."""
        return resources_of(self.requested, self.allocatable)

    @property
    def has_soft_limits(self) -> bool:
        """Whether a program may exceed its memory for a moment: the embedded cluster's node says so of itself."""
        return bool(self.labels.get(SOFT_LIMITS_LABEL) == "soft")

    def free(self, resource: str) -> int:
        """What is left of a resource on this node."""
        allocatable: Any = self.allocatable.get(resource, 0)
        return max(0, int(allocatable) - int(self.requested.get(resource, 0)))


class Installation(models.Model):
    """The one row that says which portal this is: its id labels every object, so that two portals on one cluster
    never touch each other's. It lives in the database, because a restored database must know its objects again.
    """

    install = models.CharField(max_length=20)

    objects: ClassVar[ScopedManager[Any]] = ScopedManager()

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(pk=1), name="installation_one_row")]

    def __str__(self) -> str:
        return self.install

    @classmethod
    def visible_to(cls, actor: Actor) -> Q:
        """Administrators only."""
        return EVERYTHING if actor.is_admin else NOTHING


class Orphan(models.Model):
    """An object in a cluster that carries this portal's labels and belongs to no row (failure F3).

    Recorded when first seen, removed after a grace; the row stays as the record of it.
    """

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="orphans")
    kind = models.CharField(_("kind"), max_length=60)
    namespace = models.CharField(_("namespace"), max_length=63)
    name = models.CharField(_("name"), max_length=253)
    uid = models.CharField(max_length=60)
    row_kind = models.CharField(max_length=40)
    row_id = models.CharField(max_length=63)
    first_seen_at = models.DateTimeField(_("first seen"))
    removed_at = models.DateTimeField(_("removed"), null=True)

    objects: ClassVar[ScopedManager[Any]] = ScopedManager()

    class Meta:
        verbose_name = _("orphaned object")
        verbose_name_plural = _("orphaned objects")
        constraints = [models.UniqueConstraint(fields=["cluster", "uid"], name="orphan_once")]

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"

    @classmethod
    def visible_to(cls, actor: Actor) -> Q:
        """Administrators only."""
        return EVERYTHING if actor.is_admin else NOTHING
