"""Pages of queues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from apps.clusters import events as cluster_events
from apps.clusters import selectors as clusters
from apps.clusters.models import Cluster
from apps.clusters.states import ClusterState
from apps.core.adminpages import AdminPage
from apps.core.manifests import yaml_tab
from apps.core.pages import (
    Action,
    ActionPage,
    Column,
    FilterField,
    FormPage,
    ListPage,
    ObjectFormPage,
    ObjectPage,
    PortalPage,
    Tab,
    by_state,
    find,
    history_tab,
    url,
)
from apps.tenants import access, checker, events, holders, ledger, quotas, selectors
from apps.tenants.forms import QueueForm, QuotaForm
from apps.tenants.models import Queue, Team
from apps.tenants.quotas import Quota
from apps.tenants.reconcile import objects_of
from apps.tenants.states import QUEUE_STATES, QueueState


class QueueList(ListPage):
    """Queues with what is used of each."""

    section = "queues"
    title = gettext_lazy("Queues")
    kind = "queue"
    spec = selectors.QUEUE_LIST
    row_template = "tenants/queue_row.html"
    new_label, new_url = gettext_lazy("New queue"), "tenants:queue-new"
    empty_title = gettext_lazy("You are in no team that has a queue.")
    empty_text = gettext_lazy(
        "A queue is a share of a cluster for a team: so much CPU, memory, GPUs and storage. An administrator makes it."
    )
    columns = (
        Column(label=gettext_lazy("Name"), sort="name"),
        Column(label=gettext_lazy("State")),
        Column(label=gettext_lazy("Team"), sort="team", narrow=False),
        Column(label=gettext_lazy("Cluster"), narrow=False),
        Column(label=gettext_lazy("In use")),
    )

    def rows(self) -> QuerySet[Queue]:
        return selectors.queues(self.actor)

    def prepare(self, rows: Sequence[Queue]) -> None:
        found = ledger.usages(rows)
        for row in rows:
            row.usage = found[row.pk]  # type: ignore[attr-defined]

    def filters(self) -> Sequence[FilterField]:
        return (
            by_state(QUEUE_STATES, (state for state in QueueState if state != QueueState.DELETED)),
            FilterField(name="name", label=_("Search")),
        )


def _overview(view: Any, queue: Queue) -> Mapping[str, Any]:
    return {"usage": ledger.usage(queue), "role": access.role_in(view.actor, queue)}


def _holders(view: Any, queue: Queue) -> Mapping[str, Any]:
    return {"holders": holders.of(queue, view.actor), "most": holders.LIMIT}


class QueuePage(ObjectPage):
    """A queue: what is used, who holds it, what happened."""

    section = "queues"
    kind = "queue"
    live_kinds = "instance volume run"
    tabs = (
        Tab(slug="overview", label=gettext_lazy("Overview"), template="tenants/queue_overview.html", context=_overview),
        Tab(slug="holders", label=gettext_lazy("Holders"), template="tenants/queue_holders.html", context=_holders),
        Tab(slug="check", label=gettext_lazy("Check"), template="tenants/queue_check.html"),
        cluster_events.tab(
            find=lambda view, queue: events.of(queue, view.actor),
            empty=gettext_lazy(
                "The cluster has said nothing about what lives in this queue. What it reports of its instances, runs "
                "and volumes stands here."
            ),
        ),
        yaml_tab(objects_of),
        history_tab(),
    )

    def rows(self) -> QuerySet[Queue]:
        return selectors.queues_ever(self.actor)

    def actions(self, obj: Queue) -> Sequence[Action]:
        if not self.actor.is_admin or obj.state in (QueueState.DELETING, QueueState.DELETED):
            return ()
        return (
            Action(
                verb="quota",
                label=_("Change quota"),
                url=url("tenants:queue-quota", obj),
                icon="adjustments",
                post=False,
                primary=True,
            ),
            Action(
                verb="delete",
                label=_("Delete"),
                url=url("tenants:queue-delete", obj),
                icon="trash",
                lost=_(
                    "The queue “%(name)s” and its namespace are deleted. This is only possible when nothing lives in "
                    "it any more."
                )
                % {"name": obj.name},
            ),
        )


class QueueCheck(PortalPage):
    """The comparison itself, fetched by its tab, because it asks the cluster and may take seconds."""

    section = "queues"

    def get(self, request: HttpRequest, pk: UUID) -> HttpResponse:
        """Ledger, quota and pods beside each other."""
        queue: Queue = find(selectors.queues(self.actor), pk)
        may = self.actor.is_admin
        return self.show(
            "tenants/queue_check_result.html", {"object": queue, "report": checker.check(queue), "may": may}
        )


class Recalculate(ActionPage):
    """The button of the check."""

    done = gettext_lazy("The cluster counts anew; look again in a few seconds.")

    def rows(self) -> QuerySet[Queue]:
        return selectors.queues(self.actor)

    def act(self, obj: Queue) -> str:
        quotas.recalculate(actor=self.actor, queue=obj)
        return reverse("tenants:queue-tab", args=[obj.pk, "check"])


class NewQueue(AdminPage, FormPage):
    """A new queue."""

    section = "queues"
    title = gettext_lazy("New queue")
    submit_label = gettext_lazy("Make the queue")
    form = QueueForm

    def form_kwargs(self) -> dict[str, Any]:
        return {
            "teams": list(Team.objects.for_actor(self.actor).order_by("name")),
            # Those that answer first: the first one is proposed.
            "clusters": sorted(
                clusters.clusters(self.actor).order_by("name"), key=lambda row: row.state != ClusterState.CONNECTED
            ),
        }

    def initial(self) -> dict[str, Any]:
        gib = 1 << 30
        return {"cpu_millis": 4000, "memory_bytes": 8 * gib, "storage_bytes": 100 * gib, **self.request.GET.dict()}

    def submit(self, data: dict[str, Any]) -> str:
        team: Team = find(Team.objects.for_actor(self.actor), data.pop("team"))
        cluster: Cluster = find(clusters.clusters(self.actor), data.pop("cluster"))
        pk, name = data.pop("id"), data.pop("name")
        queue = quotas.create(actor=self.actor, id=pk, name=name, team=team, cluster=cluster, quota=Quota(**data))
        return queue.get_absolute_url()


class ChangeQuota(AdminPage, ObjectFormPage):
    """The quota of a queue; what is used stands beside it."""

    section = "queues"
    title = gettext_lazy("Change quota")
    form = QuotaForm
    template = "tenants/quota_form.html"

    def rows(self) -> QuerySet[Queue]:
        return selectors.queues(self.actor)

    def initial(self) -> dict[str, Any]:
        return {name: getattr(self.object, name) for name in QuotaForm.base_fields}

    def extra(self) -> Mapping[str, Any]:
        return {"object": self.object, "usage": ledger.usage(self.object)}

    def submit(self, data: dict[str, Any]) -> str:
        data.pop("id")
        return quotas.update(actor=self.actor, queue=self.object, **data).get_absolute_url()


class DeleteQueue(ActionPage):
    """The button."""

    done = gettext_lazy("The queue is being deleted.")

    def rows(self) -> QuerySet[Queue]:
        return selectors.queues(self.actor)

    def act(self, obj: Queue) -> None:
        quotas.delete(actor=self.actor, queue=obj)
