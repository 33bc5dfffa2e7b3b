"""Bring one attempt to its end: room, pod, deadlines, log, result; one round at a time and level-triggered.

The order at the end makes a crash harmless at every point: log to its end, ending stored, finalizer removed, pod
gone, and only then the attempt (and the run) says so. The next attempt is inserted by the transaction that ends
this one.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.utils import timezone

from apps.clusters import access
from apps.clusters.states import ClusterState
from apps.clusters.wording import reason_of
from apps.core import crashpoints
from apps.core.claims import Claim, ClaimLost
from apps.core.errors import Conflict, NotFound, OverQuota
from apps.core.reasons import Reason
from apps.core.transitions import transition
from apps.flows import finishing, limits, pods, selectors, silence
from apps.flows.endings import Ending, from_end, stopped
from apps.flows.finishing import complete
from apps.flows.models import Attempt
from apps.flows.states import AttemptState, Charge, StopCause
from apps.flows.waiting import ON_ITS_WAY, RECONCILER, WATCHED_S, note_running, note_waiting, wake_next
from apps.tenants import amounts
from kubekit.build.task import task_pod
from kubekit.client import Cluster as KubeCluster
from kubekit.diagnose import POD_GONE, Context, classify_attempt_end, classify_no_start, diagnose
from kubekit.errors import AlreadyExists, KubeError, PermissionDenied, QuotaExceeded, SpecError
from kubekit.errors import Conflict as KubeConflict
from kubekit.errors import NotFound as KubeNotFound
from kubekit.events import EventNote, observe_events
from kubekit.observe import AttemptObservation, ClaimObservation, observe_attempt, observe_claim
from kubekit.specs import TaskPodSpec

log = logging.getLogger(__name__)

S = AttemptState
#: Room may come without a word (a raised limit, another portal): look again.
WAIT_FOR_ROOM_S = 15.0
#: The watch reports at once; this is when the sweep looks if it does not.
STARTING_S = 10.0
STOPPING_S = 3.0
CLUSTER_AWAY_S = 10.0
#: After so many failed readings an end is stored without the rest of the log.
LOG_TRIES = 5


def run(pk: UUID, claim: Claim) -> datetime | None:
    """The reconciler: one round for one attempt; when it is due again (None once it has ended)."""
    attempt = selectors.attempt(pk)
    if attempt is None or attempt.is_terminal:
        return None
    round_ = Round(attempt, claim)
    if attempt.ending is not None:
        return round_.let_go()
    if not attempt.pod_name:
        return round_.begin()
    return round_.look()


class Round:
    """One look at one attempt under a claim."""

    def __init__(self, attempt: Attempt, claim: Claim) -> None:
        self.attempt = attempt
        self.claim = claim
        self.now = timezone.now()
        self._cluster: KubeCluster | None = None

    @property
    def cluster(self) -> KubeCluster:
        """The client of the attempt's cluster."""
        if self._cluster is None:
            self._cluster = access.connect(self.attempt.queue.cluster)
        return self._cluster

    @property
    def namespace(self) -> str:
        """Where the pod is."""
        return self.attempt.queue.namespace

    def after(self, seconds: float) -> datetime:
        """So many seconds from now."""
        return timezone.now() + timedelta(seconds=seconds)

    # --- beginning ---------------------------------------------------------------------------------------------------

    def begin(self) -> datetime | None:
        """Reserve room and ask for the pod; without room stay queued and say behind what."""
        attempt = self.attempt
        if attempt.state == S.CANCELLING:
            return self.end(stopped(attempt.stop_cause, timeout_s=0, who=attempt.reason_params.get("who", "")))
        if self.now < attempt.not_before:
            return attempt.not_before
        if attempt.queue.cluster.state == ClusterState.UNREACHABLE:
            # Nobody is kept waiting for a cluster that its watch has found away: the others need the threads.
            note_waiting(attempt, self.claim, Reason(code="cluster_unreachable"))
            return self.after(WATCHED_S)
        try:
            _node, resolved, spec = pods.current(attempt)
        except (SpecError, Conflict) as error:
            return self.refuse(error)
        waited = attempt.reason_code == "attempt_waits_for_quota"
        try:
            ours = finishing.admit(attempt, self.claim, amount=resolved.amount, pod_name=spec.object_name)
        except OverQuota as error:
            note_waiting(attempt, self.claim, _no_room(error))
            return self.after(WAIT_FOR_ROOM_S)
        except (Conflict, NotFound) as error:
            return self.refuse(error)
        if not ours:
            return self.now
        if waited:
            wake_next(attempt.queue_id)
        crashpoints.reach("attempt-admitted")
        return self.create(spec)

    def create(self, spec: TaskPodSpec) -> datetime | None:
        """One create for one attempt. A name that is taken is looked at, never asked for twice."""
        try:
            raw = self.cluster.create(task_pod(spec))
        except KubeError as error:
            return self.not_created(error)
        crashpoints.reach("attempt-created")
        try:
            self.keep(pod_uid=raw["metadata"]["uid"])
        except ClaimLost:
            finishing.take_back(self.attempt, self.cluster, self.namespace)
            raise
        return self.after(STARTING_S)

    def not_created(self, error: KubeError) -> datetime | None:
        """What follows from the answer to a create that made no pod, or not this one."""
        if isinstance(error, AlreadyExists):
            return self.look()
        if isinstance(error, QuotaExceeded):
            note_waiting(self.attempt, self.claim, self.why(error=error))
            return self.after(WAIT_FOR_ROOM_S)
        if _passes(error):
            note_waiting(self.attempt, self.claim, self.why(error=error))
            return self.after(CLUSTER_AWAY_S)
        return self.refuse(error)

    def refuse(self, error: SpecError | Conflict | NotFound | KubeError) -> datetime | None:
        """What no repetition can mend ends the attempt and the run."""
        if isinstance(error, KubeError):
            reason = self.why(error=error) or Reason(code="pod_refused", evidence=(error.message,))
        elif isinstance(error, SpecError):
            reason = Reason(code="pod_refused", params={"why": error.message}, evidence=(f"{error.field}",))
        else:
            reason = Reason(code="pod_refused", params={"why": str(error.detail)})
        ending = Ending(
            state=S.FAILED, charge=Charge.NONE, code=reason.code, params=dict(reason.params),
            evidence=tuple(reason.evidence),
        )  # fmt: skip
        return self.end(ending)

    # --- looking -----------------------------------------------------------------------------------------------------

    def look(self) -> datetime | None:
        """Read the live pod and draw the consequences."""
        attempt = self.attempt
        try:
            raw = self.cluster.get("Pod", self.namespace, attempt.pod_name)
        except KubeNotFound:
            return self.absent()
        except KubeError as error:
            note_waiting(attempt, self.claim, self.why(error=error))
            return self.after(CLUSTER_AWAY_S)
        seen = observe_attempt(raw)
        if attempt.pod_uid and seen.pod.uid != attempt.pod_uid:
            return self.absent()
        if seen.attempt_id != str(attempt.pk):
            return self.refuse(Conflict(f"the pod {attempt.pod_name} belongs to something else", code="name_taken"))
        if not attempt.pod_uid:
            self.keep(pod_uid=seen.pod.uid)
        if seen.finished or self.never_ran(seen):
            return self.ended(seen)
        if attempt.state == S.CANCELLING:
            return self.stop(seen)
        if attempt.state == S.QUEUED and seen.started:
            self.running(seen)
        if attempt.state == S.RUNNING:
            return self.watch_running(seen)
        return self.watch_starting(seen)

    def absent(self) -> datetime | None:
        """No pod of ours: never made, ended by us, or taken away before its end was seen."""
        attempt = self.attempt
        if attempt.stop_cause:
            return self.end(self.ending_of_stop(None))
        if attempt.pod_uid:
            return self.end(from_end(POD_GONE, None))
        try:
            _node, _resolved, spec = pods.current(attempt)
        except (SpecError, Conflict) as error:
            return self.refuse(error)
        return self.create(spec)

    def never_ran(self, seen: AttemptObservation) -> bool:
        """A pod that is being deleted and that no node ever took: nobody else will report its end."""
        return seen.pod.deleting and not seen.started and seen.pod.node is None

    def running(self, seen: AttemptObservation) -> None:
        """The program runs: from here its time-out counts."""
        note_running(self.attempt, self.claim, seen, timeout_s=pods.node_of(self.attempt).timeout_s)

    def watch_running(self, seen: AttemptObservation) -> datetime | None:
        """End it at its deadline; else look again then, or when the watch says so."""
        attempt = self.attempt
        if attempt.deadline_at is not None and self.now >= attempt.deadline_at:
            timeout_s = pods.node_of(attempt).timeout_s
            self.begin_stop(StopCause.TIMEOUT, Reason(code="run_timeout", params={"timeout_s": timeout_s}))
            return self.stop(seen)
        note_waiting(attempt, self.claim, self.why(seen) if seen.pod.unreachable else None)
        return min(attempt.deadline_at or self.after(WATCHED_S), self.after(WATCHED_S))

    def watch_starting(self, seen: AttemptObservation) -> datetime | None:
        """Say what it waits for; give up at the start's own time-out."""
        attempt, (events, claims) = self.attempt, self.context_of(seen)
        if attempt.start_deadline_at is not None and self.now >= attempt.start_deadline_at:
            ending = from_end(classify_no_start(seen, events=events, claims=claims), seen)
            reason = ending.reason or Reason(code="start_timeout")
            reason = Reason(
                code=reason.code,
                params={"timeout_s": limits.start_timeout_s(), **reason.params},
                evidence=tuple(note.message for note in events if note.warning)[-5:],
            )
            self.begin_stop(StopCause.START_TIMEOUT, reason, charge=ending.charge)
            return self.stop(seen)
        why = self.why(seen, events=events, claims=claims) or ON_ITS_WAY
        note_waiting(attempt, self.claim, why)
        return min(attempt.start_deadline_at or self.after(STARTING_S), self.after(STARTING_S))

    def context_of(self, seen: AttemptObservation) -> tuple[tuple[EventNote, ...], tuple[ClaimObservation, ...]]:
        """What a diagnosis of a start reads besides the pod."""
        found = self.cluster.list("Event", self.namespace, fields={"involvedObject.name": seen.pod.name})
        claims: list[ClaimObservation] = []
        if seen.pod.node is None:
            for claim in seen.pod.claims:
                try:
                    claims.append(observe_claim(self.cluster.get("PersistentVolumeClaim", self.namespace, claim)))
                except KubeNotFound:
                    continue
        events = observe_events(found)
        finishing.keep_events(self.attempt, self.claim, events)
        return events, tuple(claims)

    def why(
        self,
        seen: AttemptObservation | None = None,
        *,
        error: KubeError | None = None,
        events: tuple[EventNote, ...] = (),
        claims: tuple[ClaimObservation, ...] = (),
    ) -> Reason | None:
        """kubekit's diagnosis as a reason."""
        context = Context(
            pod=seen.pod if seen is not None else None,
            events=events,
            claims=claims,
            wanted_claims=seen.pod.claims if seen is not None else (),
            error=error,
            start_timeout_s=limits.start_timeout_s(),
        )
        found = diagnose(context)
        return reason_of(found) if found is not None else None

    # --- ending ------------------------------------------------------------------------------------------------------

    def begin_stop(self, cause: StopCause, reason: Reason, *, charge: Charge = Charge.USER) -> None:
        """Say that the portal ends it; the pod is still there."""
        transition(
            self.attempt,
            S.CANCELLING,
            actor=RECONCILER,
            reason=reason,
            claim=self.claim,
            expect={S.QUEUED, S.RUNNING},
            values={"stop_cause": cause, "charge": charge},
        )
        crashpoints.reach("attempt-stopping")

    def stop(self, seen: AttemptObservation) -> datetime:
        """Ask for the pod's end (once); its finalizer keeps it readable until the result is stored."""
        silence.note_stop(self.attempt, self.claim, seen)
        if not seen.pod.deleting:
            try:
                self.cluster.delete("Pod", self.namespace, seen.pod.name, uid=seen.pod.uid, grace_s=limits.grace_s())
            except KubeNotFound:
                return self.now
            except KubeError as error:
                note_waiting(self.attempt, self.claim, self.why(error=error))
                return self.after(CLUSTER_AWAY_S)
            crashpoints.reach("attempt-pod-deleted")
            return self.after(STOPPING_S if limits.grace_s() else 0.5)
        return self.after(STOPPING_S)

    def ended(self, seen: AttemptObservation) -> datetime | None:
        """The pod has come to its end: keep log and result, then let it go."""
        try:
            finishing.read_to_end(self.attempt, self.cluster, seen)
        except KubeError as error:
            if self.attempt.failures < LOG_TRIES:
                raise
            finishing.give_up_log(self.attempt, error.message)
        crashpoints.reach("attempt-log-stored")
        self.keep_last_events(seen)
        ending = self.ending_of_stop(seen) if self.attempt.stop_cause else self.ending_of(seen)
        finishing.store_ending(self.attempt, self.claim, ending)
        crashpoints.reach("attempt-ending-stored")
        return self.let_go()

    def keep_last_events(self, seen: AttemptObservation) -> None:
        """The pod's events go soon after it; an error here costs the page a list, nothing more."""
        try:
            found = self.cluster.list("Event", self.namespace, fields={"involvedObject.name": seen.pod.name})
            finishing.keep_events(self.attempt, self.claim, observe_events(found))
        except KubeError as error:
            log.info("the events of %s could not be read: %s", seen.pod.name, error.message)

    def ending_of(self, seen: AttemptObservation) -> Ending:
        """The end that came by itself."""
        end = classify_attempt_end(seen) or POD_GONE
        ending = from_end(end, seen, evidence=finishing.evidence_of(self.attempt, seen))
        if end.outcome == "timed_out":
            timeout_s = pods.node_of(self.attempt).timeout_s
            return stopped(StopCause.TIMEOUT, timeout_s=timeout_s, exit_code=seen.exit_code)
        return ending

    def ending_of_stop(self, seen: AttemptObservation | None) -> Ending:
        """The end of what the portal stopped; a program that had ended by itself before counts as it ended."""
        attempt = self.attempt
        why = silence.own_reason(attempt) or Reason(code="start_timeout")
        if seen is not None and seen.finished:
            end = classify_attempt_end(seen, cancelled=True)
            if end is not None and end.outcome == "succeeded":
                return self.ending_of(seen)
            if attempt.stop_cause == StopCause.TIMEOUT and _ended_by_itself(attempt, seen):
                return self.ending_of(seen)
        if attempt.stop_cause == StopCause.START_TIMEOUT:
            return Ending(
                state=S.FAILED,
                charge=Charge(attempt.charge or Charge.INFRA),
                code=why.code,
                params=dict(why.params),
                evidence=tuple(why.evidence),
            )
        return stopped(
            attempt.stop_cause,
            timeout_s=pods.node_of(attempt).timeout_s,
            who=str(why.params.get("who", "")),
            exit_code=seen.exit_code if seen is not None else None,
        )

    def let_go(self) -> datetime | None:
        """Finalizer off, pod deleted, and only when it is gone the attempt has ended."""
        attempt = self.attempt
        assert attempt.ending is not None
        if attempt.pod_name and not finishing.pod_is_gone(self.cluster, self.namespace, attempt):
            return self.after(1.0)
        crashpoints.reach("attempt-pod-gone")
        return self.end(Ending.from_json(attempt.ending))

    def end(self, ending: Ending) -> datetime | None:
        """The last write; an ended attempt is never due again."""
        complete(self.attempt, self.claim, ending)
        return None

    def keep(self, **values: Any) -> None:
        """Columns that no person sees, while the claim holds."""
        finishing.keep(self.attempt, self.claim, **values)


def _passes(error: KubeError) -> bool:
    """Whether a later create may succeed. A plain conflict is the quota's: many pods at once were charged to it."""
    passing = error.retryable or error.maybe_done or error.status in (0, 401)
    return passing or isinstance(error, PermissionDenied | KubeConflict)


def _ended_by_itself(attempt: Attempt, seen: AttemptObservation) -> bool:
    """Before its deadline, and before we had it ended: the second holds whatever the portal's own clock says."""
    ended, asked = seen.finished_at, seen.pod.delete_requested_at
    if ended is None or attempt.deadline_at is None:
        return False
    return ended < attempt.deadline_at and (asked is None or ended < asked)


def _no_room(error: OverQuota) -> Reason:
    """Behind what a queued attempt waits, in numbers."""
    missing = ", ".join(amounts.show(name, row["missing"]) for name, row in error.data.items())
    asked = ", ".join(amounts.show(name, row["asked"]) for name, row in error.data.items())
    return Reason(code="attempt_waits_for_quota", params={"missing": missing, "asked": asked})
