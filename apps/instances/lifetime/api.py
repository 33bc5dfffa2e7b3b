"""REST: when an instance ends, how idle it is, and *keep until*."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.clusters.events_api import EventfulViewSet
from apps.instances.lifetime import keeping, shown
from apps.instances.lifetime.rows import Cause


class LifetimeItem(serializers.Serializer[Any]):
    """How long it runs. ``ends_at``: it is stopped then; ``keep_until``: not before that. ``idle_s`` of
    ``idle_limit_s`` seconds have passed without activity (0: idle instances are not stopped here). While a warning
    stands, ``warned_for`` says of what and ``stops_at`` when it is stopped if nothing happens. ``active_by`` is what
    the last look inside found, ``problem`` why it found nothing out, which counts as activity.
    """

    ends_at = serializers.DateTimeField(allow_null=True)
    keep_until = serializers.DateTimeField(allow_null=True)
    warned_for = serializers.ChoiceField(choices=[*Cause.values, ""])
    stops_at = serializers.DateTimeField(allow_null=True)
    idle_s = serializers.IntegerField()
    idle_limit_s = serializers.IntegerField()
    keep_limit_s = serializers.IntegerField()
    looked_at = serializers.DateTimeField(allow_null=True)
    last_active_at = serializers.DateTimeField(allow_null=True)
    active_by = serializers.ListField(child=serializers.CharField())
    problem = serializers.CharField()


class KeepForm(serializers.Serializer[Any]):
    """Until when it is kept; null takes it back."""

    until = serializers.DateTimeField(allow_null=True)


class EndForm(serializers.Serializer[Any]):
    """When it ends; null: it has no end of its own."""

    at = serializers.DateTimeField(allow_null=True)


class LifetimeActions(EventfulViewSet):
    """The part of the instances' view set that is about their lifetime."""

    def prepare(self, rows: Sequence[Any]) -> None:
        """What is shown of their lifetime, in one statement."""
        shown.put_on(rows)

    @extend_schema(request=KeepForm, responses=LifetimeItem)
    @action(detail=True, methods=["post"])
    def keep(self, request: Request, pk: str) -> Response:
        """Neither idleness nor its end stops it before that, within the limit of its team."""
        instance = self.find(pk)
        keeping.keep(actor=self.actor, instance=instance, until=self.read(KeepForm, request)["until"])
        return self._lifetime(pk)

    @extend_schema(request=EndForm, responses=LifetimeItem)
    @action(detail=True, methods=["post"])
    def end(self, request: Request, pk: str) -> Response:
        """Set when it is stopped, within the longest lease of its team."""
        instance = self.find(pk)
        keeping.set_end(actor=self.actor, instance=instance, at=self.read(EndForm, request)["at"])
        return self._lifetime(pk)

    def _lifetime(self, pk: str) -> Response:
        found = self.find(pk)
        self.prepare([found])
        return Response(LifetimeItem(found.shown).data)
