"""Bring one instance to what its owner wants: write what the plan says, look, decide, store.

Writes: a new instance is Secret, Service, Ingress and StatefulSet (four applies, no read); a later start is key, route
and StatefulSet (three). The StatefulSet comes last, so that what runs can be reached. A stop is route and replicas 0
(two, the route first). Where the portal's own gateway leads to instances each is one less: it reads the row. The key
that the Secret still holds opens nothing then: its launch has no route, its pod ends, and the next launch writes
another before its pod. After its writes a round ends; the watch tells what comes of them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from apps.clusters import access
from apps.core import actors, claims, crashpoints
from apps.core.claims import Claim
from apps.core.transitions import transition
from apps.instances import entrances, launching, looking, pending, rerouting, rotating, selectors, ssh, strays
from apps.instances.decide import WHEN_TOLD, Decision, Seen, decide
from apps.instances.models import Instance
from apps.instances.spec import KIND, spec_of
from apps.instances.states import LAUNCHED, InstanceState
from apps.tenants import ledger
from kubekit import names
from kubekit.build import instance as build
from kubekit.client import Cluster as KubeCluster
from kubekit.errors import Conflict as KubeConflict
from kubekit.errors import KubeError, NotFound, SpecError
from kubekit.specs import InstanceSpec

log = logging.getLogger(__name__)
RECONCILER = actors.system("reconciler")
#: After its writes a round waits for what the watch reports of the pod; this is when the sweep looks if it does not.
AFTER_WRITES_S = 3.0
#: A claim older than this is lengthened before the next write.
FRESH = claims.LEASE / 4


class Step(StrEnum):
    """One write to the cluster."""

    APPLY_KEY = "apply key"
    APPLY_STATEFUL_SET = "apply stateful set"
    APPLY_SERVICE = "apply service"
    APPLY_ROUTE = "apply route"
    DELETE_ROUTE = "delete route"
    SCALE_TO_ZERO = "scale to zero"
    DELETE_STATEFUL_SET = "delete stateful set"
    DELETE_SERVICE = "delete service"
    DELETE_KEY = "delete key"


NEW = (Step.APPLY_KEY, Step.APPLY_SERVICE, Step.APPLY_ROUTE, Step.APPLY_STATEFUL_SET)
START = (Step.APPLY_KEY, Step.APPLY_ROUTE, Step.APPLY_STATEFUL_SET)
STOP = (Step.DELETE_ROUTE, Step.SCALE_TO_ZERO)
APPLIES = frozenset(NEW)
DELETE = (Step.DELETE_ROUTE, Step.DELETE_STATEFUL_SET, Step.DELETE_SERVICE, Step.DELETE_KEY)


def plan(instance: Instance) -> tuple[Step, ...]:
    """Pure: the writes that are still owed for the row's generation, in order.

    After a failure everything is applied again, since nobody knows how far the last round came.
    """
    if instance.observed_generation >= instance.generation:
        return ()
    if instance.state in LAUNCHED:
        is_new = not instance.stateful_set_uid or instance.failures > 0
        return _routed(instance, NEW if is_new else START)
    if instance.state in {InstanceState.STOPPING, InstanceState.FAILED}:
        return _routed(instance, STOP)
    return _routed(instance, DELETE) if instance.state == InstanceState.DELETING else ()


def _routed(instance: Instance, steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """The same; where instances need no route only one of a kind that was chosen before is taken away."""
    if rerouting.kind_of(instance):
        return steps
    others = tuple(step for step in steps if step not in {Step.APPLY_ROUTE, Step.DELETE_ROUTE})
    if not rerouting.former_kinds(instance, ""):
        return others
    return (*others, Step.DELETE_ROUTE) if steps in (NEW, START) else (Step.DELETE_ROUTE, *others)


@dataclass(frozen=True, kw_only=True)
class Written:
    """What the writes brought to light; ``uids`` by kind, of what was applied."""

    uids: Mapping[str, str] = field(default_factory=dict)
    error: KubeError | SpecError | None = None


def run(pk: UUID, claim: Claim) -> datetime | None:
    """The reconciler: one round for one instance; when it is due again."""
    instance = selectors.for_reconcile(pk)
    if instance is None or instance.state == InstanceState.DELETED:
        return None
    if _is_done(instance):
        return strays.remove(instance)
    crashpoints.reach("instance-claimed")
    try:
        cluster = access.connect(instance.queue.cluster)
    except KubeError as error:
        return _judge(instance, Seen(error=error), claim, wrote=False)
    steps = plan(instance)
    written = write(instance, cluster, steps, claim) if steps else Written()
    rotated = rotating.advance(instance, cluster) if not steps else None
    found = entrances.advance(instance) if not steps else None
    stops = instance.state == InstanceState.STOPPING and bool(instance.pod_uid)
    if written.error is None and steps and (stops or instance.state in LAUNCHED):
        return _note_written(instance, written, claim)
    seen = Seen(error=written.error) if written.error is not None else looking.look(instance, cluster)
    return _judge(instance, seen, claim, wrote=bool(steps) and written.error is None, rotated=rotated, found=found)


def _judge(
    instance: Instance,
    seen: Seen,
    claim: Claim,
    *,
    wrote: bool,
    rotated: rotating.Outcome | None = None,
    found: entrances.Found | None = None,
) -> datetime | None:
    decision = decide(instance, seen, now=timezone.now(), timeout_s=settings.PORTAL_START_TIMEOUT_S)
    decision = entrances.applied(instance, found, rotating.applied(instance, rotated, decision))
    return _store(instance, decision, seen, claim, wrote=wrote)


def _is_done(instance: Instance) -> bool:
    resting = instance.state in {InstanceState.STOPPED, InstanceState.FAILED} and instance.at_rest
    return resting and instance.state not in LAUNCHED


# --- writing -----------------------------------------------------------------------------------------------------


def write(instance: Instance, cluster: KubeCluster, steps: tuple[Step, ...], claim: Claim) -> Written:
    """Carry out the steps. The first refusal ends them and comes back as a value.

    A slow cluster can use up the lease between two writes. Each write therefore begins within a fresh lease, or not at
    all (``ClaimLost``): a start that comes late would bring back an instance that was stopped meanwhile.
    """
    uids: dict[str, str] = {}
    fresh_until = time.monotonic() + FRESH.total_seconds()
    try:
        spec = spec_of(instance)
        for step in steps:
            if time.monotonic() > fresh_until:
                claims.extend(Instance, claim)
                fresh_until = time.monotonic() + FRESH.total_seconds()
            made = _WRITERS[step](instance, spec, cluster)
            crashpoints.reach(f"instance-{step.replace(' ', '-')}")
            if step in APPLIES and (uid := made["metadata"].get("uid")):
                uids[made["kind"]] = str(uid)
    except (KubeError, SpecError) as error:
        return Written(uids=uids, error=error)
    return Written(uids=uids)


def _apply_secret(instance: Instance, spec: InstanceSpec, cluster: KubeCluster) -> Any:
    made = cluster.apply(build.secret(spec, ssh.secret_data(instance)))
    if instance.pod_uid:
        # A kubelet looks at a mounted Secret when the pod changes, and else only every minute or two.
        seen = {"metadata": {"annotations": {names.REFRESHED: str(instance.generation)}}}
        _unless_absent(lambda: cluster.patch_merge("Pod", spec.namespace, spec.pod_name, seen))
    return made


def _apply_stateful_set(instance: Instance, spec: InstanceSpec, cluster: KubeCluster) -> Any:
    return cluster.apply(build.stateful_set(spec, replicas=1))


def _apply_service(instance: Instance, spec: InstanceSpec, cluster: KubeCluster) -> Any:
    return cluster.apply(build.service(spec))


def _apply_route(instance: Instance, spec: InstanceSpec, cluster: KubeCluster) -> Any:
    made = cluster.apply(build.route(spec))
    _delete_former_routes(instance, spec, cluster)
    return made


def _delete_route(instance: Instance, spec: InstanceSpec, cluster: KubeCluster) -> None:
    if spec.routed:
        _delete(spec.route_kind, instance, spec, cluster)
    _delete_former_routes(instance, spec, cluster)


def _delete_former_routes(instance: Instance, spec: InstanceSpec, cluster: KubeCluster) -> None:
    """Those of the kind that was chosen for the cluster before (`rerouting`)."""
    for kind in rerouting.former_kinds(instance, spec.route_kind):
        _delete(kind, instance, spec, cluster)


def _scale_to_zero(instance: Instance, spec: InstanceSpec, cluster: KubeCluster) -> None:
    _unless_absent(lambda: cluster.scale(spec.namespace, spec.object_name, 0))


def _delete(kind: str, instance: Instance, spec: InstanceSpec, cluster: KubeCluster) -> None:
    """Delete the object of this kind if it is ours; another one of the same name stays (failure F5).

    The UID that was stored when it was applied makes it one request. Without it, or when it does not fit (a crash
    between the write and the row), the object itself says whose it is.
    """
    uid = instance.stateful_set_uid if kind == "StatefulSet" else instance.object_uids.get(kind)
    try:
        if uid:
            cluster.delete(kind, spec.namespace, spec.object_name, uid=uid)
            return
    except NotFound:
        return
    except KubeConflict:
        log.info("%s %s is not the one that was applied last", kind, spec.object_name)
    _unless_absent(lambda: _delete_if_ours(kind, spec, cluster))


def _delete_if_ours(kind: str, spec: InstanceSpec, cluster: KubeCluster) -> None:
    metadata = cluster.get(kind, spec.namespace, spec.object_name)["metadata"]
    if (metadata.get("labels") or {}).get(names.ID) == spec.identity.id:
        cluster.delete(kind, spec.namespace, spec.object_name, uid=metadata["uid"])


def _unless_absent(request: Callable[[], object]) -> None:
    try:
        request()
    except NotFound:
        return


Writer = Callable[[Instance, InstanceSpec, KubeCluster], Any]
_WRITERS: dict[Step, Writer] = {
    Step.APPLY_KEY: _apply_secret,
    Step.APPLY_STATEFUL_SET: _apply_stateful_set,
    Step.APPLY_SERVICE: _apply_service,
    Step.APPLY_ROUTE: _apply_route,
    Step.DELETE_ROUTE: _delete_route,
    Step.SCALE_TO_ZERO: _scale_to_zero,
    Step.DELETE_STATEFUL_SET: partial(_delete, "StatefulSet"),
    Step.DELETE_SERVICE: partial(_delete, "Service"),
    Step.DELETE_KEY: partial(_delete, "Secret"),
}


# --- storing -----------------------------------------------------------------------------------------------------


def _note_written(instance: Instance, written: Written, claim: Claim) -> datetime | None:
    values: dict[str, Any] = {"observed_generation": instance.generation}
    uids = dict(written.uids)
    if "StatefulSet" in uids:
        values["stateful_set_uid"] = uids.pop("StatefulSet")
    gone = rerouting.former_kinds(instance, rerouting.kind_of(instance)) if instance.state in LAUNCHED else []
    known = {kind: uid for kind, uid in instance.object_uids.items() if kind not in gone}
    values["object_uids"] = {**known, **uids}
    look_at = timezone.now() + timedelta(seconds=AFTER_WRITES_S)
    unless = "" if instance.state == InstanceState.RUNNING else InstanceState.RUNNING
    if _keep(instance, values, claim, unless=unless):
        return look_at
    _keep(instance, values, claim)
    return None  # the watch was quicker: it came up meanwhile, and there is nothing left to look for


def _keep(instance: Instance, values: dict[str, Any], claim: Claim, *, unless: str = "") -> bool:
    """Columns that no person sees, written while the claim holds and unless the row is in that state: no lock, no
    announcement. False when nothing was written."""
    rows = Instance.objects.as_system().filter(pk=instance.pk, claim_token=claim.token)
    return bool(rows.exclude(state=unless).update(**values))


def _store(instance: Instance, decision: Decision, seen: Seen, claim: Claim, *, wrote: bool) -> datetime | None:
    values = dict(decision.values)
    if wrote:
        values.setdefault("observed_generation", instance.generation)
    if seen.live and seen.observation is not None and not decision.at_rest:
        values |= _undone(instance, seen)
    before = instance.state
    with transaction.atomic():
        moved = transition(
            instance,
            decision.to,
            actor=RECONCILER,
            reason=decision.reason,
            claim=claim,
            expect={before},
            values=values,
        )
        if moved and decision.at_rest:
            _come_to_rest(instance, claim)
    crashpoints.reach(f"instance-{instance.state}")
    if not moved:
        return timezone.now()
    if decision.at_rest and instance.state not in LAUNCHED:
        return None
    if decision.again_s == WHEN_TOLD:
        return None
    return timezone.now() + timedelta(seconds=decision.again_s or 0.0)


def _come_to_rest(instance: Instance, claim: Claim) -> None:
    """No pod is left: start the next launch when one was asked for meanwhile, else give the quota back."""
    pending.put_in_force(instance)
    if instance.state == InstanceState.STOPPED and instance.wants_to_run:
        launching.begin(instance, actor=RECONCILER, claim=claim)
    else:
        ledger.release(kind=KIND, object_id=instance.pk)


def _undone(instance: Instance, seen: Seen) -> dict[str, Any]:
    """What was written has been changed behind our back, by a person or by a worker that came too late: owe it again.

    A StatefulSet that is gone is forgotten, so that the next round makes all four objects again.
    """
    observation = seen.observation
    if observation is None or instance.observed_generation < instance.generation:
        return {}
    owed = {"observed_generation": instance.generation - 1}
    if observation.exists and observation.id != str(instance.pk):
        return {}  # another one of our name, which is not ours to change
    if instance.state == InstanceState.DELETING:
        return owed if observation.exists and not observation.deleting else {}
    if not observation.exists:
        lost = instance.state in LAUNCHED and observation.pod is None
        return {"stateful_set_uid": "", **owed} if lost else {}
    return owed if bool(observation.replicas) != (instance.state in LAUNCHED) else {}
