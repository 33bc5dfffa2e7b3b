"""REST for the catalogue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from apps.catalog import selectors, services
from apps.catalog.models import Architecture, Image, Purpose, Size
from apps.core.api import Item, PortalViewSet


class ImageItem(Item):
    """An image. A retired one cannot be chosen any more; ``replaced_by`` names the one to use instead.

    ``teams``, who see a hidden one, are told to administrators alone.
    """

    reference = serializers.CharField()
    purpose = serializers.ChoiceField(choices=Purpose.choices)
    description = serializers.CharField()
    version = serializers.CharField()
    architecture = serializers.CharField()
    cuda = serializers.CharField()
    prepared = serializers.BooleanField()
    position = serializers.IntegerField()
    retired = serializers.BooleanField()
    replaced_by = serializers.SerializerMethodField()
    hidden = serializers.BooleanField()
    teams = serializers.SerializerMethodField()

    def get_replaced_by(self, obj: Image) -> str | None:
        """Its name, unless it is hidden from who asks."""
        other = obj.replaced_by
        told = other is not None and (self.context["actor"].is_admin or not other.hidden)
        return other.name if other is not None and told else None

    def get_teams(self, obj: Image) -> list[str] | None:
        """Null for others than administrators."""
        return list(obj.team_names) if self.context["actor"].is_admin else None  # type: ignore[attr-defined]


class ImageChange(serializers.Serializer[Any]):
    """The fields of an image, all optional. ``replaced_by`` and ``teams`` are names or ids."""

    name = serializers.CharField(required=False, max_length=200, trim_whitespace=False)
    reference = serializers.CharField(required=False, max_length=512)
    purpose = serializers.ChoiceField(choices=Purpose.choices, required=False)
    description = serializers.CharField(required=False, allow_blank=True, max_length=300)
    version = serializers.CharField(required=False, allow_blank=True, max_length=40)
    architecture = serializers.ChoiceField(choices=Architecture.choices, required=False, allow_blank=True)
    cuda = serializers.CharField(required=False, allow_blank=True, max_length=10)
    prepared = serializers.BooleanField(required=False)
    position = serializers.IntegerField(required=False)
    retired = serializers.BooleanField(required=False)
    replaced_by = serializers.CharField(required=False, allow_blank=True, allow_null=True, max_length=100)
    hidden = serializers.BooleanField(required=False)
    teams = serializers.ListField(child=serializers.CharField(max_length=100), required=False, max_length=1000)


class ImageForm(ImageChange):
    """What a new image needs."""

    name = serializers.CharField(max_length=200, trim_whitespace=False)
    reference = serializers.CharField(max_length=512)
    purpose = serializers.ChoiceField(choices=Purpose.choices)


class ImageViewSet(PortalViewSet):
    """Images; administrators keep them."""

    kind = "image"
    rows = selectors.catalogue
    item = ImageItem
    spec = selectors.IMAGE_LIST

    def prepare(self, rows: Sequence[Image]) -> None:
        """The teams of hidden ones, for administrators."""
        if self.actor.is_admin:
            selectors.with_teams(rows)

    @extend_schema(request=ImageForm, responses={201: ImageItem})
    def create(self, request: Request) -> Response:
        """Add an image."""
        image = services.save_image(actor=self.actor, id=self.new_id(request), **self.read(ImageForm, request))
        return self.answer(image, code=status.HTTP_201_CREATED)

    @extend_schema(request=ImageChange, responses=ImageItem)
    def partial_update(self, request: Request, pk: str) -> Response:
        """Change an image."""
        return self.answer(
            services.save_image(actor=self.actor, image=self.find(pk), **self.read(ImageChange, request))
        )


class SizeItem(Item):
    """A size in base units."""

    cpu_millis = serializers.IntegerField()
    memory_bytes = serializers.IntegerField()
    gpus = serializers.IntegerField()
    gpu_resource = serializers.CharField()
    position = serializers.IntegerField()
    retired = serializers.BooleanField()


class SizeChange(serializers.Serializer[Any]):
    """The fields of a size, all optional."""

    name = serializers.CharField(required=False, max_length=200, trim_whitespace=False)
    cpu_millis = serializers.IntegerField(required=False)
    memory_bytes = serializers.IntegerField(required=False)
    gpus = serializers.IntegerField(required=False)
    gpu_resource = serializers.CharField(required=False, max_length=253)
    position = serializers.IntegerField(required=False)
    retired = serializers.BooleanField(required=False)


class SizeForm(SizeChange):
    """What a new size needs."""

    name = serializers.CharField(max_length=200, trim_whitespace=False)
    cpu_millis = serializers.IntegerField()
    memory_bytes = serializers.IntegerField()


class SizeViewSet(PortalViewSet):
    """Sizes; administrators keep them."""

    kind = "size"
    rows = Size.objects.for_actor
    item = SizeItem
    spec = selectors.SIZE_LIST

    @extend_schema(request=SizeForm, responses={201: SizeItem})
    def create(self, request: Request) -> Response:
        """Add a size."""
        size = services.save_size(actor=self.actor, id=self.new_id(request), **self.read(SizeForm, request))
        return self.answer(size, code=status.HTTP_201_CREATED)

    @extend_schema(request=SizeChange, responses=SizeItem)
    def partial_update(self, request: Request, pk: str) -> Response:
        """Change a size."""
        return self.answer(services.save_size(actor=self.actor, size=self.find(pk), **self.read(SizeChange, request)))
