"""Pages of flows and runs: lists, objects, buttons, and the log."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from apps.core.pages import (
    Action,
    ActionPage,
    Choice,
    Column,
    FilterField,
    ListPage,
    ObjectPage,
    Tab,
    find,
    history_tab,
    url,
)
from apps.flows import forecast, masking, rendering, selectors, services, silence
from apps.flows.api import offset_of
from apps.flows.forms import command_line
from apps.flows.models import Attempt, Flow, FlowVersion, Run, Trigger
from apps.flows.states import FLOW_STATES, RUN_STATES, FlowState, RunState
from apps.tenants import access
from apps.tenants import selectors as tenants
from apps.tenants.models import Role

GRID_RUNS = 60


def queue_choices(actor: Any) -> list[Choice]:
    """The queues to filter by."""
    names = tenants.usable_queues(actor).values_list("name", flat=True)
    return [Choice(value=name, label=name) for name in names]


# --- flows -----------------------------------------------------------------------------------------------------------


class FlowList(ListPage):
    """All flows that the person may know of."""

    section = "flows"
    title = gettext_lazy("Flows")
    kind = "flow"
    spec = selectors.FLOW_LIST
    row_template = "flows/flow_row.html"
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
        Column(label=gettext_lazy("Next run")),
        Column(label=gettext_lazy("Queue"), sort="queue", narrow=False),
        Column(label=gettext_lazy("Owner"), sort="owner", narrow=False),
        Column(label=""),
    )

    def rows(self) -> QuerySet[Flow]:
        return selectors.with_last_runs(selectors.flows(self.actor))

    def filters(self) -> Sequence[FilterField]:
        states = [Choice(value=s, label=FLOW_STATES.labels[s]) for s in (FlowState.ACTIVE, FlowState.PAUSED)]
        return (
            FilterField(name="state", label=_("State"), choices=states),
            FilterField(name="queue", label=_("Queue"), choices=queue_choices(self.actor)),
            FilterField(name="owner", label=_("Owner"), choices=[Choice(value=self.actor.name, label=_("mine"))]),
            FilterField(name="text", label=_("Search")),
        )

    def actions(self) -> Sequence[Action]:
        return (
            Action(verb="create", label=_("New flow"), url=reverse("flows:new"), icon="plus", post=False, primary=True),
        )

    def show(self, template: str, context: Mapping[str, Any], *, status: int = 200) -> HttpResponse:
        """With the app's own style sheet on whole pages."""
        own = {"core/list.html": "flows/list.html"}
        return super().show(own.get(template, template), context, status=status)


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
        "has_webhook": any(rule["channel"] == "webhook" for rule in document["alerts"]),
    }


def _flow_runs(view: Any, flow: Flow) -> Mapping[str, Any]:
    return {"runs": selectors.runs(view.actor).filter(flow=flow).order_by("-created_at")[:50]}


def _flow_yaml(view: Any, flow: Flow) -> Mapping[str, Any]:
    assert flow.version is not None
    versions = FlowVersion.objects.as_system().filter(flow=flow).select_related("author").order_by("-number")[:50]
    may_act = access.may_act_on(view.actor, flow.queue, flow.owner_id)
    document = flow.version.document if may_act else masking.document(flow.version.document)
    return {"yaml": rendering.dump(document), "versions": versions}


class FlowDetail(ObjectPage):
    """When it fires, what it runs, how it went."""

    section = "flows"
    kind = "flow"
    tabs: ClassVar[Sequence[Tab]] = (
        Tab(
            slug="overview",
            label=gettext_lazy("Overview"),
            template="flows/flow_overview.html",
            context=_flow_overview,
        ),
        Tab(slug="runs", label=gettext_lazy("Runs"), template="flows/flow_runs.html", context=_flow_runs),
        Tab(slug="yaml", label=gettext_lazy("YAML"), template="flows/flow_yaml.html", context=_flow_yaml),
        history_tab(),
    )

    def rows(self) -> QuerySet[Flow]:
        return selectors.any_flow(self.actor)

    def actions(self, obj: Flow) -> Sequence[Action]:
        return flow_actions(self, obj)

    def show(self, template: str, context: Mapping[str, Any], *, status: int = 200) -> HttpResponse:
        """With the app's own style sheet on whole pages."""
        own = {"core/object.html": "flows/object.html"}
        return super().show(own.get(template, template), context, status=status)


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


# --- runs ------------------------------------------------------------------------------------------------------------


class RunList(ListPage):
    """All runs that the person may know of, the newest first."""

    section = "runs"
    title = gettext_lazy("Runs")
    kind = "run"
    spec = selectors.RUN_LIST
    row_template = "flows/run_row.html"
    empty_title = gettext_lazy("Nothing has run yet.")
    empty_text = gettext_lazy("A run is one execution of a flow. Make a flow, then run it or let the clock do it.")
    empty_cli = "portalctl flow run NAME --wait --logs"
    columns = (
        Column(label=gettext_lazy("Flow"), sort="flow"),
        Column(label=gettext_lazy("State"), sort="state"),
        Column(label=gettext_lazy("Started by"), narrow=False),
        Column(label=gettext_lazy("Made"), sort="created"),
        Column(label=gettext_lazy("Took"), numeric=True, narrow=False),
        Column(label=gettext_lazy("Queue"), sort="queue", narrow=False),
    )

    def rows(self) -> QuerySet[Run]:
        return selectors.runs(self.actor)

    def filters(self) -> Sequence[FilterField]:
        return (
            FilterField(
                name="state",
                label=_("State"),
                choices=[Choice(value=state, label=RUN_STATES.labels[state]) for state in RunState],
            ),
            FilterField(name="queue", label=_("Queue"), choices=queue_choices(self.actor)),
            FilterField(
                name="trigger",
                label=_("Started by"),
                choices=[Choice(value=value, label=label) for value, label in Trigger.choices],
            ),
            FilterField(name="flow", label=_("Flow (name or id)")),
        )

    def actions(self) -> Sequence[Action]:
        return (Action(verb="flows", label=_("All flows"), url=reverse("flows:list"), icon="git-merge", post=False),)


def _attempts(view: Any, run: Run) -> Mapping[str, Any]:
    """All attempts, and the one whose log is shown: the chosen, else the last."""
    found = list(selectors.attempts(view.actor).filter(run=run).order_by("node", "number"))
    wanted = view.request.GET.get("attempt", "")
    chosen = next((one for one in found if str(one.pk) == wanted), found[-1] if found else None)
    return {"attempts": found, "attempt": chosen}


def _run_overview(view: Any, run: Run) -> Mapping[str, Any]:
    more = _attempts(view, run)
    node = run.version.document["nodes"][0]
    part = rendering.log_part(more["attempt"], 0) if more["attempt"] is not None else {}
    return {**more, **part, "node": node, "command": command_line(node)}


def _run_log(view: Any, run: Run) -> Mapping[str, Any]:
    more = _attempts(view, run)
    part = rendering.log_part(more["attempt"], 0) if more["attempt"] is not None else {}
    return {**more, **part}


def _run_events(view: Any, run: Run) -> Mapping[str, Any]:
    found = _attempts(view, run)["attempts"]
    rows = [
        {**event, "at": parse_datetime(event["at"]), "attempt": attempt.number}
        for attempt in found
        for event in attempt.last_events
    ]
    return {"events": sorted(rows, key=lambda row: row["at"], reverse=True)}


def _run_yaml(view: Any, run: Run) -> Mapping[str, Any]:
    attempt = _attempts(view, run)["attempt"]
    return {"yaml": rendering.pod_yaml(attempt) if attempt is not None else ""}


class RunDetail(ObjectPage):
    """How it went: attempts, log, events."""

    section = "runs"
    kind = "run"
    tabs: ClassVar[Sequence[Tab]] = (
        Tab(slug="overview", label=gettext_lazy("Overview"), template="flows/run_overview.html", context=_run_overview),
        Tab(slug="log", label=gettext_lazy("Log"), template="flows/run_log.html", context=_run_log),
        Tab(slug="events", label=gettext_lazy("Events"), template="flows/run_events.html", context=_run_events),
        Tab(slug="yaml", label=gettext_lazy("YAML"), template="flows/run_yaml.html", context=_run_yaml),
        history_tab(),
    )

    def rows(self) -> QuerySet[Run]:
        return selectors.runs(self.actor)

    def actions(self, obj: Run) -> Sequence[Action]:
        return run_actions(self, obj)

    def get(self, request: HttpRequest, pk: uuid.UUID, tab: str = "") -> HttpResponse:
        """``?part=attempts`` is the table of attempts alone: the log beside it goes on by itself."""
        if request.GET.get("part") == "attempts":
            run = find(self.rows(), pk)
            return self.show("flows/attempts.html", {"object": run, **_attempts(self, run)})
        return super().get(request, pk, tab)

    def show(self, template: str, context: Mapping[str, Any], *, status: int = 200) -> HttpResponse:
        """With the app's own style sheet on whole pages."""
        own = {"core/object.html": "flows/object.html"}
        return super().show(own.get(template, template), context, status=status)


def run_actions(view: Any, run: Run) -> list[Action]:
    """Cancel while it runs, run again afterwards."""
    found: list[Action] = []
    if run.state in RUN_STATES.terminal:
        if access.may(view.actor, run.queue, Role.MEMBER) and run.flow.state != FlowState.DELETED:
            found.append(
                Action(verb="rerun", label=_("Run again"), url=url("flows:rerun", run), icon="refresh", primary=True)
            )
    elif access.may_act_on(view.actor, run.queue, run.starter_id or run.flow.owner_id):
        lost = _("The program is ended (SIGTERM, then SIGKILL); what it has not written is lost. The log stays.")
        cancel = url("flows:cancel", run)
        if run.state != RunState.CANCELLING:
            found.append(Action(verb="cancel", label=_("Cancel"), url=cancel, icon="player-stop", lost=lost))
    if run.state not in RUN_STATES.terminal and access.may(view.actor, run.queue, Role.ADMIN):
        found += _give_up(run)
    found.append(
        Action(verb="flow", label=_("Open the flow"), url=run.flow.get_absolute_url(), icon="git-merge", post=False)
    )
    return found


def _give_up(run: Run) -> list[Action]:
    """For administrators, while a silent node holds the end back."""
    if silence.waits_for_node(run) is None:
        return []
    lost = _(
        "The attempt counts as lost and its room is free again, though the program may still run on the silent node. "
        "An attempt that follows may then write to the same volume at the same time."
    )
    give_up = url("flows:give-up", run)
    return [Action(verb="give-up", label=_("Give up waiting"), url=give_up, icon="plug-off", lost=lost)]


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

    def post(self, request: HttpRequest, pk: uuid.UUID) -> HttpResponse:
        secret = services.rotate_secret(actor=self.actor, flow=find(self.rows(), pk))
        response = self.show("flows/secret.html", {"secret": secret})
        response["Cache-Control"] = "no-store"
        return response


class RunAction(ActionPage):
    """A button of a run."""

    section = "runs"

    def rows(self) -> QuerySet[Run]:
        return selectors.runs(self.actor)


class Cancel(RunAction):
    """End it."""

    def act(self, obj: Run) -> None:
        services.cancel(actor=self.actor, run=obj)


class GiveUp(RunAction):
    """End the attempt that a silent node holds back."""

    done = gettext_lazy("Nobody waits for the node any more: the attempt counts as lost.")

    def act(self, obj: Run) -> None:
        silence.give_up_run(actor=self.actor, run=obj)


class Rerun(RunAction):
    """Run it again and show the new run."""

    def act(self, obj: Run) -> str:
        return services.rerun(actor=self.actor, run=obj).get_absolute_url()


class LogPart(RunAction):
    """The next piece of a log; it asks for the one after it by itself."""

    def get(self, request: HttpRequest, pk: uuid.UUID) -> HttpResponse:
        """From ``?offset=`` on."""
        attempt: Attempt = find(selectors.attempts(self.actor), pk)
        offset = offset_of(request.GET.get("offset"))
        return self.show("flows/log_part.html", rendering.log_part(attempt, offset))
