"""REST for clusters. Everybody may know names and health; the rest is for administrators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.utils.translation import gettext as _
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import serializers, status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.clusters import abandoning, check_words, checks, selectors, services
from apps.clusters.models import Cluster, ClusterCheck, Exposure
from apps.core.api import PortalViewSet, StatefulItem
from apps.core.errors import NotFound

ADMIN_FIELDS = (
    "server",
    "exposure",
    "ingress_class",
    "ingress_namespaces",
    "gateway_namespace",
    "gateway_name",
    "gateway_listener",
    "storage_class",
    "user_namespaces",
)


class ClusterItem(StatefulItem):
    """A cluster. Its credentials are never shown; the fields that only administrators see are null for others."""

    version = serializers.CharField()
    embedded = serializers.BooleanField()
    last_contact_at = serializers.DateTimeField(allow_null=True)
    apps_domain = serializers.CharField()
    apps_scheme = serializers.CharField()
    apps_port = serializers.IntegerField()
    server = serializers.CharField(allow_null=True)
    exposure = serializers.CharField(allow_null=True)
    ingress_class = serializers.CharField(allow_null=True)
    ingress_namespaces = serializers.ListField(child=serializers.CharField(), allow_null=True)
    gateway_namespace = serializers.CharField(allow_null=True)
    gateway_name = serializers.CharField(allow_null=True)
    gateway_listener = serializers.CharField(allow_null=True)
    storage_class = serializers.CharField(allow_null=True)
    user_namespaces = serializers.BooleanField(allow_null=True)
    nodes = serializers.IntegerField(source="capacity.nodes")
    nodes_ready = serializers.IntegerField(source="capacity.ready")
    requested = serializers.DictField(child=serializers.IntegerField(), source="capacity.requested")
    allocatable = serializers.DictField(child=serializers.IntegerField(), source="capacity.allocatable")

    def to_representation(self, instance: Cluster) -> dict[str, Any]:
        """Null instead of what others need not know."""
        shown: dict[str, Any] = super().to_representation(instance)
        return shown if self.context["actor"].is_admin else {**shown, **dict.fromkeys(ADMIN_FIELDS)}


class ClusterChange(serializers.Serializer[Any]):
    """How instances are reached and where volumes come from.

    `exposure` is `ingress`, `gateway` (the portal's own), or `httproute` with the Gateway that routes are attached to.
    Changed while instances run,
    each gets its new route at once and loses the old one after that.
    """

    apps_domain = serializers.CharField(required=False, max_length=200)
    apps_scheme = serializers.ChoiceField(choices=["http", "https"], required=False)
    apps_port = serializers.IntegerField(required=False)
    exposure = serializers.ChoiceField(choices=Exposure.values, required=False)
    gateway_namespace = serializers.CharField(required=False, allow_blank=True, max_length=63)
    gateway_name = serializers.CharField(required=False, allow_blank=True, max_length=253)
    gateway_listener = serializers.CharField(required=False, allow_blank=True, max_length=253)
    ingress_class = serializers.CharField(required=False, allow_blank=True, max_length=253)
    ingress_namespaces = serializers.ListField(child=serializers.CharField(max_length=63), required=False)
    storage_class = serializers.CharField(required=False, allow_blank=True, max_length=253)
    user_namespaces = serializers.BooleanField(required=False)


class ClusterForm(ClusterChange):
    """A new cluster: a kubeconfig's text with one token or client certificate, and the domain of its instances."""

    name = serializers.CharField(max_length=200, trim_whitespace=False)
    kubeconfig = serializers.CharField(max_length=1_000_000, trim_whitespace=False)
    kube_context = serializers.CharField(required=False, max_length=253)
    apps_domain = serializers.CharField(max_length=200)


class CredentialsForm(serializers.Serializer[Any]):
    """A kubeconfig's text."""

    kubeconfig = serializers.CharField(max_length=1_000_000, trim_whitespace=False)
    kube_context = serializers.CharField(required=False, max_length=253)


class AbandonForm(serializers.Serializer[Any]):
    """`confirm` is the cluster's name."""

    confirm = serializers.CharField(max_length=200)


class ClusterCheckLineItem(serializers.Serializer[Any]):
    """A line of a check: ``command`` mends what is missing, ``evidence`` is the cluster's own words."""

    what = serializers.CharField()
    result = serializers.ChoiceField(choices=["good", "missing", "note", "unknown"])
    code = serializers.CharField()
    detail = serializers.CharField()
    fix = serializers.CharField()
    command = serializers.CharField()
    evidence = serializers.ListField(child=serializers.CharField())


class ClusterCheckItem(serializers.Serializer[Any]):
    """The latest check of a cluster; while it runs its lines come one by one."""

    state = serializers.CharField()
    started_at = serializers.DateTimeField(allow_null=True)
    finished_at = serializers.DateTimeField(allow_null=True)
    lines = serializers.SerializerMethodField()

    @extend_schema_field(ClusterCheckLineItem(many=True))
    def get_lines(self, row: ClusterCheck) -> list[dict[str, Any]]:
        """In the reader's language."""
        return list(ClusterCheckLineItem(check_words.all_shown(row.lines), many=True).data)


class ClusterViewSet(PortalViewSet):
    """Clusters."""

    kind = "cluster"
    rows = selectors.clusters
    item = ClusterItem
    spec = selectors.CLUSTER_LIST

    def prepare(self, rows: Sequence[Cluster]) -> None:
        """Sums of nodes in one statement."""
        found = selectors.capacities(rows)
        for row in rows:
            row.capacity = found[row.pk]  # type: ignore[attr-defined]

    @extend_schema(request=ClusterForm, responses={201: ClusterItem})
    def create(self, request: Request) -> Response:
        """Register a cluster."""
        services.require_admin(self.actor)
        data = self.read(ClusterForm, request)
        context = data.pop("kube_context", None)
        cluster = services.register(actor=self.actor, id=self.new_id(request), context=context, **data)
        return self.answer(cluster, code=status.HTTP_201_CREATED)

    @extend_schema(request=ClusterChange, responses=ClusterItem)
    def partial_update(self, request: Request, pk: str) -> Response:
        """Change settings."""
        cluster = self.find(pk)
        services.update(actor=self.actor, cluster=cluster, **self.read(ClusterChange, request))
        return self.answer(cluster)

    @extend_schema(parameters=[OpenApiParameter("keep", bool)], responses={204: None})
    def destroy(self, request: Request, pk: str) -> Response:
        """Forget a cluster without queues, and remove what the portal made in it unless ``keep`` is true."""
        keep = request.query_params.get("keep", "") == "true"
        services.remove(actor=self.actor, cluster=self.find(pk), keep=keep)
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(request=CredentialsForm, responses=ClusterItem)
    @action(detail=True, methods=["post"])
    def credentials(self, request: Request, pk: str) -> Response:
        """Give new credentials."""
        cluster, data = self.find(pk), self.read(CredentialsForm, request)
        context = data.pop("kube_context", None)
        services.replace_credentials(actor=self.actor, cluster=cluster, context=context, **data)
        return self.answer(cluster)

    @extend_schema(request=AbandonForm, responses={204: None})
    @action(detail=True, methods=["post"])
    def abandon(self, request: Request, pk: str) -> Response:
        """Forget a cluster that no longer answers, with the queues on it: their instances, volumes, flows and runs end
        in the portal alone, and their quota is free. What is in the cluster stays there."""
        services.require_admin(self.actor)
        cluster, data = self.find(pk), self.read(AbandonForm, request)
        abandoning.abandon(actor=self.actor, cluster=cluster, confirm=data["confirm"])
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(responses=ClusterCheckItem)
    @action(detail=True, methods=["get"])
    def check(self, request: Request, pk: str) -> Response:
        """The latest check, with its age."""
        services.require_admin(self.actor)
        row = checks.of(self.find(pk))
        if row is None:
            raise NotFound(_("This cluster was never checked."), next=_("Ask for a check with POST."))
        return Response(ClusterCheckItem(row).data)

    @extend_schema(request=None, responses={202: ClusterCheckItem})
    @check.mapping.post
    def ask_check(self, request: Request, pk: str) -> Response:
        """Ask for a check; a worker carries it out."""
        row = services.check(actor=self.actor, cluster=self.find(pk))
        return Response(ClusterCheckItem(row).data, status=status.HTTP_202_ACCEPTED)
