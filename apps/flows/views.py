"""Pages of flows: list, object, buttons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar
from uuid import UUID

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from apps.clusters import events
from apps.core.pages import (
    Action,
    ActionPage,
    Column,
    FilterField,
    ObjectPage,
    Tab,
    by_state,
    find,
    history_tab,
    url,
)
from apps.flows import forecast, masking, rendering, selectors, services
from apps.flows.document import stored
from apps.flows.forms import command_line
from apps.flows.models import Flow, FlowVersion
from apps.flows.states import FLOW_STATES, FlowState
from apps.tenants import access
from apps.tenants.lists import QueuedList, by_owner, by_queue
from apps.tenants.models import Role

GRID_RUNS = 60
STYLES = ("flows/flows.css",)
OBJECT_SCRIPTS = ("flows/log.js",)
JUST_MADE = "flow-just-made"
"""The session's key for the flow whose webhook secret its maker sees on the next page, this once."""


# --- flows -----------------------------------------------------------------------------------------------------------


class FlowList(QueuedList):
    """All flows that the person may know of."""

    section = "flows"
    styles = STYLES
    title = gettext_lazy("Flows")
    kind = "flow"
    spec = selectors.FLOW_LIST
    row_template = "flows/flow_row.html"
    new_label, new_url = gettext_lazy("New flow"), "flows:new"
    empty_title = gettext_lazy("There is no flow yet.")
    empty_text = gettext_lazy(
        "A flow runs a command in a container of its own, by the clock or at the push of a button, "
        "keeps its log, and tells you when it fails."
    )
    empty_cli = "portalctl flow create -f flow.yaml"
    columns = (
        Column(label=gettext_lazy("Name"), sort="name"),
        Column(label=gettext_lazy("State"), sort="state"),
        Column(label=gettext_lazy("Last runs")),
        Column(label=gettext_lazy("Next run"), narrow=False),
        Column(label=gettext_lazy("Queue"), sort="queue", narrow=False),
        Column(label=gettext_lazy("Owner"), sort="owner", narrow=False),
        Column(label=""),
    )

    def rows(self) -> QuerySet[Flow]:
        return selectors.with_last_runs(selectors.flows(self.actor))

    def filters(self) -> Sequence[FilterField]:
        return (
            by_state(FLOW_STATES, (FlowState.ACTIVE, FlowState.PAUSED)),
            by_queue(self.actor),
            by_owner(self.actor),
            FilterField(name="text", label=_("Search")),
        )

    def prepare(self, rows: Sequence[Flow]) -> None:
        for row in rows:
            row.may_run = self.acting.may(row.queue)  # type: ignore[attr-defined]


def has_webhook(document: Mapping[str, Any]) -> bool:
    """Whether an alarm of this document goes to a webhook, so that its secret matters."""
    return any(rule["channel"] == "webhook" for rule in document["alerts"])


def _flow_overview(view: Any, flow: Flow) -> Mapping[str, Any]:
    assert flow.version is not None
    document = flow.version.document
    may_act = access.may_act_on(view.actor, flow.queue, flow.owner_id)
    now = timezone.now()
    return {
        "node": document["nodes"][0],
        "command": command_line(document["nodes"][0]),
        "schedules": document["schedules"],
        "alerts": document["alerts"] if may_act else masking.alerts(document["alerts"]),
        "fires": forecast.next_fires(flow, now),
        "grid": selectors.last_runs([flow.pk], limit=GRID_RUNS)[flow.pk],
        "may_act": may_act,
        "has_webhook": has_webhook(document),
    }


def _flow_runs(view: Any, flow: Flow) -> Mapping[str, Any]:
    return {"runs": selectors.runs(view.actor).filter(flow=flow).order_by("-created_at")[:50]}


def _flow_log(view: Any, flow: Flow) -> Mapping[str, Any]:
    """The log of the latest run that has one."""
    attempt = selectors.attempts_of_latest(view.actor, flow=flow).first()
    part = rendering.log_part(attempt, 0) if attempt is not None else {}
    return {"attempt": attempt, "newest": attempt, **part}


def _flow_yaml(view: Any, flow: Flow) -> Mapping[str, Any]:
    assert flow.version is not None
    versions = FlowVersion.objects.as_system().filter(flow=flow).select_related("author").order_by("-number")[:50]
    may_act = access.may_act_on(view.actor, flow.queue, flow.owner_id)
    document = stored(flow.version.document).as_json()  # the database keeps no order of keys
    document = document if may_act else masking.document(document)
    return {"yaml": rendering.dump(document), "versions": versions}


class FlowDetail(ObjectPage):
    """When it fires, what it runs, how it went."""

    section = "flows"
    kind = "flow"
    template = "flows/flow.html"
    styles = STYLES
    scripts = OBJECT_SCRIPTS
    tabs: ClassVar[Sequence[Tab]] = (
        Tab(
            slug="overview",
            label=gettext_lazy("Overview"),
            template="flows/flow_overview.html",
            context=_flow_overview,
        ),
        Tab(slug="runs", label=gettext_lazy("Runs"), template="flows/flow_runs.html", context=_flow_runs),
        Tab(slug="log", label=gettext_lazy("Log"), template="flows/flow_log.html", context=_flow_log),
        events.tab(
            find=lambda view, flow: selectors.events_of_flow(view.actor, flow),
            empty=gettext_lazy(
                "The cluster has said nothing about the latest runs of this flow. Run it, and what happens to its pods "
                "stands here."
            ),
        ),
        Tab(slug="yaml", label=gettext_lazy("YAML"), template="flows/flow_yaml.html", context=_flow_yaml),
        history_tab(),
    )

    def rows(self) -> QuerySet[Flow]:
        return selectors.any_flow(self.actor)

    def actions(self, obj: Flow) -> Sequence[Action]:
        return flow_actions(self, obj)

    def get(self, request: HttpRequest, pk: UUID, tab: str = "") -> HttpResponse:
        """``?part=log-top&attempt=<shown>`` is the line above the log: it tells of a newer run."""
        if request.GET.get("part") == "log-top":
            flow = find(self.rows(), pk)
            latest = list(selectors.attempts_of_latest(self.actor, flow=flow))
            wanted = request.GET.get("attempt", "")
            shown = next((one for one in latest if str(one.pk) == wanted), None)
            context = {"object": flow, "attempt": shown, "newest": latest[0] if latest else None}
            return self.show("flows/flow_log_top.html", context)
        return super().get(request, pk, tab)

    def show(self, template: str, context: Mapping[str, Any], *, status: int = 200) -> HttpResponse:
        """The whole page to whom has just made the flow: with its webhook secret, this once."""
        flow = context.get("object")
        if template != self.template or self.request.session.get(JUST_MADE) != str(getattr(flow, "pk", "")):
            return super().show(template, context, status=status)
        assert isinstance(flow, Flow)
        del self.request.session[JUST_MADE]
        return self.show_once(template, {**context, "secret": flow.webhook_secret.reveal()})


def flow_actions(view: Any, flow: Flow) -> list[Action]:
    """The buttons that this person has in this state; the first one is the main one."""
    if flow.state == FlowState.DELETED:
        return []
    found: list[Action] = []
    if access.may(view.actor, flow.queue, Role.MEMBER):
        found.append(
            Action(verb="run", label=_("Run now"), url=url("flows:run-now", flow), icon="player-play", primary=True)
        )
    if not access.may_act_on(view.actor, flow.queue, flow.owner_id):
        return found
    found.append(Action(verb="edit", label=_("Edit"), url=url("flows:edit", flow), icon="pencil", post=False))
    found.append(
        Action(verb="edit-yaml", label=_("Edit as YAML"), url=url("flows:edit-yaml", flow), icon="code", post=False)
    )
    if flow.state == FlowState.ACTIVE:
        found.append(Action(verb="pause", label=_("Pause"), url=url("flows:pause", flow), icon="player-pause"))
    else:
        found.append(Action(verb="resume", label=_("Resume"), url=url("flows:resume", flow), icon="player-play"))
    found.append(
        Action(
            verb="delete",
            label=_("Delete"),
            url=url("flows:delete", flow),
            icon="trash",
            lost=_("“%(name)s” fires no more and what runs of it is cancelled. Past runs and their logs stay readable.")
            % {"name": flow.name},
        )
    )
    return found


# --- buttons ---------------------------------------------------------------------------------------------------------


class FlowAction(ActionPage):
    """A button of a flow."""

    section = "flows"

    def rows(self) -> QuerySet[Flow]:
        return selectors.flows(self.actor)


class RunNow(FlowAction):
    """Start a run and show it."""

    def act(self, obj: Flow) -> str:
        return services.run_now(actor=self.actor, flow=obj).get_absolute_url()


class Pause(FlowAction):
    """Nothing of it fires until it is resumed."""

    def act(self, obj: Flow) -> None:
        services.set_paused(actor=self.actor, flow=obj, paused=True)


class Resume(FlowAction):
    """It fires again from now on."""

    def act(self, obj: Flow) -> None:
        services.set_paused(actor=self.actor, flow=obj, paused=False)


class Delete(FlowAction):
    """Delete it."""

    done = gettext_lazy("The flow is deleted. Its past runs stay readable.")

    def act(self, obj: Flow) -> str:
        services.delete_flow(actor=self.actor, flow=obj)
        return reverse("flows:list")


class NewSecret(FlowAction):
    """A new webhook secret in its place on the page, shown this once."""

    def post(self, request: HttpRequest, pk: UUID) -> HttpResponse:
        secret = services.rotate_secret(actor=self.actor, flow=find(self.rows(), pk))
        return self.show_once("flows/secret.html", {"secret": secret})
