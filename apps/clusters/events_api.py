"""REST: what the cluster said of an object, as its Events tab shows it."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.clusters import events
from apps.core.api import PortalViewSet


class EventItem(serializers.Serializer[Any]):
    """An event of the cluster in plain words; ``about`` names what it befell."""

    at = serializers.DateTimeField()
    sentence = serializers.CharField()
    message = serializers.CharField()
    reason = serializers.CharField()
    count = serializers.IntegerField()
    warning = serializers.BooleanField()
    about = serializers.CharField()


class EventfulViewSet(PortalViewSet):
    """A view set whose objects have events: their own, unless ``events_of`` says where they are."""

    def events_of(self, obj: Any) -> list[events.Row]:
        """What the cluster said of it."""
        return events.shown(obj.last_events)

    @extend_schema(responses=EventItem(many=True))
    @action(detail=True, methods=["get"])
    def events(self, request: Request, pk: str) -> Response:
        """The newest events of the cluster about it, newest first."""
        return Response({"items": EventItem(self.events_of(self.find(pk)), many=True).data, "next": None})
