"""Pages on which an instance is renamed, cloned, given away and shown to somebody."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from django import forms
from django.contrib import messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from apps.core.errors import Forbidden
from apps.core.pages import ActionPage, find
from apps.instances import handing, pending, selectors, sharing
from apps.instances.handing_forms import CloneForm, RenameForm, ShareForm, TransferForm
from apps.instances.models import Instance
from apps.instances.views_changing import InstanceFormPage
from apps.tenants import access
from apps.tenants.lists import to_work_in


class Rename(InstanceFormPage):
    """Another name."""

    title = gettext_lazy("Rename")
    form = RenameForm
    submit_label = gettext_lazy("Rename")

    def initial(self) -> Mapping[str, Any]:
        return {"name": self.object.name}

    def submit(self, data: dict[str, Any]) -> str:
        handing.rename(actor=self.actor, instance=self.object, name=data["name"])
        return str(self.object.get_absolute_url())


class Clone(InstanceFormPage):
    """Another one with the same settings, for whoever sees it and may make instances."""

    title = gettext_lazy("Make another one like it")
    form = CloneForm
    template = "instances/clone.html"
    submit_label = gettext_lazy("Create")

    def allow(self, obj: Instance) -> None:
        if not to_work_in(self.actor):
            raise Forbidden(
                _("You are no member of a team with a queue."),
                code="no_queue",
                next=_("Ask an administrator to add you to a team."),
            )

    def initial(self) -> Mapping[str, Any]:
        return {"queue": str(self.object.queue_id)}

    def form_kwargs(self) -> dict[str, Any]:
        return {"queues": to_work_in(self.actor)}

    def submit(self, data: dict[str, Any]) -> str:
        made = handing.clone(
            actor=self.actor, instance=self.object, id=data["id"], name=data["name"], queue=data["queue"]
        )
        return str(made.get_absolute_url())

    @staticmethod
    def put_errors(form: forms.Form, error: Any) -> None:
        """What is wrong with volumes is so because of the queue."""
        for place, text in error.errors.items():
            form.add_error("name" if place == "name" else "queue", str(text))

    def extra(self) -> Mapping[str, Any]:
        return {**super().extra(), "like": pending.next_start(self.object)}


class Transfer(InstanceFormPage):
    """Another owner; the name is typed."""

    title = gettext_lazy("Give to a colleague")
    form = TransferForm
    template = "instances/transfer.html"
    submit_label = gettext_lazy("Give it away")

    def submit(self, data: dict[str, Any]) -> str:
        row = handing.transfer(
            actor=self.actor, instance=self.object, to=data["to"], confirm=data["confirm"], home=data["home"]
        )
        messages.success(self.request, _("It belongs to “%(name)s” now.") % {"name": row.owner.username})
        return str(row.get_absolute_url())


class Share(InstanceFormPage):
    """Who may look, until when."""

    title = gettext_lazy("Let somebody look")
    form = ShareForm
    template = "instances/share.html"
    submit_label = gettext_lazy("Let them look")

    def submit(self, data: dict[str, Any]) -> str:
        until = timezone.now() + data["days"]
        sharing.share(actor=self.actor, instance=self.object, person=data["person"], until=until)
        link = self.request.build_absolute_uri(self.object.get_absolute_url())
        messages.success(self.request, _("They see it at this address: %(link)s") % {"link": link})
        return reverse("instances:share", args=[self.object.pk])

    def extra(self) -> Mapping[str, Any]:
        return {**super().extra(), "viewers": sharing.viewers(self.object)}


class Unshare(ActionPage):
    """They see it no more."""

    section = "instances"

    def rows(self) -> QuerySet[Instance]:
        return selectors.visible(self.actor)

    def post(self, request: HttpRequest, pk: uuid.UUID) -> HttpResponse:
        """Back to who else may look."""
        instance = find(self.rows(), pk)
        access.require_act_on(self.actor, instance.queue, instance.owner_id)
        sharing.unshare(actor=self.actor, instance=instance, person=request.POST.get("person", ""))
        return HttpResponseRedirect(reverse("instances:share", args=[pk]))
