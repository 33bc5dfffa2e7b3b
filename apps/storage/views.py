"""Pages of volumes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db.models import QuerySet
from django.utils.functional import cached_property
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, pgettext_lazy

from apps.clusters import events
from apps.core import quantities
from apps.core.context import QUEUE_COOKIE
from apps.core.manifests import yaml_tab
from apps.core.pages import (
    Action,
    ActionPage,
    Choice,
    Column,
    FilterField,
    FormPage,
    ObjectFormPage,
    ObjectPage,
    Tab,
    by_state,
    find,
    history_tab,
    url,
)
from apps.storage import selectors, services, uses
from apps.storage.forms import ExpandForm, VolumeForm
from apps.storage.models import Volume, VolumeKind
from apps.storage.reconcile import objects_of
from apps.storage.states import VOLUME_STATES, VolumeState
from apps.tenants import access, ledger
from apps.tenants import selectors as tenants
from apps.tenants.lists import QueuedList, by_owner, by_queue, to_work_in
from apps.tenants.models import Queue


class VolumeList(QueuedList):
    """Volumes that the person may know of."""

    section = "volumes"
    title = gettext_lazy("Volumes")
    kind = "volume"
    spec = selectors.VOLUME_LIST
    row_template = "storage/volume_row.html"
    new_label, new_url = gettext_lazy("New volume"), "storage:new"
    empty_title = gettext_lazy("There is no volume yet.")
    empty_text = gettext_lazy(
        "Your first instance in a queue makes a home for you. A data volume holds what several instances and flows use."
    )
    empty_cli = "portalctl volume create imagenet --size 10Gi"
    columns = (
        Column(label=gettext_lazy("Name"), sort="name"),
        Column(label=gettext_lazy("State")),
        Column(label=gettext_lazy("Kind"), narrow=False),
        Column(label=gettext_lazy("Queue"), narrow=False),
        Column(label=gettext_lazy("Owner"), narrow=False),
        Column(label=pgettext_lazy("volume", "Size"), sort="size", numeric=True),
        Column(label=gettext_lazy("Made"), sort="created", narrow=False),
    )

    def rows(self) -> QuerySet[Volume]:
        return selectors.volumes(self.actor)

    def filters(self) -> Sequence[FilterField]:
        kinds = [Choice(value=value, label=label) for value, label in VolumeKind.choices]
        return (
            by_state(VOLUME_STATES, (state for state in VolumeState if state != VolumeState.DELETED)),
            FilterField(name="kind", label=_("Kind"), choices=kinds),
            by_queue(self.actor),
            by_owner(self.actor),
            FilterField(name="name", label=_("Search")),
        )


def _overview(view: Any, volume: Volume) -> Mapping[str, Any]:
    return {"uses": view.uses_of(volume)}


class VolumePage(ObjectPage):
    """A volume: what it is and what mounts it."""

    section = "volumes"
    kind = "volume"
    tabs = (
        Tab(
            slug="overview", label=gettext_lazy("Overview"), template="storage/volume_overview.html", context=_overview
        ),
        events.tab(
            empty=gettext_lazy(
                "The cluster has said nothing about this volume. What it reports while storage is made, grown or "
                "refused stands here."
            )
        ),
        yaml_tab(objects_of),
        history_tab(),
    )

    def rows(self) -> QuerySet[Volume]:
        return selectors.volumes_ever(self.actor)

    def uses_of(self, obj: Volume) -> list[uses.Use]:
        """What mounts it, asked once for the button and for the tab."""
        if not hasattr(self, "_uses"):
            self._uses = uses.of(obj.pk)
        return self._uses

    def actions(self, obj: Volume) -> Sequence[Action]:
        going = obj.state in (VolumeState.DELETING, VolumeState.DELETED)
        if going or not access.may_act_on(self.actor, obj.queue, obj.owner_id):
            return ()
        mounted = self.uses_of(obj)
        return (
            Action(
                verb="expand",
                label=_("Make larger"),
                url=url("storage:expand", obj),
                icon="arrows-maximize",
                post=False,
                primary=True,
            ),
            Action(
                verb="delete",
                label=_("Delete"),
                url=url("storage:delete", obj),
                icon="trash",
                lost=lost(obj),
                enabled=not mounted,
                why=_("used by %(uses)s") % {"uses": ", ".join(use.label for use in mounted[:3])} if mounted else "",
            ),
        )


def lost(volume: Volume) -> str:
    """What deleting takes away."""
    params = {"name": volume.name, "size": quantities.size(volume.size_bytes)}
    if volume.kind == VolumeKind.HOME:
        return _(
            "The home “%(name)s” (%(size)s) and every file in it are deleted for good. "
            "The next instance in this queue gets a new, empty one."
        ) % params  # fmt: skip
    return _("The volume “%(name)s” (%(size)s) and every file on it are deleted for good.") % params


class NewVolume(FormPage):
    """A new data volume; room in the queues stands beside it."""

    section = "volumes"
    title = gettext_lazy("New volume")
    submit_label = gettext_lazy("Make the volume")
    form = VolumeForm
    template = "storage/volume_form.html"

    @cached_property
    def queues(self) -> list[Queue]:
        """Where it may be made."""
        return to_work_in(self.actor)

    def form_kwargs(self) -> dict[str, Any]:
        return {"queues": self.queues}

    def initial(self) -> dict[str, Any]:
        wanted = self.request.GET.get("queue") or self.request.COOKIES.get(QUEUE_COOKIE, "")
        chosen = next((queue for queue in self.queues if wanted in {queue.name, str(queue.pk)}), None)
        return {"size_bytes": 10 << 30, **({"queue": str(chosen.pk)} if chosen else {})}

    def extra(self) -> Mapping[str, Any]:
        queues = self.queues
        usages = ledger.usages(queues)
        return {"rooms": [(queue, usages[queue.pk].shares[ledger.STORAGE]) for queue in queues]}

    def submit(self, data: dict[str, Any]) -> str:
        queue: Queue = find(tenants.queues(self.actor), data.pop("queue"))
        return services.create(actor=self.actor, queue=queue, **data).get_absolute_url()


class ExpandVolume(ObjectFormPage):
    """A larger size."""

    section = "volumes"
    title = gettext_lazy("Make larger")
    form = ExpandForm
    template = "storage/volume_form.html"

    def rows(self) -> QuerySet[Volume]:
        return selectors.volumes(self.actor)

    def allow(self, obj: Volume) -> None:
        access.require_act_on(self.actor, obj.queue, obj.owner_id)

    def initial(self) -> dict[str, Any]:
        return {"size_bytes": self.object.size_bytes}

    def extra(self) -> Mapping[str, Any]:
        queue = self.object.queue
        return {"rooms": [(queue, ledger.usage(queue).shares[ledger.STORAGE])]}

    def submit(self, data: dict[str, Any]) -> str:
        volume = services.expand(actor=self.actor, volume=self.object, size_bytes=data["size_bytes"])
        return volume.get_absolute_url()


class DeleteVolume(ActionPage):
    """The button."""

    done = gettext_lazy("The volume is being deleted.")

    def rows(self) -> QuerySet[Volume]:
        return selectors.volumes(self.actor)

    def act(self, obj: Volume) -> None:
        services.delete(actor=self.actor, volume=obj)
