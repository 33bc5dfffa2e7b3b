"""The loop that looks into running instances, counts, and has done what follows.

Its own pace: a look each few minutes, and only where a rule could lead to something; a few looks at a time, spread over
the pace, however many instances run. What it remembers of the looks before is in this process alone: after a restart of
the portal, as after a look that failed or came late, counting begins anew.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import F, Q
from django.utils import timezone

from apps.clusters import access
from apps.core import control, wake
from apps.core.errors import PortalError
from apps.instances import imaging
from apps.instances.lifetime import acting
from apps.instances.lifetime.judging import Do, Facts, counted, judge, pace_s
from apps.instances.lifetime.rows import Cause, Lifetime
from apps.instances.models import Instance
from apps.instances.states import InstanceState
from apps.tenants.lifetimes import Policies, Policy
from kubekit import activity
from kubekit.activity import Look
from kubekit.build.pod import CONTAINER
from kubekit.errors import KubeError
from kubekit.streams import Streams

log = logging.getLogger(__name__)

#: Between two rounds. A round without anything due is two statements.
ROUND_S = 15.0
#: The same while there is neither a rule nor an end anywhere; who makes the first one rings.
QUIET_ROUND_S = 300.0
AT_ONCE = 8
#: After so many looks in a row that a cluster did not answer, the round asks it no more.
SILENT_AFTER = 5


@dataclass(frozen=True, kw_only=True)
class Case:
    """A running instance that a rule may concern, as the round found it."""

    pk: UUID
    launch: int
    facts: Facts
    policy: Policy
    looked_at: datetime | None
    last_active_at: datetime | None


@dataclass(kw_only=True)
class Held:
    """What this process remembers of an instance: its last look, if that one succeeded, and by whose clock when."""

    launch: int
    next_at: float
    look: Look | None = None
    at: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a look brought."""

    look: Look | None = None
    problem: str = ""
    at: float = 0.0


@dataclass(kw_only=True)
class Rounds:
    """The rounds of one process. ``clock`` only ever counts; ``spread`` keeps the first looks apart."""

    clock: Callable[[], float] = time.monotonic
    spread: bool = True
    held: dict[UUID, Held] = field(default_factory=dict)
    before: float | None = None
    concerned: bool = True

    async def run(self, stop: asyncio.Event) -> None:
        """The control loop."""
        while not stop.is_set():
            await wake.alarms.wait(wake.LIFETIMES, stop, ROUND_S if self.concerned else QUIET_ROUND_S)
            if not stop.is_set():
                await self.round()

    async def round(self) -> None:
        """Look where it is time to, count, and act."""
        began = self.clock()
        since, self.before = (0.0 if self.before is None else began - self.before), began
        found_cases = await control.in_thread(_cases)
        self.concerned, cases = found_cases is not None, found_cases or {}
        self.held = {pk: held for pk, held in self.held.items() if pk in cases and cases[pk].launch == held.launch}
        due = [case for case in cases.values() if self._is_due(case, began)]
        found = await self._look(due) if due else {}
        now = timezone.now()
        rows: list[Lifetime] = []
        acts: list[tuple[Case, Facts]] = []
        for case in cases.values():
            facts = case.facts
            if facts.warned_for == Cause.LEASE:
                facts = replace(facts, warned_s=facts.warned_s + since)
            if (one := found.get(case.pk)) is not None:
                facts, row = self._count(case, facts, one, now)
                rows.append(row)
            if judge(facts, case.policy, now=now).do is not Do.NOTHING:
                acts.append((case, facts))
        standing = {case.pk: since for case in cases.values() if case.facts.warned_for == Cause.LEASE}
        if rows or standing:
            await control.in_thread(_store, rows, standing)
        for case, facts in acts:
            warned = await control.in_thread(acting.act, case.pk, case.launch, facts, case.policy)
            if warned is not None:
                await self._tell(case, warned)

    def _is_due(self, case: Case, now: float) -> bool:
        pace = pace_s(case.policy)
        if not pace:
            self.held.pop(case.pk, None)
            return False
        held = self.held.get(case.pk)
        if held is None:
            first = now + (case.pk.int % 1000) / 1000 * pace if self.spread else now
            held = self.held[case.pk] = Held(launch=case.launch, next_at=first)
        return held.next_at <= now

    def _count(self, case: Case, facts: Facts, found: Found, now: datetime) -> tuple[Facts, Lifetime]:
        """The facts after a look, and the row to write."""
        held, pace = self.held[case.pk], pace_s(case.policy)
        held.next_at = found.at + pace
        if found.look is None:
            held.look = None
            facts = counted(facts, quiet=False, elapsed_s=None, pace=pace)
            return facts, _row(case, facts, problem=found.problem)
        elapsed_s = None if held.look is None else found.at - held.at
        if held.look is None or elapsed_s is None:
            seen = activity.standing(found.look)
        else:
            seen = activity.activity(held.look, found.look, elapsed_s=elapsed_s)
        facts = counted(facts, quiet=not seen, elapsed_s=elapsed_s, pace=pace)
        held.look, held.at = found.look, found.at
        return facts, _row(case, facts, looked_at=now, active_by=sorted(seen))

    # --- looking -------------------------------------------------------------------------------------------------

    async def _look(self, due: Collection[Case]) -> dict[UUID, Found]:
        instances = await control.in_thread(_instances, [case.pk for case in due])
        doors, silent = asyncio.Semaphore(AT_ONCE), Counter[UUID]()
        async with AsyncExitStack() as stack:
            ways: dict[UUID, Streams | str] = {}
            for instance in instances:
                cluster = instance.queue.cluster
                if cluster.pk not in ways:
                    ways[cluster.pk] = await _way(cluster, stack)
            looks = [self._look_at(one, ways[one.queue.cluster_id], doors, silent) for one in instances]
            return dict(zip([one.pk for one in instances], await asyncio.gather(*looks), strict=True))

    async def _look_at(
        self, instance: Instance, way: Streams | str, doors: asyncio.Semaphore, silent: Counter[UUID]
    ) -> Found:
        cluster = instance.queue.cluster_id
        async with doors:
            if isinstance(way, str) or silent[cluster] >= SILENT_AFTER:
                return Found(problem=way if isinstance(way, str) else "the cluster does not answer", at=self.clock())
            try:
                shell = imaging.shell(instance.image)
                look = await activity.look(way, instance.queue.namespace, instance.pod_name, CONTAINER, shell=shell)
            except KubeError as error:
                silent[cluster] += 1
                log.info("instance %s could not be looked into, which counts as activity: %s", instance.pk, error)
                return Found(problem=error.message[:300], at=self.clock())
            silent[cluster] = 0
            return Found(look=look, at=self.clock())

    async def _tell(self, case: Case, text: str) -> None:
        """Say it in the instance's terminals too; what is written there is no activity of its owner's."""
        found = await control.in_thread(_instances, [case.pk])
        for instance in found:
            async with AsyncExitStack() as stack:
                way = await _way(instance.queue.cluster, stack)
                try:
                    if not isinstance(way, str):
                        shell, where = imaging.shell(instance.image), (instance.queue.namespace, instance.pod_name)
                        await activity.tell(way, *where, CONTAINER, text, shell=shell)
                except KubeError as error:
                    log.info("instance %s: its terminals were not told: %s", instance.pk, error)
        held = self.held.get(case.pk)
        if held is not None and held.look is not None:
            held.look = held.look.before_a_message()


async def _way(cluster: Any, stack: AsyncExitStack) -> Streams | str:
    """Streams to a cluster, or why there are none."""
    try:
        credentials = await control.in_thread(access.credentials_of, cluster)
    except (KubeError, PortalError) as error:
        return str(error)[:300]
    return await stack.enter_async_context(Streams(credentials))


# --- in the database ---------------------------------------------------------------------------------------------


def _cases() -> dict[UUID, Case] | None:
    """What runs and may be concerned. Where no team has a rule, these are only those with an end of their own; None
    where no instance that lives has one."""
    policies = Policies()
    rows = Instance.objects.as_system().filter(state=InstanceState.RUNNING)
    if not policies.any_can_stop:
        alone = Lifetime.objects.as_system().filter(Q(ends_at__isnull=False) | ~Q(warned_for=""))
        if not alone.exclude(instance__state=InstanceState.DELETED).exists():
            return None
        rows = rows.filter(Q(lifetime__ends_at__isnull=False) | ~Q(lifetime__warned_for=""), lifetime__isnull=False)
    names = ("ends_at", "keep_until", "idle_s", "warned_for", "warned_s", "launch", "looked_at", "last_active_at")
    found = {}
    for row in rows.values("pk", "launch", "queue__team_id", "start_requested_at", *(f"lifetime__{n}" for n in names)):
        known = {name: row[f"lifetime__{name}"] for name in names}
        same = known["launch"] == row["launch"]
        found[row["pk"]] = Case(
            pk=row["pk"],
            launch=row["launch"],
            policy=policies.of(row["queue__team_id"]),
            looked_at=known["looked_at"] if same else None,
            last_active_at=known["last_active_at"] if same else None,
            facts=Facts(
                state=InstanceState.RUNNING,
                started_at=row["start_requested_at"],
                ends_at=known["ends_at"],
                keep_until=known["keep_until"],
                idle_s=known["idle_s"] if same else 0.0,
                warned_for=known["warned_for"] if same else "",
                warned_s=known["warned_s"] if same else 0.0,
            ),
        )
    return found


def _instances(pks: Collection[UUID]) -> list[Instance]:
    rows = Instance.objects.as_system().filter(pk__in=pks).select_related("queue__cluster", "image")
    return list(rows)


def _row(
    case: Case,
    facts: Facts,
    *,
    looked_at: datetime | None = None,
    active_by: Collection[str] = (),
    problem: str = "",
) -> Lifetime:
    """What is counted, ready to be written."""
    return Lifetime(
        instance_id=case.pk,
        launch=case.launch,
        looked_at=looked_at or case.looked_at,
        last_active_at=looked_at if active_by else case.last_active_at,
        active_by=list(active_by),
        problem=problem,
        idle_s=int(facts.idle_s),
        warned_s=int(facts.warned_s),
    )


COUNTED = ("launch", "looked_at", "last_active_at", "active_by", "problem", "idle_s", "warned_s")
#: A new launch knows nothing of the one before.
ANEW = (*COUNTED, "warned_for", "warned_at", "stops_at")


def _store(rows: Collection[Lifetime], standing: Mapping[UUID, float]) -> None:
    """All of them in one statement, or two. What people set, and warnings, are not touched (`acting` writes those).

    ``standing`` are warnings of an end that have stood so many seconds longer.
    """
    pks = [row.instance_id for row in rows]
    known = set(Lifetime.objects.as_system().filter(pk__in=pks).values_list("instance_id", "launch"))
    for names, chosen in (
        (COUNTED, [row for row in rows if (row.instance_id, row.launch) in known]),
        (ANEW, [row for row in rows if (row.instance_id, row.launch) not in known]),
    ):
        if chosen:
            Lifetime.objects.bulk_create(
                chosen, update_conflicts=True, unique_fields=["instance"], update_fields=list(names)
            )
    for pk, seconds in standing.items():
        own = Lifetime.objects.as_system().filter(pk=pk, warned_for=Cause.LEASE)
        own.update(warned_s=F("warned_s") + round(seconds))
