"""REST: how long instances of a team run."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.core.api import PortalViewSet
from apps.tenants import lifetimes
from apps.tenants.lifetimes import Policies
from apps.tenants.models import Team


class LifetimeRuleForm(serializers.Serializer[Any]):
    """What is named is set; null goes back to the default. ``idle_minutes`` 0: never stopped for being idle,
    ``lease_hours`` 0: without an end, ``keep_hours`` 0: *keep until* is not allowed.
    """

    idle_minutes = serializers.IntegerField(required=False, allow_null=True)
    warning_minutes = serializers.IntegerField(required=False, allow_null=True)
    lease_hours = serializers.IntegerField(required=False, allow_null=True)
    keep_hours = serializers.IntegerField(required=False, allow_null=True)


class LifetimeRuleItem(serializers.Serializer[Any]):
    """What holds, and in ``own`` what was set here (null: the default)."""

    idle_minutes = serializers.IntegerField()
    warning_minutes = serializers.IntegerField()
    lease_hours = serializers.IntegerField()
    keep_hours = serializers.IntegerField()
    own = serializers.DictField(child=serializers.IntegerField(allow_null=True))


class TeamLifetimes(PortalViewSet):
    """The part of the teams' view set that is about the lifetime of instances."""

    @extend_schema(responses=LifetimeRuleItem, methods=["GET"])
    @extend_schema(request=LifetimeRuleForm, responses=LifetimeRuleItem, methods=["PATCH"])
    @action(detail=True, methods=["get", "patch"])
    def lifetime(self, request: Request, pk: str) -> Response:
        """How long instances of this team run; administrators of the platform change it."""
        return self._lifetime(request, self.find(pk))

    @extend_schema(responses=LifetimeRuleItem, methods=["GET"])
    @extend_schema(request=LifetimeRuleForm, responses=LifetimeRuleItem, methods=["PATCH"])
    @action(detail=False, methods=["get", "patch"], url_path="default-lifetime", url_name="default-lifetime")
    def default_lifetime(self, request: Request) -> Response:
        """The same for all teams that have no rule of their own."""
        return self._lifetime(request, None)

    def _lifetime(self, request: Request, team: Team | None) -> Response:
        if request.method == "PATCH":
            lifetimes.set_rule(actor=self.actor, team=team, **self.read(LifetimeRuleForm, request))
        policies, pk = Policies(), team.pk if team is not None else None
        return Response(LifetimeRuleItem({**policies.values(pk), "own": policies.own(pk)}).data)
