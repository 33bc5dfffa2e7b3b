"""What the app registers with the base when Django starts."""

from __future__ import annotations

from apps.clusters import reaper, watching
from apps.clusters.reaper import Reapable
from apps.core import control, reasons, reconciling, transitions
from apps.core.reconciling import Reconciler
from apps.flows import alarms, home, pods, reconcile, watch, wording
from apps.flows.collector import collector, retention
from apps.flows.models import Attempt
from apps.flows.scheduler import Scheduler
from apps.tenants import ledger


def register() -> None:
    """Called once from ``AppConfig.ready``."""
    reasons.register(wording.WORDINGS)
    reconciling.register(Reconciler(kind=pods.KIND, model=Attempt, run=reconcile.run))
    transitions.on_transition("run", alarms.run_ended)
    transitions.on_transition("run", watch.run_moved)
    watching.on_object("pods", pods.KIND, watch.pod_changed)
    watching.on_resync("pods", pods.KIND, watch.pods_listed)
    reaper.register(Reapable(label=pods.KIND, kinds=("Pod",), alive=watch.alive_ids))
    ledger.on_freed(watch.queue_freed)
    control.register("scheduler", Scheduler().run)
    control.register("log collector", collector.run)
    control.register("log retention", retention)
    home.register()
