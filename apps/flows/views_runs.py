"""Pages of runs: list, object, buttons, and the log."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from apps.clusters import events
from apps.core.pages import (
    Action,
    ActionPage,
    Choice,
    Column,
    FilterField,
    ListPage,
    ObjectPage,
    Tab,
    by_state,
    find,
    history_tab,
    url,
)
from apps.flows import rendering, selectors, services, silence
from apps.flows.api import offset_of
from apps.flows.forms import command_line
from apps.flows.models import Attempt, Run, Trigger
from apps.flows.states import RUN_STATES, FlowState, RunState
from apps.flows.views import OBJECT_SCRIPTS, STYLES
from apps.tenants import access
from apps.tenants.lists import by_queue
from apps.tenants.models import Role


class RunList(ListPage):
    """All runs that the person may know of, the newest first."""

    section = "runs"
    styles = STYLES
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
            by_state(RUN_STATES, RunState),
            by_queue(self.actor),
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


def _run_events(view: Any, run: Run) -> list[events.Row]:
    return selectors.events_of_run(_attempts(view, run)["attempts"])


def _run_yaml(view: Any, run: Run) -> Mapping[str, Any]:
    attempt = _attempts(view, run)["attempt"]
    return {"yaml": rendering.pod_yaml(attempt) if attempt is not None else ""}


class RunDetail(ObjectPage):
    """How it went: attempts, log, events."""

    section = "runs"
    kind = "run"
    styles = STYLES
    scripts = OBJECT_SCRIPTS
    tabs: ClassVar[Sequence[Tab]] = (
        Tab(slug="overview", label=gettext_lazy("Overview"), template="flows/run_overview.html", context=_run_overview),
        Tab(slug="log", label=gettext_lazy("Log"), template="flows/run_log.html", context=_run_log),
        events.tab(
            find=_run_events,
            empty=gettext_lazy(
                "The cluster has said nothing about this run. What happens to its pods, from finding a place to the "
                "end, stands here."
            ),
        ),
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
