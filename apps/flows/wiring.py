"""What the app registers with the base when Django starts."""

from __future__ import annotations

from uuid import UUID

from django.utils.translation import gettext as _

from apps.clusters import abandoning, reaper, watching
from apps.clusters.reaper import Reapable
from apps.core import control, reasons, reconciling, transitions
from apps.core.reconciling import Reconciler
from apps.flows import alarms, beginning, giving_up, home, pods, reconcile, selectors, waiting, watch, wording
from apps.flows.collector import collector, retention
from apps.flows.models import Attempt
from apps.flows.scheduler import Scheduler
from apps.storage import uses as volume_uses
from apps.storage.uses import Use
from apps.tenants import events as queue_events
from apps.tenants import ledger
from apps.tenants import uses as queue_uses


def register() -> None:
    """Called once from ``AppConfig.ready``."""
    reasons.register(wording.WORDINGS)
    reconciling.register(Reconciler(kind=pods.KIND, model=Attempt, run=reconcile.run, together=beginning.together))
    transitions.on_transition("run", alarms.run_ended)
    transitions.on_transition("run", watch.run_moved)
    transitions.on_transition("cluster", watch.cluster_moved)
    watching.on_objects("pods", pods.KIND, watch.pods_changed)
    watching.on_resync("pods", pods.KIND, watch.pods_listed)
    watching.on_events(watch.events_came)
    reaper.register(Reapable(label=pods.KIND, kinds=("Pod",), alive=watch.alive_ids))
    ledger.on_freed(waiting.wake_next)
    volume_uses.register(_volume_uses)
    queue_uses.register(_queue_uses)
    abandoning.register(giving_up.PART)
    queue_events.register(selectors.events_in)
    control.register("scheduler", Scheduler().run)
    control.register("log collector", collector.run)
    control.register("log retention", retention)
    home.register()


def _volume_uses(volume_id: UUID) -> list[Use]:
    return [
        Use(label=_named(flow.name), url=flow.get_absolute_url(), path=path, read_only=read_only)
        for flow, path, read_only in selectors.mounting(volume_id)
    ]


def _queue_uses(queue_id: UUID) -> list[str]:
    return [_named(flow.name) for flow in selectors.alive_in(queue_id)]


def _named(name: str) -> str:
    return _("flow %(name)s") % {"name": name}
