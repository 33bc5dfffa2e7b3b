"""REST: another name, another one like it, another owner, and who may look."""

from __future__ import annotations

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers, status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.clusters.events_api import EventfulViewSet
from apps.instances import handing, sharing
from apps.tenants import access


class NameForm(serializers.Serializer[Any]):
    """The new name."""

    name = serializers.CharField(trim_whitespace=True)


class CloneForm(serializers.Serializer[Any]):
    """Name and queue of the new one; a name is proposed, and the queue is the same, when they are left out."""

    name = serializers.CharField(default="", allow_blank=True, trim_whitespace=True)
    queue = serializers.CharField(default="", allow_blank=True, max_length=100)


class TransferForm(serializers.Serializer[Any]):
    """User name of the new owner, a member of its team. ``confirm`` is the instance's name; ``home`` says whether the
    home *stays* with the old owner or *goes* along.
    """

    to = serializers.CharField(max_length=150)
    confirm = serializers.CharField()
    home = serializers.ChoiceField(choices=list(handing.HOMES), default="stays")


class ViewerForm(serializers.Serializer[Any]):
    """User name of who may look, and until when (at most 90 days)."""

    person = serializers.CharField(max_length=150)
    until = serializers.DateTimeField()


class ViewerItem(serializers.Serializer[Any]):
    """Somebody who may look."""

    person = serializers.CharField(source="person.username")
    until = serializers.DateTimeField()


PERSON = OpenApiParameter("person", OpenApiTypes.STR, required=True, description="User name.")


class HandingActions(EventfulViewSet):
    """The part of the instances' view set that is about names and people."""

    @extend_schema(request=NameForm)
    @action(detail=True, methods=["post"])
    def rename(self, request: Request, pk: str) -> Response:
        """Another name; host, objects and files stay."""
        handing.rename(actor=self.actor, instance=self.find(pk), **self.read(NameForm, request))
        return self.answer(self.find(pk))

    @extend_schema(request=CloneForm)
    @action(detail=True, methods=["post"])
    def clone(self, request: Request, pk: str) -> Response:
        """Make and start one of your own with the same settings, and your home of that queue."""
        wanted = self.read(CloneForm, request)
        made = handing.clone(actor=self.actor, instance=self.find(pk), id=self.new_id(request), **wanted)
        return self.answer(self.find(made.pk), code=status.HTTP_201_CREATED)

    @extend_schema(request=TransferForm)
    @action(detail=True, methods=["post"])
    def transfer(self, request: Request, pk: str) -> Response:
        """Make a colleague its owner, while it is stopped."""
        handing.transfer(actor=self.actor, instance=self.find(pk), **self.read(TransferForm, request))
        return self.answer(self.find(pk))

    @extend_schema(methods=["get"], responses=ViewerItem(many=True))
    @extend_schema(methods=["post"], request=ViewerForm, responses=ViewerItem)
    @extend_schema(methods=["delete"], parameters=[PERSON], responses={204: None})
    @action(detail=True, methods=["get", "post", "delete"])
    def viewers(self, request: Request, pk: str) -> Response:
        """Whom it is shown to, besides its team; show it to somebody until a moment; end that (``?person=``)."""
        instance = self.find(pk)
        if request.method == "POST":
            made = sharing.share(actor=self.actor, instance=instance, **self.read(ViewerForm, request))
            return Response(ViewerItem(made).data)
        if request.method == "DELETE":
            sharing.unshare(actor=self.actor, instance=instance, person=request.query_params.get("person", ""))
            return Response(status=status.HTTP_204_NO_CONTENT)
        access.require_act_on(self.actor, instance.queue, instance.owner_id)
        return Response(ViewerItem(sharing.viewers(instance), many=True).data)
