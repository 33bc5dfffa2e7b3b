"""Pages on which an instance's owner opens ports, shares them, and on which whoever may gets in."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django import forms
from django.contrib import messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from apps.core.pages import ActionPage, find
from apps.instances import ports, rendering, selectors
from apps.instances.handing_forms import ENDS
from apps.instances.models import Instance
from apps.instances.views_changing import InstanceFormPage


class PortForm(forms.Form):
    """A port to open."""

    number = forms.IntegerField(
        label=gettext_lazy("Port"),
        min_value=ports.LEAST_NUMBER,
        max_value=ports.MOST_NUMBER,
        help_text=gettext_lazy("What listens there must listen on all addresses (0.0.0.0), not on 127.0.0.1 alone."),
    )
    label = forms.CharField(
        label=gettext_lazy("What listens there"),
        required=False,
        max_length=40,
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )


class Ports(InstanceFormPage):
    """Which ports are open, to whom, until when."""

    title = gettext_lazy("Ports")
    form = PortForm
    template = "instances/ports.html"
    styles = ("instances/instances.css",)
    submit_label = gettext_lazy("Open the port")

    def allow(self, obj: Instance) -> None:
        ports.require_owner(self.actor, obj)

    def submit(self, data: dict[str, Any]) -> str:
        made = ports.open_port(actor=self.actor, instance=self.object, number=data["number"], label=data["label"])
        link = self.request.build_absolute_uri(_entrance(self.object.pk, made.number))
        messages.success(self.request, _("Whoever may use it opens it here: %(link)s") % {"link": link})
        return reverse("instances:ports", args=[self.object.pk])

    def extra(self) -> Mapping[str, Any]:
        instance = self.object
        return {
            "object": instance,
            "ports": ports.of(instance),
            "possible": ports.possible(instance.queue.cluster),
            "ends": ENDS,
            "is_up": instance.state == "running",
        }


def _entrance(pk: uuid.UUID, number: int) -> str:
    return f"{reverse('instances:port-enter', args=[pk])}?number={number}"


class PortAction(ActionPage):
    """Something that is done to one open port; back to all of them."""

    section = "instances"

    def rows(self) -> QuerySet[Instance]:
        return selectors.visible(self.actor)

    def post(self, request: HttpRequest, pk: uuid.UUID) -> HttpResponse:
        """Do it."""
        self.change(find(self.rows(), pk), _number(request.POST))
        return HttpResponseRedirect(reverse("instances:ports", args=[pk]))

    def change(self, instance: Instance, number: int) -> None:
        """What is done."""
        ports.close_port(actor=self.actor, instance=instance, number=number)


class ClosePort(PortAction):
    """Nobody gets there any more."""


class SharePort(PortAction):
    """Somebody may use it for a time."""

    def change(self, instance: Instance, number: int) -> None:
        days = self.request.POST.get("days", "")
        until = timezone.now() + timedelta(days=int(days) if days.isascii() and days.isdigit() else 0)
        person = self.request.POST.get("person", "")
        ports.share_port(actor=self.actor, instance=instance, number=number, person=person, until=until)


class UnsharePort(PortAction):
    """They use it no more."""

    def change(self, instance: Instance, number: int) -> None:
        person = self.request.POST.get("person", "")
        ports.unshare_port(actor=self.actor, instance=instance, number=number, person=person)


class EnterPort(ActionPage):
    """The address to give to those whom a port is shared with; a press posts a ticket on to the port's own host."""

    section = "instances"

    def get(self, request: HttpRequest, pk: uuid.UUID) -> HttpResponse:
        """A button, since a link that is followed opens nothing by itself."""
        port = ports.usable(self.actor, pk, _number(request.GET))
        return self.show("instances/port.html", {"port": port, "object": port.instance})

    def post(self, request: HttpRequest, pk: uuid.UUID) -> HttpResponse:
        """The ticket."""
        entrance = ports.ticket(actor=self.actor, port=ports.usable(self.actor, pk, _number(request.POST)))
        response = self.show_once("instances/enter.html", {"entrance": entrance, "next": "", "port": True})
        response["Content-Security-Policy"] = rendering.policy_for(entrance.url)
        return response


def _number(given: Any) -> int:
    text = given.get("number", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0
