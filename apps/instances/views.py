"""Pages of dev instances."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from django import forms
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from apps.clusters import events
from apps.clusters.selectors import limits_are_soft
from apps.core.context import QUEUE_COOKIE
from apps.core.errors import NotFound
from apps.core.manifests import yaml_tab
from apps.core.pages import (
    Action,
    ActionPage,
    Column,
    FilterField,
    FormPage,
    ObjectPage,
    Tab,
    by_state,
    find,
    history_tab,
)
from apps.instances import (
    buttons,
    changing,
    choices,
    editor,
    entering,
    entrances,
    option_forms,
    options,
    rendering,
    rotating,
    selectors,
    services,
    ssh,
    stages,
    startlog,
    startup,
)
from apps.instances.forms import InstanceForm
from apps.instances.lifetime import keeping, shown
from apps.instances.models import Instance
from apps.instances.spec import objects_of, url_of
from apps.instances.states import ALIVE, INSTANCE_STATES, LAUNCHED, InstanceState
from apps.storage.models import Volume
from apps.storage.states import VolumeState
from apps.tenants.lists import QueuedList, by_owner, by_queue, to_work_in

S = InstanceState


class InstanceList(QueuedList):
    """All instances that the person may know of."""

    section = "instances"
    title = gettext_lazy("Instances")
    kind = "instance"
    spec = selectors.LIST
    row_template = "instances/row.html"
    new_label, new_url = gettext_lazy("New instance"), "instances:new"
    empty_title = gettext_lazy("There is no instance yet.")
    empty_text = gettext_lazy(
        "An instance is a JupyterLab of your own in the cluster, with a home that survives. "
        "Choose an image and a size; it runs within seconds."
    )
    empty_cli = "portalctl instance create --image jupyter --size small"
    columns = (
        Column(label=gettext_lazy("Name"), sort="name"),
        Column(label=gettext_lazy("State"), sort="state"),
        Column(label=gettext_lazy("Queue"), sort="queue", narrow=False),
        Column(label=gettext_lazy("Owner"), sort="owner", narrow=False),
        Column(label=gettext_lazy("Image"), narrow=False),
        Column(label=gettext_lazy("Size"), narrow=False),
        Column(label=gettext_lazy("Ends"), narrow=False),
        Column(label=gettext_lazy("Made"), sort="created", narrow=False),
        Column(label=""),
    )

    def rows(self) -> QuerySet[Instance]:
        return shown.with_ends(selectors.visible(self.actor))

    def prepare(self, rows: Sequence[Instance]) -> None:
        shown.put_ends_on(rows)

    def filters(self) -> Sequence[FilterField]:
        return (
            by_state(INSTANCE_STATES, (state for state in S if state in ALIVE)),
            by_queue(self.actor),
            by_owner(self.actor),
            FilterField(name="text", label=_("Search")),
        )

    def extra(self) -> Mapping[str, Any]:
        return {"actor": self.actor}


# --- one instance ------------------------------------------------------------------------------------------------


def _overview(view: Any, instance: Instance) -> Mapping[str, Any]:
    may_enter = entering.may_enter(view.actor, instance)
    return {
        "stages": stages.rows(instance),
        "options": options.of(instance.options),
        "waiting": changing.waiting(instance),
        "total_s": stages.total_s(instance),
        "mounts": instance.mounted,
        "url": url_of(instance),
        "may_enter": may_enter,
        "lab": entrances.has_lab(instance),
        "lab_why": entrances.sentence(instance),
        "has_key": may_enter and instance.state in LAUNCHED,
        "launched": instance.state in LAUNCHED,
        "is_up": instance.state == S.RUNNING,
        "curl": rendering.curl(instance),
        "pod": instance.pod_name if instance.pod_uid else "",
        "soft_limit": bool(instance.node) and limits_are_soft(instance.queue.cluster_id, instance.node),
    }


class InstanceDetail(ObjectPage):
    """What it is, where it runs, what it uses, how one gets in."""

    section = "instances"
    kind = "instance"
    header_template = "instances/header.html"
    template = "instances/object.html"
    scripts = ("instances/log.js",)
    styles = ("instances/instances.css",)
    tabs: ClassVar[Sequence[Tab]] = (
        Tab(slug="overview", label=gettext_lazy("Overview"), template="instances/tab_overview.html", context=_overview),
        Tab(slug="log", label=gettext_lazy("Log"), template="instances/tab_log.html"),
        events.tab(
            empty=gettext_lazy(
                "The cluster has said nothing about the last start. What it does for the next one stands here, step "
                "by step."
            )
        ),
        yaml_tab(objects_of, note=gettext_lazy("What the portal writes to the cluster, with the key left out.")),
        history_tab(),
    )

    def rows(self) -> QuerySet[Instance]:
        return selectors.visible_ever(self.actor)

    def actions(self, obj: Instance) -> Sequence[Action]:
        return buttons.of(self.actor, obj)


# --- forms -------------------------------------------------------------------------------------------------------


class NewInstance(FormPage):
    """Image, size, queue; the panel beside it says whether it will run."""

    section = "instances"
    title = gettext_lazy("New instance")
    form = InstanceForm
    template = "instances/new.html"
    styles = ("instances/instances.css",)
    scripts = ("instances/form.js",)
    submit_label = gettext_lazy("Create")

    def initial(self) -> Mapping[str, Any]:
        wanted = self.request.GET
        kwargs = self.form_kwargs()
        found = {
            "image": _first(kwargs["images"], choices.instead_of_retired(self.actor, wanted.get("image", ""))),
            "size": _first(kwargs["sizes"], wanted.get("size", "")),
            "queue": _first(kwargs["queues"], wanted.get("queue", "") or self.request.COOKIES.get(QUEUE_COOKIE, "")),
        }
        zone = wanted.get("time_zone", "") or selectors.zone_of(self.actor)
        return {**found, "name": wanted.get("name", ""), "time_zone": zone}

    def form_kwargs(self) -> dict[str, Any]:
        if not hasattr(self, "_choices"):
            self._choices = form_choices(self)
        return self._choices

    def submit(self, data: dict[str, Any]) -> str:
        mounts = [{"volume": data["volume"], "path": data["path"], "read_only": data["read_only"]}]
        made = keeping.create(
            actor=self.actor,
            ends_at=keeping.moment(data["ends"]) if data["ends"] else None,
            id=data["id"],
            name=data["name"],
            image="" if data["own_image"] else data["image"],
            own_image=data["own_image"],
            size=data["size"],
            queue=data["queue"],
            volumes=mounts if data["volume"] else (),
            more=option_forms.given(data),
        )
        return str(made.get_absolute_url())

    @staticmethod
    def put_errors(form: forms.Form, error: Any) -> None:
        """The one volume of the form stands for ``volumes.0``."""
        own = {"at": "ends"}
        plain = {name.removeprefix("volumes.0."): text for name, text in error.errors.items()}
        option_forms.put_errors(form, {own.get(name, name): text for name, text in plain.items()})

    def extra(self) -> Mapping[str, Any]:
        asked = self.request.GET.get("image", "")
        return {"panel_url": reverse("instances:panel"), "notice": choices.retired_notice(self.actor, asked)}


def form_choices(view: Any) -> dict[str, Any]:
    """What the form offers this person."""
    actor = view.actor
    queues = to_work_in(actor)
    volumes = Volume.objects.for_actor(actor).filter(queue__in=queues).select_related("queue").order_by("name")
    return {
        "images": list(choices.images(actor)),
        "sizes": list(choices.sizes(actor)),
        "queues": queues,
        "volumes": list(volumes.exclude(state__in=[VolumeState.DELETING, VolumeState.DELETED])),
    }


def _first(rows: Sequence[Any], wanted: str) -> str:
    """The id of the row of that name or id, else of the first row."""
    chosen = next((row for row in rows if wanted and wanted in {row.name, str(row.pk)}), rows[0] if rows else None)
    return str(chosen.pk) if chosen is not None else ""


class Panel(NewInstance):
    """The live panel of the form: will it run, and the same by other ways."""

    def get(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        raise NotFound()

    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        """Answer for whatever is chosen so far."""
        return self.show(
            "instances/panel.html",
            rendering.panel(self.actor, request.POST, self.form_kwargs(), option_forms.read(request.POST)),
        )


# --- actions -----------------------------------------------------------------------------------------------------


class InstanceAction(ActionPage):
    """A button of an instance."""

    section = "instances"

    def rows(self) -> QuerySet[Instance]:
        return selectors.visible(self.actor)


class Start(InstanceAction):
    """Start it."""

    def act(self, obj: Instance) -> None:
        services.start(actor=self.actor, instance=obj)


class Stop(InstanceAction):
    """Stop it."""

    def act(self, obj: Instance) -> None:
        services.stop(actor=self.actor, instance=obj)


class Restart(InstanceAction):
    """Stop it and start it again."""

    def act(self, obj: Instance) -> None:
        services.restart(actor=self.actor, instance=obj)


class Delete(InstanceAction):
    """Delete it."""

    done = gettext_lazy("It is being deleted. Its home and other volumes stay.")

    def act(self, obj: Instance) -> str:
        services.delete(actor=self.actor, instance=obj)
        return reverse("instances:list")


class RevealKey(InstanceAction):
    """The key in its place on the page; asked for by POST, since each look is audited."""

    def post(self, request: HttpRequest, pk: uuid.UUID) -> HttpResponse:
        key = entering.reveal_key(actor=self.actor, instance=find(self.rows(), pk))
        return self.show_once("instances/key.html", {"key": key.reveal()})


class RotateKey(InstanceAction):
    """Another key while it runs on."""

    done = gettext_lazy("A new key is on its way. The old one is dead as soon as it is there.")

    def act(self, obj: Instance) -> None:
        rotating.rotate_key(actor=self.actor, instance=obj)


class Enter(InstanceAction):
    """A new tab posts here; the answer posts the ticket on to the instance's host, so no address ever holds it."""

    def post(self, request: HttpRequest, pk: uuid.UUID) -> HttpResponse:
        instance = find(self.rows(), pk)
        to_editor = request.POST.get("to") == "editor"
        if to_editor and entering.may_enter(self.actor, instance):
            editor.require(instance)
        entrance = entering.ticket(actor=self.actor, instance=instance)
        onward = editor.PATH if to_editor else ""
        response = self.show_once("instances/enter.html", {"entrance": entrance, "next": onward})
        response["Content-Security-Policy"] = rendering.policy_for(entrance.url)
        return response


class EditorButton(InstanceAction):
    """The button that opens VS Code, or why there is none; asked of the instance after the page stands."""

    def get(self, request: HttpRequest, pk: uuid.UUID) -> HttpResponse:
        """For the owner alone, who is the only one to press it."""
        instance = find(self.rows(), pk)
        if not entering.may_enter(self.actor, instance):
            raise NotFound()
        return self.show("instances/editor.html", {"object": instance, "editor": editor.look(instance)})

    def post(self, request: HttpRequest, pk: uuid.UUID) -> HttpResponse:
        raise NotFound()


class SshState(InstanceAction):
    """Whether sshd runs in the instance, asked when its part of the page stands."""

    def get(self, request: HttpRequest, pk: uuid.UUID) -> HttpResponse:
        """Nothing when it does; the reason when it does not, or that it could not be asked."""
        return self.show("instances/ssh_state.html", ssh.state_of(self.actor, find(self.rows(), pk)))

    def post(self, request: HttpRequest, pk: uuid.UUID) -> HttpResponse:
        raise NotFound()


class StartupState(InstanceAction):
    """How the start-up script ended, asked when its part of the page stands."""

    def get(self, request: HttpRequest, pk: uuid.UUID) -> HttpResponse:
        """For the owner, who can mend it."""
        instance = find(self.rows(), pk)
        if not entering.may_enter(self.actor, instance):
            raise NotFound()
        ending = startup.look(instance)
        said = {"code": ending.code, "timed_out": ending.timed_out, ending.state: True, "object": instance}
        return self.show("instances/startup_state.html", said)

    def post(self, request: HttpRequest, pk: uuid.UUID) -> HttpResponse:
        raise NotFound()


class LogTail(InstanceAction):
    """The end of the pod's log, fetched by the Log tab after the page stands."""

    def get(self, request: HttpRequest, pk: uuid.UUID) -> HttpResponse:
        """Never an error page: what cannot be read is said in the log's place."""
        instance = find(selectors.visible_ever(self.actor), pk)
        return self.show("instances/log_tail.html", {"object": instance, "tail": startlog.read(instance)})

    def post(self, request: HttpRequest, pk: uuid.UUID) -> HttpResponse:
        raise NotFound()


class StartLog(LogTail):
    """The same below the overview while it starts, and when it failed to; nothing else."""

    def get(self, request: HttpRequest, pk: uuid.UUID) -> HttpResponse:
        """With the sentence of its reason above the lines."""
        instance = find(selectors.visible_ever(self.actor), pk)
        starting = startlog.is_starting(instance)
        tail = startlog.read(instance) if starting else startlog.Tail()
        return self.show("instances/start_log.html", {"object": instance, "starting": starting, "tail": tail})
