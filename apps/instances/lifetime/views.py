"""Buttons of an instance's page that are about its lifetime."""

from __future__ import annotations

from django.db.models import QuerySet
from django.utils.translation import gettext_lazy

from apps.core.pages import ActionPage
from apps.instances import selectors
from apps.instances.lifetime import keeping
from apps.instances.models import Instance


class _OfInstance(ActionPage):
    section = "instances"

    def rows(self) -> QuerySet[Instance]:
        return selectors.visible(self.actor)


class Keep(_OfInstance):
    """Neither idleness nor its end stops it for so long; an empty ``until`` takes that back."""

    done = gettext_lazy("It is said until when it is kept.")

    def act(self, obj: Instance) -> None:
        text = self.request.POST.get("until")
        until = keeping.moment(text or "-") if text != "" else None
        keeping.keep(actor=self.actor, instance=obj, until=until)


class SetEnd(_OfInstance):
    """When it ends; an empty ``at``: no end of its own."""

    done = gettext_lazy("Its end is set.")

    def act(self, obj: Instance) -> None:
        text = self.request.POST.get("at")
        keeping.set_end(actor=self.actor, instance=obj, at=keeping.moment(text or "-") if text != "" else None)
