"""Pages of the fleet, for platform administrators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db.models import QuerySet
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from apps.clusters import abandoning, check_words, checks, selectors, services
from apps.clusters.forms import AbandonForm, ClusterForm, KubeconfigForm, SettingsForm
from apps.clusters.models import Cluster
from apps.clusters.states import CLUSTER_STATES, ClusterState
from apps.core.adminpages import AdminPage
from apps.core.pages import (
    Action,
    ActionPage,
    Column,
    FilterField,
    FormPage,
    ListPage,
    ObjectFormPage,
    ObjectPage,
    Tab,
    by_state,
    history_tab,
    url,
)


class ClusterList(AdminPage, ListPage):
    """All clusters with what their nodes have and what is asked of them."""

    section = "clusters"
    title = gettext_lazy("Fleet")
    kind = "cluster"
    spec = selectors.CLUSTER_LIST
    row_template = "clusters/cluster_row.html"
    new_label, new_url = gettext_lazy("Register a cluster"), "clusters:new"
    empty_title = gettext_lazy("There is no cluster yet.")
    empty_text = gettext_lazy("Register one with its kubeconfig; then make queues on it.")
    columns = (
        Column(label=gettext_lazy("Name"), sort="name"),
        Column(label=gettext_lazy("State")),
        Column(label=gettext_lazy("Version"), narrow=False),
        Column(label=gettext_lazy("Nodes"), numeric=True, narrow=False),
        Column(label=gettext_lazy("Asked for")),
        Column(label=gettext_lazy("Last heard of"), narrow=False),
    )

    def rows(self) -> QuerySet[Cluster]:
        return selectors.clusters(self.actor)

    def prepare(self, rows: Sequence[Cluster]) -> None:
        found = selectors.capacities(rows)
        for row in rows:
            row.capacity = found[row.pk]  # type: ignore[attr-defined]

    def filters(self) -> Sequence[FilterField]:
        return (
            by_state(CLUSTER_STATES, (state for state in ClusterState if state != ClusterState.REMOVED)),
            FilterField(name="name", label=_("Search")),
        )


def _overview(view: Any, cluster: Cluster) -> Mapping[str, Any]:
    return {
        "nodes": selectors.nodes(view.actor, cluster),
        "capacity": selectors.capacities([cluster])[cluster.pk],
        "users": services.uses_of(cluster.pk),
    }


def _check(view: Any, cluster: Cluster) -> Mapping[str, Any]:
    row = checks.of(cluster)
    lines = check_words.all_shown(row.lines) if row is not None else []
    return {
        "check": row,
        "lines": lines,
        "missing": sum(line.result == "missing" for line in lines),
        "unknown": sum(line.result == "unknown" for line in lines),
    }


class ClusterPage(AdminPage, ObjectPage):
    """A cluster: nodes, settings, the check."""

    section = "clusters"
    kind = "cluster"
    live_kinds = "clustercheck"
    tabs = (
        Tab(slug="overview", label=gettext_lazy("Overview"), template="clusters/overview.html", context=_overview),
        Tab(slug="check", label=gettext_lazy("Check"), template="clusters/check.html", context=_check),
        history_tab(),
    )

    def rows(self) -> QuerySet[Cluster]:
        return selectors.clusters(self.actor)

    def actions(self, obj: Cluster) -> Sequence[Action]:
        gone = _(
            "The portal deletes every namespace that it made in “%(name)s”, with all data in it, and forgets the "
            "cluster and its credentials. This is only possible when no queue is on it any more."
        ) % {"name": obj.name}  # fmt: skip
        kept = _(
            "The portal forgets the cluster “%(name)s” and its credentials. What it made in the cluster stays there, "
            "and nobody cares for it. This is only possible when no queue is on it any more."
        ) % {"name": obj.name}  # fmt: skip
        remove = url("clusters:remove", obj)
        return (
            Action(
                verb="settings",
                label=_("Settings"),
                url=url("clusters:settings", obj),
                icon="adjustments",
                post=False,
                primary=True,
            ),
            Action(
                verb="credentials",
                label=_("New credentials"),
                url=url("clusters:credentials", obj),
                icon="key",
                post=False,
            ),
            Action(verb="remove", label=_("Remove"), url=remove, icon="trash", lost=gone),
            Action(
                verb="forget",
                label=_("Forget, keep what is in it"),
                url=remove,
                icon="trash-off",
                lost=kept,
                fields={"keep": "true"},
            ),
            *self._given_up(obj),
        )

    def _given_up(self, obj: Cluster) -> Sequence[Action]:
        """The way out when queues are on a cluster that no longer answers, so that they cannot be deleted."""
        if not abandoning.may_be_lost(obj) or not services.uses_of(obj.pk):
            return ()
        return (
            Action(
                verb="abandon",
                label=_("Give up with its queues"),
                url=url("clusters:abandon", obj),
                icon="plug-connected-x",
                post=False,
            ),
        )


class CheckCluster(AdminPage, ActionPage):
    """The button that asks for a check; its tab shows the lines as they come."""

    def rows(self) -> QuerySet[Cluster]:
        return selectors.clusters(self.actor)

    def act(self, obj: Cluster) -> str:
        return services.check(actor=self.actor, cluster=obj).get_absolute_url()


class NewCluster(AdminPage, FormPage):
    """Register a cluster."""

    section = "clusters"
    title = gettext_lazy("Register a cluster")
    submit_label = gettext_lazy("Register")
    form = ClusterForm
    scripts = ("clusters/form.js",)

    def submit(self, data: dict[str, Any]) -> str:
        return services.register(actor=self.actor, **data).get_absolute_url()


class _OfCluster(AdminPage, ObjectFormPage):
    section = "clusters"

    def rows(self) -> QuerySet[Cluster]:
        return selectors.clusters(self.actor)


class ChangeSettings(_OfCluster):
    """How instances are reached, where volumes come from."""

    title = gettext_lazy("Settings of the cluster")
    form = SettingsForm
    scripts = ("clusters/form.js",)

    def initial(self) -> dict[str, Any]:
        return {name: getattr(self.object, name) for name in SettingsForm.base_fields}

    def submit(self, data: dict[str, Any]) -> str:
        data.pop("id")
        services.update(actor=self.actor, cluster=self.object, **data)
        return str(self.object.get_absolute_url())


class ChangeCredentials(_OfCluster):
    """Another kubeconfig for the same cluster."""

    title = gettext_lazy("New credentials")
    form = KubeconfigForm

    def submit(self, data: dict[str, Any]) -> str:
        services.replace_credentials(actor=self.actor, cluster=self.object, kubeconfig=data["kubeconfig"])
        return str(self.object.get_absolute_url())


class AbandonCluster(_OfCluster):
    """Forget a cluster that is lost, with everything on it."""

    title = gettext_lazy("Give up a lost cluster")
    submit_label = gettext_lazy("Give up for good")
    form = AbandonForm
    template = "clusters/abandon.html"

    def extra(self) -> Mapping[str, Any]:
        """What ends, and what stays where nobody reaches it."""
        return {
            "object": self.object,
            "lost": abandoning.lost(self.object.pk),
            "stays": abandoning.STILL_THERE,
            "possible": abandoning.may_be_lost(self.object),
        }

    def submit(self, data: dict[str, Any]) -> str:
        abandoning.abandon(actor=self.actor, cluster=self.object, confirm=data["confirm"])
        return reverse("clusters:list")


class RemoveCluster(AdminPage, ActionPage):
    """The button."""

    done = gettext_lazy("The cluster is no longer registered.")

    def rows(self) -> QuerySet[Cluster]:
        return selectors.clusters(self.actor)

    def act(self, obj: Cluster) -> str:
        services.remove(actor=self.actor, cluster=obj, keep=self.request.POST.get("keep") == "true")
        return reverse("clusters:list")
