"""The form with which administrators say how long instances run: of one team, or of all that say nothing else."""

from __future__ import annotations

from typing import Any

from django import forms
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from apps.clusters.services import require_admin
from apps.core.adminpages import AdminPage
from apps.core.pages import FormPage, ObjectFormPage
from apps.tenants import lifetimes, selectors
from apps.tenants.lifetimes import BUILT_IN, Policies
from apps.tenants.models import Team


class LifetimeForm(forms.Form):
    """Four times; an empty one means the default."""

    idle_minutes = forms.IntegerField(
        label=gettext_lazy("Stopped when idle for (minutes)"), required=False, min_value=0
    )
    warning_minutes = forms.IntegerField(label=gettext_lazy("Warned before (minutes)"), required=False, min_value=0)
    lease_hours = forms.IntegerField(
        label=gettext_lazy("Longest time after a start (hours)"), required=False, min_value=0
    )
    keep_hours = forms.IntegerField(
        label=gettext_lazy("Longest “keep it running” (hours)"), required=False, min_value=0
    )

    def __init__(self, *args: Any, default: dict[str, int], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        zero = {
            "idle_minutes": _("0: never stopped for being idle."),
            "lease_hours": _("0: without an end."),
            "keep_hours": _("0: not allowed."),
        }
        for name, field in self.fields.items():
            hint = _("Left empty, it is %(value)d.") % {"value": default[name]}
            field.help_text = " ".join(part for part in (hint, zero.get(name, "")) if part)


def _chosen(data: dict[str, Any]) -> dict[str, int | None]:
    return {name: data[name] for name in BUILT_IN}


class TeamLifetime(ObjectFormPage):
    """Of one team."""

    section = "teams"
    title = gettext_lazy("How long instances run")
    form = LifetimeForm

    def rows(self) -> Any:
        return selectors.teams(self.actor)

    def allow(self, obj: Team) -> None:
        require_admin(self.actor)

    def initial(self) -> dict[str, Any]:
        return Policies().own(self.object.pk)

    def form_kwargs(self) -> dict[str, Any]:
        return {"default": Policies().values(None)}

    def submit(self, data: dict[str, Any]) -> str:
        lifetimes.set_rule(actor=self.actor, team=self.object, **_chosen(data))
        return str(self.object.get_absolute_url())


class DefaultLifetime(AdminPage, FormPage):
    """Of all teams that have no rule of their own."""

    section = "teams"
    title = gettext_lazy("How long instances run, by default")
    form = LifetimeForm

    def initial(self) -> dict[str, Any]:
        return Policies().own(None)

    def form_kwargs(self) -> dict[str, Any]:
        return {"default": dict(BUILT_IN)}

    def submit(self, data: dict[str, Any]) -> str:
        lifetimes.set_rule(actor=self.actor, team=None, **_chosen(data))
        return reverse("tenants:teams")
