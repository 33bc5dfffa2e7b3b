"""Many attempts that begin: what `reconcile.Round.begin` does for one, with each statement made once for all of them.

Room, names and claims are written in one transaction for each queue, then the pods are asked for at the same time over
connections that stay open, then what came of it is stored for all of a cluster at once. Whatever is unusual about an
attempt is left to its own round, which looks at it as if nobody had been here.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db import connections
from django.utils import timezone

from apps.clusters import access
from apps.clusters.states import ClusterState
from apps.core import claims, crashpoints
from apps.core.claims import Claim, ClaimLost
from apps.core.errors import Conflict
from apps.flows import finishing, pods, resolve, selectors
from apps.flows.executors.base import Resolved
from apps.flows.finishing import Admission
from apps.flows.models import Attempt
from apps.flows.reconcile import STARTING_S, Round
from apps.flows.states import AttemptState
from apps.flows.waiting import wake_next
from kubekit.build.task import task_pod
from kubekit.client import Cluster as KubeCluster
from kubekit.errors import KubeError, SpecError, Unreachable
from kubekit.specs import TaskPodSpec

#: Requests under way to one cluster from one process. Each cluster has its own, so that a slow one delays no other.
IN_FLIGHT = 16
#: A create begins within this time of the claim or not at all, so that it is over before the lease is.
FRESH_S = claims.LEASE.total_seconds() / 4

_lock = threading.Lock()
_senders: dict[UUID, ThreadPoolExecutor] = {}


@dataclass(frozen=True, kw_only=True)
class Ready:
    """An attempt that needs nothing but room."""

    attempt: Attempt
    claim: Claim
    resolved: Resolved
    spec: TaskPodSpec


class _TooLate(Exception):
    """Not sent: the claim is too old."""


def together(held: Sequence[Claim]) -> dict[Claim, datetime | None]:
    """Bring those that can begin on their way; when each of them is due again. The others are not touched."""
    fresh_until = time.monotonic() + FRESH_S
    ready = list(_ready(held))
    admitted = list(_admitted(ready)) if len(ready) > 1 else []
    if not admitted:
        return {}
    crashpoints.reach("attempt-admitted")
    due: dict[Claim, datetime | None] = {}
    for group, answers in _sent(admitted, fresh_until):
        due |= _stored(group, answers)
    return due


# --- room ------------------------------------------------------------------------------------------------------------


def _ready(held: Sequence[Claim]) -> Iterator[Ready]:
    """In the order of the claims."""
    rows, now = selectors.attempts_of(claim.pk for claim in held), timezone.now()
    begin = {pk: row for pk, row in rows.items() if _begins(row, now)}
    nodes = pods.nodes_of(begin.values())
    meant = resolve.rows_of((row.run.version, nodes[pk]) for pk, row in begin.items())
    for claim in held:
        attempt = begin.get(claim.pk)
        if attempt is None:
            continue
        node = nodes[claim.pk]
        try:
            resolved = resolve.resolved_now(attempt.run.version, node, meant)
            spec = pods.spec_of(attempt, node, resolved)
        except (SpecError, Conflict):
            continue
        yield Ready(attempt=attempt, claim=claim, resolved=resolved, spec=spec)


def _begins(attempt: Attempt, now: datetime) -> bool:
    return (
        attempt.state == AttemptState.QUEUED
        and not attempt.pod_name
        and attempt.ending is None
        and attempt.not_before <= now
        and attempt.queue.cluster.state != ClusterState.UNREACHABLE
    )


def _admitted(ready: Iterable[Ready]) -> Iterator[Ready]:
    """Those for which there is room; each queue is locked once."""
    queues: dict[UUID, list[Ready]] = defaultdict(list)
    for one in ready:
        queues[one.attempt.queue_id].append(one)
    for queue_id, group in queues.items():
        wanted = {
            one.attempt.pk: Admission(claim=one.claim, amount=one.resolved.amount, pod_name=one.spec.object_name)
            for one in group
        }
        ours = finishing.admit_many(queue_id, wanted)
        if any(one.attempt.reason_code == "attempt_waits_for_quota" for one in group if one.attempt.pk in ours):
            wake_next(queue_id)
        for one in group:
            if one.attempt.pk in ours:
                one.attempt.pod_name = one.spec.object_name
                yield one


# --- pods ------------------------------------------------------------------------------------------------------------


class _Group:
    """The attempts of one cluster, and what each create was answered."""

    def __init__(self, client: KubeCluster, members: Sequence[Ready], fresh_until: float) -> None:
        self.client = client
        self.members = members
        self.waiting = len(members)
        self._fresh_until = fresh_until
        self._away: Unreachable | None = None

    def create(self, spec: TaskPodSpec) -> str:
        """The UID of the pod. In a thread of its own; where no connection can be made, one try speaks for all."""
        if time.monotonic() > self._fresh_until:
            raise _TooLate
        if self._away is not None:
            raise self._away
        try:
            return str(self.client.create(task_pod(spec))["metadata"]["uid"])
        except Unreachable as error:
            if not error.maybe_done:
                self._away = error
            raise
        finally:
            connections.close_all()  # a refusal is written down


def _sent(admitted: Iterable[Ready], fresh_until: float) -> Iterator[tuple[_Group, dict[Claim, Future[str]]]]:
    """The answers of each cluster as soon as all of them are there."""
    clusters: dict[UUID, list[Ready]] = defaultdict(list)
    for one in admitted:
        clusters[one.attempt.queue.cluster_id].append(one)
    groups: dict[Future[str], tuple[_Group, dict[Claim, Future[str]]]] = {}
    for pk, members in clusters.items():
        try:
            group = _Group(access.connect(members[0].attempt.queue.cluster), members, fresh_until)
        except (KubeError, Conflict):
            continue  # each says so in its own round
        threads = _sender(pk)
        answers = {one.claim: threads.submit(group.create, one.spec) for one in members}
        groups |= dict.fromkeys(answers.values(), (group, answers))
    for future in as_completed(groups):
        group, answers = groups[future]
        group.waiting -= 1
        if not group.waiting:
            yield group, answers


def _sender(cluster_pk: UUID) -> ThreadPoolExecutor:
    with _lock:
        if cluster_pk not in _senders:
            _senders[cluster_pk] = ThreadPoolExecutor(IN_FLIGHT, thread_name_prefix=f"pods-{cluster_pk.hex[:8]}")
        return _senders[cluster_pk]


def _stored(group: _Group, answers: Mapping[Claim, Future[str]]) -> dict[Claim, datetime | None]:
    """Note what was made; of the rest each answer has its own consequence."""
    made = {claim: future.result() for claim, future in answers.items() if future.exception() is None}
    if made:
        crashpoints.reach("attempt-created")
    kept = finishing.keep_pods(made) if made else set()
    now = timezone.now()
    due: dict[Claim, datetime | None] = {}
    for one in group.members:
        error = answers[one.claim].exception()
        if one.claim.pk in kept:
            due[one.claim] = now + timedelta(seconds=STARTING_S)
        elif error is None:
            finishing.take_back(one.attempt, group.client, one.attempt.queue.namespace)
            due[one.claim] = None
        elif isinstance(error, _TooLate):
            due[one.claim] = now
        elif isinstance(error, KubeError):
            with contextlib.suppress(ClaimLost):
                due[one.claim] = Round(one.attempt, one.claim).not_created(error)
    return due
