"""REST: open ports of an instance, whom they are shared with, and how one gets in."""

from __future__ import annotations

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers, status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.clusters.events_api import EventfulViewSet
from apps.instances import ports

NUMBER = OpenApiParameter("number", OpenApiTypes.INT, required=True, description="The port.")
PERSON = OpenApiParameter("person", OpenApiTypes.STR, required=True, description="User name.")


class PortForm(serializers.Serializer[Any]):
    """A port to open, and what it is."""

    number = serializers.IntegerField(min_value=ports.LEAST_NUMBER, max_value=ports.MOST_NUMBER)
    label = serializers.CharField(default="", allow_blank=True, max_length=40)  # type: ignore[assignment]


class PortNumber(serializers.Serializer[Any]):
    """Which port."""

    number = serializers.IntegerField()


class GuestForm(serializers.Serializer[Any]):
    """Who may use which port, until when (at most 90 days)."""

    number = serializers.IntegerField()
    person = serializers.CharField(max_length=150)
    until = serializers.DateTimeField()


class GuestItem(serializers.Serializer[Any]):
    """Somebody who may use it."""

    person = serializers.CharField(source="person.username")
    until = serializers.DateTimeField()


class PortItem(serializers.Serializer[Any]):
    """An open port: its own address, and who besides the owner may use it."""

    number = serializers.IntegerField()
    label = serializers.CharField()  # type: ignore[assignment]
    url = serializers.CharField()
    guests = GuestItem(many=True, source="present")


class PortTicket(serializers.Serializer[Any]):
    """POST ``ticket`` as a form field to ``url`` within a minute, once."""

    url = serializers.CharField()
    ticket = serializers.CharField()
    expires_at = serializers.DateTimeField()


class PortActions(EventfulViewSet):
    """The part of the instances' view set that is about open ports."""

    @extend_schema(methods=["get"], responses=PortItem(many=True))
    @extend_schema(methods=["post"], request=PortForm, responses=PortItem(many=True))
    @extend_schema(methods=["delete"], parameters=[NUMBER], responses={204: None})
    @action(detail=True, methods=["get", "post", "delete"])
    def ports(self, request: Request, pk: str) -> Response:
        """The open ports, for the owner alone; open one; close one (`?number=`)."""
        instance = self.find(pk)
        if request.method == "POST":
            ports.open_port(actor=self.actor, instance=instance, **self.read(PortForm, request))
        elif request.method == "DELETE":
            ports.close_port(actor=self.actor, instance=instance, number=_asked(request))
            return Response(status=status.HTTP_204_NO_CONTENT)
        else:
            ports.require_owner(self.actor, instance)
        return Response(PortItem(ports.of(instance), many=True).data)

    @extend_schema(methods=["post"], request=GuestForm, responses=GuestItem)
    @extend_schema(methods=["delete"], parameters=[NUMBER, PERSON], responses={204: None})
    @action(detail=True, methods=["post", "delete"], url_path="port-guests")
    def port_guests(self, request: Request, pk: str) -> Response:
        """Let somebody use an open port until a moment; end that (`?number=&person=`)."""
        instance = self.find(pk)
        if request.method == "POST":
            made = ports.share_port(actor=self.actor, instance=instance, **self.read(GuestForm, request))
            return Response(GuestItem(made).data)
        person = request.query_params.get("person", "")
        ports.unshare_port(actor=self.actor, instance=instance, number=_asked(request), person=person)
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(request=PortNumber, responses=PortTicket)
    @action(detail=True, methods=["post"], url_path="port-ticket")
    def port_ticket(self, request: Request, pk: str) -> Response:
        """A one-time entrance to an open port for a browser, for its owner and its guests; audited."""
        ports.require_known(self.actor, pk)
        port = ports.usable(self.actor, pk, self.read(PortNumber, request)["number"])
        entrance = ports.ticket(actor=self.actor, port=port)
        return Response(PortTicket(entrance).data, headers={"Cache-Control": "no-store"})


def _asked(request: Request) -> int:
    text = request.query_params.get("number", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0
