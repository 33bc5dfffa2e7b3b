"""A node that does not answer holds an attempt's end back: that is said, told, and given up on an administrator's word.

While the portal ends an attempt, its reason says why. When the node is silent the reason becomes ``node_lost`` and
keeps the one before in its parameter ``before``, from which the end is told once it comes.
"""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from apps.clusters import access as cluster_access
from apps.core import audit, live, reconciling
from apps.core.actors import Actor
from apps.core.claims import Claim
from apps.core.errors import Conflict, Unavailable
from apps.core.reasons import Reason
from apps.core.transitions import transition
from apps.flows import alarms, finishing, pods
from apps.flows.endings import given_up
from apps.flows.models import Attempt, Run
from apps.flows.states import ATTEMPT_STATES, RunState, StopCause
from apps.flows.waiting import RECONCILER
from apps.tenants import access
from apps.tenants.models import Role
from kubekit.errors import KubeError, NotFound
from kubekit.observe import AttemptObservation, observe_attempt

CODE = "node_lost"
BEFORE = "before"


def own_reason(obj: Attempt | Run) -> Reason | None:
    """The reason of a run or an attempt without the silence of its node."""
    if obj.reason_code == CODE:
        kept = obj.reason_params.get(BEFORE)
        return Reason(**kept) if kept else None
    if not obj.reason_code:
        return None
    return Reason(code=obj.reason_code, params=obj.reason_params, evidence=obj.reason_evidence)


def note_stop(attempt: Attempt, claim: Claim, seen: AttemptObservation) -> None:
    """While the portal ends it: whether the node is silent, at the attempt and at its run; a time-out is told then."""
    silent = seen.pod.unreachable
    codes = {attempt.reason_code, attempt.run.reason_code}
    if codes == {CODE} if silent else CODE not in codes:
        return
    node = seen.pod.node or ""
    with transaction.atomic():
        run = Run.objects.as_system().select_for_update(of=("self",)).get(pk=attempt.run_id)
        transition(run, run.state, actor=RECONCILER, reason=_reason(run, node, silent))
        transition(
            attempt,
            attempt.state,
            actor=RECONCILER,
            reason=_reason(attempt, node, silent),
            claim=claim,
            expect={attempt.state},
        )
        if silent and attempt.stop_cause == StopCause.TIMEOUT and run.state != RunState.CANCELLING:
            alarms.timed_out_on_silent_node(run, timeout_s=pods.node_of(attempt).timeout_s, node=node)


def _reason(obj: Attempt | Run, node: str, silent: bool) -> Reason | None:
    own = own_reason(obj)
    if not silent:
        return own
    params: dict[str, Any] = {"node": node}
    if own is not None:
        params[BEFORE] = {"code": own.code, "params": dict(own.params), "evidence": list(own.evidence)}
    return Reason(code=CODE, params=params)


def waits_for_node(run: Run) -> Attempt | None:
    """The living attempt of a run that a silent node holds back."""
    rows = Attempt.objects.as_system().filter(run=run, reason_code=CODE, ending__isnull=True)
    return rows.exclude(state__in=ATTEMPT_STATES.terminal).order_by("number").last()


def give_up_run(*, actor: Actor, run: Run) -> None:
    """As ``give_up``, for the attempt of the run that a silent node holds back."""
    attempt = waits_for_node(run)
    if attempt is None:
        access.require(actor, run.queue, Role.ADMIN)
        raise _not_silent()
    give_up(actor=actor, attempt=attempt)


def give_up(*, actor: Actor, attempt: Attempt) -> None:
    """End an attempt as lost though its end was never seen; its pod object is taken away by force.

    For administrators of the team. Raises ``Conflict``: ``node_not_silent`` unless the node is silent or the pod
    is gone, ``attempt_ended``; ``Unavailable`` when the cluster itself cannot be asked.
    """
    access.require(actor, attempt.queue, Role.ADMIN)
    if attempt.is_terminal or attempt.ending is not None:
        raise _ended()
    node = _silent_node(attempt)
    with transaction.atomic():
        rows = Attempt.objects.as_system().select_related("queue", "run", "run__flow", "run__version")
        row = rows.select_for_update(of=("self",)).get(pk=attempt.pk)
        if row.is_terminal or row.ending is not None:
            raise _ended()
        ending = given_up(
            row.stop_cause,
            charge=row.charge,
            timeout_s=pods.node_of(row).timeout_s,
            node=node,
            who=actor.name,
        )
        values = {"ending": ending.as_json(), "finished_at": timezone.now(), **reconciling.look_now(row)}
        for name, value in values.items():
            setattr(row, name, value)
        row.save(update_fields=[*values, "updated_at"])
        audit.record(
            actor=actor,
            verb="attempt.give-up",
            obj=row,
            detail={"node": node, "state": row.state, "run": str(row.run_id)},
        )
        live.announce(row)
        reconciling.hint(pods.KIND, row.pk)
    finishing.give_up_log(row, "its node does not answer")


def _silent_node(attempt: Attempt) -> str:
    """The node that does not answer; empty when the pod is gone."""
    if not attempt.pod_uid:
        raise _not_silent()
    queue = attempt.queue
    try:
        seen = observe_attempt(cluster_access.connect(queue.cluster).get("Pod", queue.namespace, attempt.pod_name))
    except NotFound:
        return ""
    except KubeError as error:
        raise Unavailable(
            _("The cluster does not answer, so nobody knows about the node: %(why)s") % {"why": error.message},
            code="cluster_unreachable",
            next=_("Try again when the cluster answers."),
        ) from error
    if seen.pod.uid != attempt.pod_uid:
        return ""
    if not seen.pod.unreachable:
        raise _not_silent()
    return seen.pod.node or ""


def _not_silent() -> Conflict:
    return Conflict(
        _("Its node answers, so its end will be seen."),
        code="node_not_silent",
        next=_("Wait for its end, or cancel the run."),
    )


def _ended() -> Conflict:
    return Conflict(_("The attempt has ended already."), code="attempt_ended")
