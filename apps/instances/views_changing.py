"""Pages that change an instance which exists: what it is made of, with the plan beside the form."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from django import forms
from django.contrib import messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.functional import cached_property
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from apps.core.errors import NotFound, PortalError
from apps.core.pages import ObjectFormPage
from apps.instances import change_forms, changing, choices, option_forms, pending, selectors
from apps.instances.change_forms import ChangeForm
from apps.instances.changes import Settings
from apps.instances.changing import Preview
from apps.instances.models import Instance
from apps.storage.models import Volume
from apps.storage.states import VolumeState
from apps.tenants import access


class InstanceFormPage(ObjectFormPage):
    """A form of one instance, for whoever may act on it."""

    section = "instances"
    styles = ("instances/instances.css",)
    scripts = ("instances/form.js",)
    template = "instances/form.html"

    def rows(self) -> QuerySet[Instance]:
        return selectors.visible_with_mounts(self.actor)

    def extra(self) -> Mapping[str, Any]:
        return {"object": self.object}

    def allow(self, obj: Instance) -> None:
        access.require_act_on(self.actor, obj.queue, obj.owner_id)


class ChangeInstance(InstanceFormPage):
    """Size, image, volumes, variables, script, shared memory, time zone: what they would be from the next start on."""

    title = gettext_lazy("Change what it is made of")
    form = ChangeForm
    submit_label = gettext_lazy("Change")

    def initial(self) -> Mapping[str, Any]:
        return change_forms.taken(pending.next_start(self.object), self.object.revision)

    def form_kwargs(self) -> dict[str, Any]:
        return self._offered

    @cached_property
    def _offered(self) -> dict[str, Any]:
        """What was retired meanwhile stays choosable for whom has it."""
        instance: Instance = self.object
        images, sizes = list(choices.images(self.actor)), list(choices.sizes(self.actor))
        mine = Volume.objects.for_actor(self.actor).filter(queue=instance.queue).exclude(pk=instance.home_id)
        mine = mine.exclude(state__in=[VolumeState.DELETING, VolumeState.DELETED])
        return {
            "images": images if instance.image in images else [instance.image, *images],
            "sizes": sizes if instance.size in sizes else [instance.size, *sizes],
            "volumes": list(mine.order_by("name")),
            "running": not instance.at_rest,
        }

    def submit(self, data: dict[str, Any]) -> str:
        instance: Instance = self.object
        when = changing.when_of(data.get("when", ""))
        wishes = change_forms.wishes(data)
        row = changing.change(actor=self.actor, instance=instance, wishes=wishes, when=when, revision=data["revision"])
        if row.pending and when == "next_start":
            messages.success(self.request, _("It runs on as it is; the change counts from its next start on."))
        return str(instance.get_absolute_url())

    @staticmethod
    def put_errors(form: forms.Form, error: Any) -> None:
        change_forms.put_errors(form, error.errors)

    def extra(self) -> Mapping[str, Any]:
        return {**super().extra(), "panel_url": reverse("instances:change-panel", args=[self.object.pk])}


class ChangePanel(ChangeInstance):
    """The plan of what is chosen so far; nothing of it is stored."""

    def get(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        raise NotFound()

    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        """The plan, or what stands in its way."""
        self.check()
        form = self.form(request.POST, **self.form_kwargs())
        if not form.is_valid():
            texts = {name: " ".join(map(str, errors)) for name, errors in form.errors.items()}
            found: dict[str, Any] = {"error": {"detail": _("This cannot be planned yet."), "errors": texts}}
            return self.show("instances/change_panel.html", found)
        try:
            plan = changing.preview(
                actor=self.actor, instance=self.object, wishes=change_forms.wishes(form.cleaned_data)
            )
        except PortalError as error:
            return self.show("instances/change_panel.html", {"error": error})
        return self.show("instances/change_panel.html", self._shown(plan, form.cleaned_data))

    def _shown(self, found: Preview, data: Mapping[str, Any]) -> dict[str, Any]:
        cli = "" if found.plan.is_empty else command(self.object, found.wanted, data.get("when", ""))
        return {"plan": found.plan, "waits": found.waits, "forecast": found.forecast, "cli": cli}


def command(instance: Instance, wanted: Settings, when: str) -> str:
    """The same change by portalctl."""
    base = pending.next_start(instance)
    words = ["portalctl", "instance", "set", f"{instance.queue.name}/{instance.name}"]
    words += ["--image", wanted.image] if wanted.image_id != base.image_id else []
    words += ["--size", wanted.size] if wanted.size_id != base.size_id else []
    if wanted.mounts != base.mounts:
        ordered = sorted(wanted.mounts, key=lambda mount: mount.path)
        words += [f"--volume={one.volume}:{one.path}" + (":ro" if one.read_only else "") for one in ordered]
        words += [] if ordered else ["--no-volumes"]
    words += option_forms.differences(base.options, wanted.options)
    return " ".join(shlex.quote(word) for word in [*words, *([f"--{when.replace('_', '-')}"] if when else [])])
