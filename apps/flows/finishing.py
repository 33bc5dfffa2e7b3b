"""The steps around an attempt's end, each safe to repeat: log to its end, result kept, pod gone, run follows."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from django.db import connection, transaction
from django.utils import timezone

from apps.clusters.events import merge
from apps.core import audit, crashpoints, live, reconciling
from apps.core.claims import Claim, ClaimLost
from apps.core.reasons import Reason
from apps.core.transitions import Step, transition, transition_many
from apps.flows import limits, logs, pods
from apps.flows.endings import Again, Ending, next_attempt, run_state
from apps.flows.models import Attempt, Run
from apps.flows.states import ATTEMPT_STATES, AttemptState, Charge, RunState
from apps.flows.waiting import RECONCILER
from apps.tenants import ledger
from kubekit import names
from kubekit.build.pod import CONTAINER
from kubekit.build.task import without_result_finalizer
from kubekit.client import Cluster as KubeCluster
from kubekit.errors import BadRequest, Conflict, KubeError, NotFound
from kubekit.events import EventNote
from kubekit.observe import AttemptObservation

log = logging.getLogger(__name__)

READ_BYTES = 8 * 1024 * 1024
EVIDENCE_LINES = 8


@dataclass(frozen=True, kw_only=True)
class Admission:
    """What an attempt needs to begin."""

    claim: Claim
    amount: ledger.Amount
    pod_name: str


def keep(attempt: Attempt, claim: Claim, **values: Any) -> None:
    """Write columns that no person sees. Raises ``ClaimLost``: a late worker must not go on to let the pod go."""
    if not Attempt.objects.as_system().filter(pk=attempt.pk, claim_token=claim.token).update(**values):
        raise ClaimLost(f"attempt {attempt.pk}")
    for name, value in values.items():
        setattr(attempt, name, value)


def keep_events(attempt: Attempt, claim: Claim, events: Sequence[EventNote]) -> None:
    """Keep the newest events for the page."""
    rows = merge(attempt.last_events, events)
    if rows != attempt.last_events:
        keep(attempt, claim, last_events=rows)


def admit(attempt: Attempt, claim: Claim, *, amount: ledger.Amount, pod_name: str) -> bool:
    """Reserve room and note the pod's name in one transaction; False when the attempt was stopped meanwhile.

    Raises ``OverQuota``, ``Conflict`` and ``NotFound`` as the ledger does.
    """
    with transaction.atomic():
        ledger.reserve(queue_id=attempt.queue_id, kind=pods.KIND, object_id=attempt.pk, amount=amount)
        deadline = timezone.now() + timedelta(seconds=limits.start_timeout_s())
        ours = transition(
            attempt,
            AttemptState.QUEUED,
            actor=RECONCILER,
            claim=claim,
            expect={AttemptState.QUEUED},
            values={"pod_name": pod_name, "start_deadline_at": deadline},
        )
        if not ours:
            ledger.release(kind=pods.KIND, object_id=attempt.pk)
    return ours


def admit_many(queue_id: UUID, wanted: Mapping[UUID, Admission]) -> set[UUID]:
    """The same for many attempts of one queue, as far as there is room, in the given order; the ids of those let in.

    Why another one is not let in, `admit` tells.
    """
    deadline = timezone.now() + timedelta(seconds=limits.start_timeout_s())
    ours: set[UUID] = set()

    def plan(attempt: Attempt) -> Step | None:
        one = wanted[attempt.pk]
        if attempt.claim_token != one.claim.token or attempt.state != AttemptState.QUEUED:
            return None
        ours.add(attempt.pk)
        return Step(to=AttemptState.QUEUED, values={"pod_name": one.pod_name, "start_deadline_at": deadline})

    with transaction.atomic():
        amounts = {pk: one.amount for pk, one in wanted.items()}
        held = ledger.reserve_many(queue_id=queue_id, kind=pods.KIND, amounts=amounts)
        transition_many(Attempt, held, plan, actor=RECONCILER)
        for pk in held - ours:
            ledger.release(kind=pods.KIND, object_id=pk)
    return ours


def keep_pods(uids: Mapping[Claim, str]) -> set[UUID]:
    """Note the UIDs of pods that were made, in one statement; the ids of the attempts whose claims still held."""
    text = (
        f"UPDATE {Attempt._meta.db_table} a SET pod_uid = v.uid "  # noqa: S608 - a table of our own
        "FROM unnest(%s::uuid[], %s::bigint[], %s::text[]) AS v(id, token, uid) "
        "WHERE a.id = v.id AND a.claim_token = v.token RETURNING a.id"
    )
    with connection.cursor() as cursor:
        cursor.execute(text, [[one.pk for one in uids], [one.token for one in uids], list(uids.values())])
        return {pk for (pk,) in cursor.fetchall()}


def read_to_end(attempt: Attempt, cluster: KubeCluster, seen: AttemptObservation) -> None:
    """Store what the collector has not: the log from its mark to the end. Raises ``KubeError``."""
    limit = READ_BYTES
    while True:
        row = logs.attempt_row(attempt.pk)
        if row is None or row.log_complete:
            break
        cutter = logs.Cutter.at(row.log_mark)
        before = cutter.mark
        try:
            raw = cluster.log_tail(
                seen.pod.namespace,
                seen.pod.name,
                CONTAINER,
                tail_lines=None,
                limit_bytes=limit,
                since_time=cutter.since,
                timestamps=True,
            )
        except (BadRequest, NotFound):
            raw = b""  # no container ever wrote anything
        whole = len(raw) < limit
        data = cutter.feed(raw) + (cutter.finish() if whole else b"")
        try:
            logs.append(row, data, cutter.mark, complete=whole or row.log_truncated)
        except logs.Moved:
            continue
        if not whole and cutter.mark == before:
            limit *= 2  # one second of the log is longer than what was read
    refresh_log(attempt)


def refresh_log(attempt: Attempt) -> None:
    """The log's columns as they are now."""
    attempt.refresh_from_db(
        fields=["log_bytes", "log_mark", "log_complete", "log_truncated"],
        from_queryset=Attempt.objects.as_system(),
    )


def give_up_log(attempt: Attempt, why: str) -> None:
    """The rest of the log cannot be had (its node is gone): say so at its end."""
    row = logs.attempt_row(attempt.pk)
    if row is not None and not row.log_complete:
        note = f"[mlportal: the rest of the log could not be read: {why}]\n".encode()
        logs.append(row, note, row.log_mark or {"stamp": "", "seen": 0}, complete=True)
    refresh_log(attempt)


def evidence_of(attempt: Attempt, seen: AttemptObservation) -> tuple[str, ...]:
    """The last lines of the log; where there are none, what the cluster said."""
    lines = [line for line in logs.tail(attempt, EVIDENCE_LINES).split("\n") if line.strip()]
    return tuple(line[:500] for line in lines) or tuple(filter(None, (seen.message[:500], seen.pod.message[:500])))


def store_ending(attempt: Attempt, claim: Claim, ending: Ending) -> None:
    """Keep how it ended before the pod may go; the state follows when it has gone."""
    keep(
        attempt,
        claim,
        ending=ending.as_json(),
        exit_code=ending.exit_code,
        finished_at=ending.finished_at or timezone.now(),
    )
    live.announce(attempt)


def pod_is_gone(cluster: KubeCluster, namespace: str, attempt: Attempt) -> bool:
    """Take our finalizer off and delete the finished pod; True when no pod of this attempt is left."""
    try:
        raw = cluster.get("Pod", namespace, attempt.pod_name)
    except NotFound:
        return True
    metadata = raw["metadata"]
    if (metadata.get("labels") or {}).get(names.ID) != str(attempt.pk):
        return True
    finalizers, uid = list(metadata.get("finalizers") or ()), metadata["uid"]
    try:
        if names.RESULT_FINALIZER in finalizers:
            patch = without_result_finalizer(finalizers, resource_version=metadata["resourceVersion"])
            cluster.patch_merge("Pod", namespace, attempt.pod_name, patch)
            crashpoints.reach("attempt-finalizer-off")
        # The program has ended, so there is nothing to wait for.
        cluster.delete("Pod", namespace, attempt.pod_name, uid=uid, grace_s=0)
        cluster.get("Pod", namespace, attempt.pod_name)
    except NotFound:
        return True
    except Conflict:
        return False
    return False


def take_back(attempt: Attempt, cluster: KubeCluster, namespace: str) -> None:
    """After a create that came through when its worker's lease was over: the pod of an ended attempt must not run.

    While the attempt lives its holder finds the pod by its name. What fails here is left to the reaper.
    """
    if not Attempt.objects.as_system().filter(pk=attempt.pk, state__in=ATTEMPT_STATES.terminal).exists():
        return
    try:
        pod_is_gone(cluster, namespace, attempt)
    except KubeError as error:
        log.warning("the late pod of attempt %s could not be taken back: %s", attempt.pk, error.message)


def complete(attempt: Attempt, claim: Claim, ending: Ending) -> None:
    """End the attempt; in the same transaction give its room back and insert the next one, or end the run."""
    with transaction.atomic():
        transaction.on_commit(lambda: crashpoints.reach("attempt-ended"))
        run = Run.objects.as_system().select_for_update(of=("self",)).get(pk=attempt.run_id)
        cancelling = run.state == RunState.CANCELLING
        values = {
            "charge": ending.charge,
            "exit_code": ending.exit_code,
            "finished_at": ending.finished_at or attempt.finished_at or timezone.now(),
            "log_complete": True,
        }
        transition(attempt, ending.state, actor=RECONCILER, reason=ending.reason, claim=claim, values=values)
        ledger.release(kind=pods.KIND, object_id=attempt.pk)
        crashpoints.reach("attempt-ending-written")
        again = _next(attempt, ending, cancelling=cancelling)
        if again is not None:
            _insert(attempt, again)
            crashpoints.reach("attempt-next-inserted")
            _say_again(run, attempt, ending, again)
            return
        transition(
            run,
            run_state(ending, cancelling=cancelling),
            actor=RECONCILER,
            reason=ending.reason,
            values={"finished_at": values["finished_at"]},
        )


def _next(attempt: Attempt, ending: Ending, *, cancelling: bool) -> Again | None:
    ended = Attempt.objects.as_system().filter(run_id=attempt.run_id, node=attempt.node)
    return next_attempt(
        ending=ending,
        number=attempt.number,
        charges=ended.exclude(charge="").values_list("charge", flat=True),
        retries=pods.node_of(attempt).retries,
        cancelling=cancelling,
        now=timezone.now(),
    )


def _insert(attempt: Attempt, again: Again) -> None:
    now = timezone.now()
    made = Attempt.objects.create(
        id=uuid4(),
        run_id=attempt.run_id,
        queue_id=attempt.queue_id,
        node=attempt.node,
        number=again.number,
        state=AttemptState.QUEUED,
        state_since=now,
        not_before=again.not_before,
        due_at=again.not_before,
    )
    audit.record(actor=RECONCILER, verb="attempt.queued", obj=made, detail={"number": again.number})
    live.announce(made)
    reconciling.hint(pods.KIND, made.pk)


def _say_again(run: Run, attempt: Attempt, ending: Ending, again: Again) -> None:
    code = "run_retries" if ending.charge == Charge.USER else "run_retries_infra"
    cause = ending.reason.code if ending.reason else ""
    reason = Reason(
        code=code,
        params={
            "number": attempt.number,
            "next": again.number,
            "at": again.not_before.isoformat(timespec="seconds"),
            "cause": cause,
        },
        evidence=ending.evidence,
    )
    transition(run, run.state, actor=RECONCILER, reason=reason)
