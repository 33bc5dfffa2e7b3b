"""REST for the catalogue."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from apps.catalog import selectors, services
from apps.catalog.models import Image, Purpose, Size
from apps.core.api import Item, PortalViewSet


class ImageItem(Item):
    """An image. A retired one cannot be chosen any more."""

    reference = serializers.CharField()
    purpose = serializers.ChoiceField(choices=Purpose.choices)
    description = serializers.CharField()
    position = serializers.IntegerField()
    retired = serializers.BooleanField()


class ImageChange(serializers.Serializer[Any]):
    """The fields of an image, all optional."""

    name = serializers.CharField(required=False, max_length=200, trim_whitespace=False)
    reference = serializers.CharField(required=False, max_length=512)
    purpose = serializers.ChoiceField(choices=Purpose.choices, required=False)
    description = serializers.CharField(required=False, allow_blank=True, max_length=300)
    position = serializers.IntegerField(required=False)
    retired = serializers.BooleanField(required=False)


class ImageForm(ImageChange):
    """What a new image needs."""

    name = serializers.CharField(max_length=200, trim_whitespace=False)
    reference = serializers.CharField(max_length=512)
    purpose = serializers.ChoiceField(choices=Purpose.choices)


class ImageViewSet(PortalViewSet):
    """Images; administrators keep them."""

    kind = "image"
    rows = Image.objects.for_actor
    item = ImageItem
    spec = selectors.IMAGE_LIST

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
