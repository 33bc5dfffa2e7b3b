"""The forms of flows: new, edit, edit as YAML, and the panel beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import yaml
from django import forms
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from apps.catalog import selectors as catalog
from apps.catalog.models import Size
from apps.core.context import QUEUE_COOKIE
from apps.core.errors import Invalid, NotFound, PortalError
from apps.core.pages import FormPage, ObjectFormPage
from apps.flows import rendering, selectors, services
from apps.flows.document import stored
from apps.flows.forms import FlowForm, field_of, from_document, preset_of, to_document
from apps.flows.models import Flow
from apps.flows.views import JUST_MADE, STYLES, has_webhook
from apps.storage.models import Volume
from apps.storage.states import VolumeState
from apps.tenants import access
from apps.tenants.lists import to_work_in

JUST = timedelta(minutes=1)
"""So long a repeated Create (a double click) still counts as making the flow."""


def offered(actor: Any) -> dict[str, list[Any]]:
    """What the form offers this person."""
    queues = to_work_in(actor)
    volumes = Volume.objects.for_actor(actor).filter(queue__in=queues).select_related("queue").order_by("name")
    alive = volumes.exclude(state__in=(VolumeState.DELETING, VolumeState.DELETED))
    # Tasks come first: an image for tasks is what a flow usually wants.
    images = sorted(
        catalog.offered(actor),
        key=lambda image: image.purpose != "task",
    )
    return {
        "queues": queues,
        "volumes": list(alive),
        "images": images,
        "sizes": list(Size.objects.for_actor(actor).filter(retired=False).order_by("position", "name")),
    }


class FlowFormPage(FormPage):
    """What new and edit have in common."""

    section = "flows"
    form = FlowForm
    styles = STYLES
    scripts = ("flows/form.js",)

    def form_kwargs(self) -> dict[str, Any]:
        if not hasattr(self, "_offered"):
            self._offered = offered(self.actor)
        return self._offered

    def extra(self) -> Mapping[str, Any]:
        return {"panel_url": reverse("flows:panel")}

    def put_document_errors(self, error: PortalError, document: Mapping[str, Any]) -> PortalError:
        """The error with the form's field names in place of the document's."""
        fields = {field_of(pointer, document) or "": text for pointer, text in error.errors.items()}
        hidden = [text for pointer, text in error.errors.items() if not field_of(pointer, document)]
        detail = _("Some fields are not valid.") if isinstance(error, Invalid) and not hidden else error.detail
        return type(error)(
            detail, code=error.code, next=error.next, errors={k: v for k, v in fields.items() if k}, data=error.data
        )


class NewFlow(FlowFormPage):
    """A new flow, perhaps filled in from an instance by the query (name, image, size, queue, volume, path, workdir)."""

    title = gettext_lazy("New flow")
    submit_label = gettext_lazy("Create")

    def initial(self) -> Mapping[str, Any]:
        asked, rows = self.request.GET, self.form_kwargs()
        queue = _chosen(rows["queues"], asked.get("queue", "") or self.request.COOKIES.get(QUEUE_COOKIE, ""))
        volume = next(
            (
                row
                for row in rows["volumes"]
                if asked.get("volume", "") in {row.name, str(row.pk)} and row.queue.name == queue
            ),
            None,
        )
        cron, name = asked.get("cron", ""), asked.get("name", "")
        row = next((row for row in rows["queues"] if row.name == queue), None)
        return {
            "name": selectors.free_name(row.pk, name) if name and row is not None else name,
            "queue": queue,
            "image": _chosen(rows["images"], asked.get("image", "")),
            "size": _chosen(rows["sizes"], asked.get("size", "")),
            "command": asked.get("command", ""),
            "workdir": asked.get("workdir", ""),
            "volume": str(volume.pk) if volume is not None else "",
            "path": asked.get("path", ""),
            "preset": preset_of(cron),
            "cron": cron,
            "timezone": asked.get("timezone", "UTC"),
        }

    def submit(self, data: dict[str, Any]) -> str:
        document = to_document(data)
        try:
            flow = services.create_flow(actor=self.actor, document=document, flow_id=data["id"])
        except PortalError as error:
            raise self.put_document_errors(error, document) from error
        if has_webhook(document) and flow.owner_id == self.actor.user_id and flow.created_at > timezone.now() - JUST:
            self.request.session[JUST_MADE] = str(flow.pk)
        return flow.get_absolute_url()


class OfOneFlow(ObjectFormPage):
    """A form of a flow that exists: nobody else learns of it, and who may not change it is told so before typing."""

    def rows(self) -> QuerySet[Flow]:
        return selectors.flows(self.actor)

    def allow(self, obj: Flow) -> None:
        access.require_act_on(self.actor, obj.queue, obj.owner_id)


class EditFlow(OfOneFlow, FlowFormPage):
    """The next version of a flow."""

    title = gettext_lazy("Edit flow")
    submit_label = gettext_lazy("Save")

    def form_kwargs(self) -> dict[str, Any]:
        return {**super().form_kwargs(), "fixed_queue": True}

    def initial(self) -> Mapping[str, Any]:
        version = self.object.version
        node = version.document["nodes"][0]["name"]
        return from_document(version.document, version.resolved[node]["volumes"])

    def submit(self, data: dict[str, Any]) -> str:
        flow: Flow = self.object
        assert flow.version is not None
        document = to_document(data, flow.version.document)
        try:
            services.update_flow(actor=self.actor, flow=flow, document=document)
        except PortalError as error:
            raise self.put_document_errors(error, document) from error
        return flow.get_absolute_url()


class YamlForm(forms.Form):
    """The whole document as text."""

    document = forms.CharField(
        label=gettext_lazy("Document"),
        max_length=200_000,
        widget=forms.Textarea(attrs={"rows": 28, "class": "mono", "spellcheck": "false"}),
    )


class EditYaml(OfOneFlow):
    """The document as YAML, for what the form does not show."""

    section = "flows"
    styles = STYLES
    title = gettext_lazy("Edit flow as YAML")
    form = YamlForm
    submit_label = gettext_lazy("Save")

    def initial(self) -> Mapping[str, Any]:
        version = self.object.version
        return {"document": rendering.dump(stored(version.document).as_json()) if version is not None else ""}

    def submit(self, data: dict[str, Any]) -> str:
        flow: Flow = self.object
        try:
            document = yaml.safe_load(data["document"])
        except (yaml.YAMLError, RecursionError) as error:
            mark = getattr(error, "problem_mark", None)
            line = mark.line + 1 if mark is not None else 1
            text = _("This is not valid YAML (line %(line)d).") % {"line": line}
            raise Invalid(text, code="yaml_invalid", errors={"document": text}) from error
        try:
            services.update_flow(actor=self.actor, flow=flow, document=document)
        except Invalid as error:
            text = "; ".join(f"{place}: {why}" for place, why in error.errors.items())
            raise Invalid(error.detail, code=error.code, next=error.next, errors={"document": text}) from error
        return flow.get_absolute_url()


class Panel(FlowFormPage):
    """The live panel: next five times, will it run, the same by other ways."""

    def get(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        raise NotFound()

    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        """Answer for whatever is typed so far."""
        return self.show("flows/panel.html", rendering.panel(request.POST.dict(), self.form_kwargs()))


def _chosen(rows: Sequence[Any], wanted: str) -> str:
    """The name of the row of that name or id, else of the first row."""
    found = next((row for row in rows if wanted in {row.name, str(row.pk)}), rows[0] if rows else None)
    return found.name if found is not None else ""
