"""What the app registers with the base when Django starts."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from uuid import UUID

from django.urls import reverse
from django.utils.translation import gettext as _

from apps.clusters import abandoning, exposing, reaper, watching
from apps.clusters import wording as cluster_wording
from apps.clusters.reaper import Reapable
from apps.core import control, home, reasons, reconciling
from apps.core.actors import Actor
from apps.core.home import FirstStep, Look, Panel
from apps.core.reconciling import Reconciler
from apps.core.transitions import on_transition
from apps.instances import giving_up, reconcile, rerouting, selectors, services, ssh, watch, wording
from apps.instances.lifetime.watching import Rounds
from apps.instances.models import Instance
from apps.instances.spec import KIND
from apps.storage import uses as volume_uses
from apps.storage.uses import Use
from apps.tenants import departures, sshkeys
from apps.tenants import events as queue_events
from apps.tenants import uses as queue_uses
from apps.tenants.departures import Departure

#: The route first: nobody enters what belongs to nobody.
REAPED = ("Ingress", "HTTPRoute", "StatefulSet", "Pod", "Service", "Secret")


def register() -> None:
    """Called once from ``AppConfig.ready``."""
    reasons.register(cluster_wording.WORDINGS)
    reasons.register(wording.WORDINGS)
    reconciling.register(Reconciler(kind=KIND, model=Instance, run=reconcile.run))
    watching.on_objects("pods", KIND, watch.pods_changed)
    watching.on_resync("pods", KIND, watch.pods_listed)
    watching.on_events(watch.events_came)
    watching.on_node_gone(watch.node_gone)
    on_transition("cluster", watch.cluster_moved)
    reaper.register(Reapable(label=KIND, kinds=REAPED, alive=selectors.alive_ids))
    exposing.register_change(rerouting.reroute)
    volume_uses.register(_volume_uses)
    queue_uses.register(_queue_uses)
    abandoning.register(giving_up.PART)
    sshkeys.on_change(ssh.keys_changed)
    queue_events.register(selectors.events_in)
    departures.register(Departure(end=services.stop_those_of, names=_running_of))
    control.register("lifetime", Rounds().run)
    home.register(Panel(name="instances", template="instances/panel_home.html", context=_mine, order=10, live=KIND))
    home.register_step(10, _first_step)
    home.register_step(20, _second_step)


def _volume_uses(volume_id: UUID) -> list[Use]:
    return [
        Use(
            label=_("instance %(name)s") % {"name": instance.name},
            url=instance.get_absolute_url(),
            path=path,
            read_only=read_only,
        )
        for instance, path, read_only in selectors.mounting(volume_id)
    ]


def _queue_uses(queue_id: UUID) -> list[str]:
    return [_("instance %(name)s") % {"name": name} for name in selectors.names_in(queue_id)]


def _running_of(user_ids: Collection[UUID], queue_ids: Collection[UUID] | None) -> dict[UUID, list[str]]:
    found: dict[UUID, list[str]] = {}
    for owner_id, name in selectors.running_of(user_ids, queue_ids).order_by("name").values_list("owner_id", "name"):
        found.setdefault(owner_id, []).append(_("instance %(name)s") % {"name": name})
    return found


def _mine(actor: Actor, look: Look) -> dict[str, Any]:
    found = selectors.mine_alive(actor)
    return {"instances": found, "empty": not found}


def _first_step(actor: Actor) -> FirstStep | None:
    return FirstStep(
        title=_("Make an instance"),
        text=_("A JupyterLab of your own in the cluster; its home survives every stop."),
        url=reverse("instances:new"),
        button=_("New instance"),
        icon="plus",
        done=selectors.has_any(actor),
    )


def _second_step(actor: Actor) -> FirstStep | None:
    return FirstStep(
        title=_("Open JupyterLab"),
        text=_("One click on Open, without a key to copy. What you put below /root is still there next time."),
        url="",
        button="",
        icon="",
        done=selectors.has_been_ready(actor),
    )
