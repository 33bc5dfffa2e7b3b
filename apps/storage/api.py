"""REST for volumes."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.clusters.events_api import EventfulViewSet
from apps.core import refs
from apps.core.api import StatefulItem
from apps.storage import selectors, services, uses
from apps.tenants import selectors as tenants


class VolumeItem(StatefulItem):
    """A volume."""

    queue = serializers.CharField(source="queue.name")
    owner = serializers.CharField(source="owner.username")
    kind = serializers.CharField()
    size_bytes = serializers.IntegerField()


class UseItem(serializers.Serializer[Any]):
    """Something that mounts the volume."""

    label = serializers.CharField()  # type: ignore[assignment]  # hides Field.label
    path = serializers.CharField()
    read_only = serializers.BooleanField()  # type: ignore[assignment]  # hides Field.read_only


class NewVolumeForm(serializers.Serializer[Any]):
    """What a new data volume needs; the queue by name or id."""

    name = serializers.CharField(max_length=200, trim_whitespace=False)
    queue = serializers.CharField(max_length=100)
    size_bytes = serializers.IntegerField(min_value=1)


class VolumeChange(serializers.Serializer[Any]):
    """A larger size."""

    size_bytes = serializers.IntegerField(min_value=1)


class VolumeViewSet(EventfulViewSet):
    """Volumes: one's home in each queue, and data volumes."""

    kind = "volume"
    rows = selectors.volumes
    item = VolumeItem
    spec = selectors.VOLUME_LIST

    @extend_schema(request=NewVolumeForm, responses={201: VolumeItem})
    def create(self, request: Request) -> Response:
        """Make a data volume."""
        data = self.read(NewVolumeForm, request)
        queue = refs.find(tenants.queues(self.actor), data.pop("queue"), field="queue")
        volume = services.create(actor=self.actor, id=self.new_id(request), queue=queue, **data)
        return self.answer(volume, code=status.HTTP_201_CREATED)

    @extend_schema(request=VolumeChange, responses=VolumeItem)
    def partial_update(self, request: Request, pk: str) -> Response:
        """Make the volume larger."""
        return self.answer(services.expand(actor=self.actor, volume=self.find(pk), **self.read(VolumeChange, request)))

    @extend_schema(responses={202: VolumeItem})
    def destroy(self, request: Request, pk: str) -> Response:
        """Delete the volume and everything on it."""
        volume = self.find(pk)
        services.delete(actor=self.actor, volume=volume)
        return self.answer(volume, code=status.HTTP_202_ACCEPTED)

    @extend_schema(responses=UseItem(many=True))
    @action(detail=True, methods=["get"])
    def uses(self, request: Request, pk: str) -> Response:
        """What mounts the volume."""
        return Response(UseItem(uses.of(self.find(pk).pk), many=True).data)
