"""Whether an instance is to be warned of or stopped: pure functions of values.

Two rules stand above all: what was not looked at and found quiet, for a whole idle period without a gap, is not idle;
and nothing is stopped that was not warned of, for the same reason, a whole warning period before. Both periods are
sums of seconds that a clock counted which cannot be set, so that setting a clock shortens neither.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from apps.instances.lifetime.rows import Cause
from apps.instances.states import InstanceState
from apps.tenants.lifetimes import Policy

#: Looks are this far apart at most, and at least; in between, so many that a warning has several of them.
LONGEST_PACE_S = 300.0
SHORTEST_PACE_S = 20.0
LOOKS_IN_A_PERIOD = 6
#: A look that comes later than this many paces after the one before has a gap behind it, in which nobody looked.
GAP_PACES = 3.0


class Do(StrEnum):
    """What follows."""

    NOTHING = "nothing"
    WARN = "warn"
    WITHDRAW = "withdraw"
    STOP = "stop"


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known of one instance. ``idle_s`` and ``warned_s`` as in the row; ``started_at`` began its launch."""

    state: str
    started_at: datetime | None = None
    ends_at: datetime | None = None
    keep_until: datetime | None = None
    idle_s: float = 0.0
    warned_for: str = ""
    warned_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What to do, why, and in how many seconds it is stopped if nothing happens."""

    do: Do
    cause: Cause | None = None
    left_s: float = 0.0


NOTHING = Verdict(do=Do.NOTHING)


def judge(facts: Facts, policy: Policy, *, now: datetime) -> Verdict:
    """What follows from the facts."""
    if facts.state != InstanceState.RUNNING:
        return NOTHING
    left = {cause: _left_s(cause, facts, policy, now) for cause in (Cause.IDLE, Cause.LEASE)}
    near = {cause: left_s for cause, left_s in left.items() if left_s is not None}
    if facts.warned_for in near:
        cause = Cause(facts.warned_for)
        left_s = max(near[cause], policy.warning.total_seconds() - facts.warned_s)
        return Verdict(do=Do.STOP if left_s <= 0 else Do.NOTHING, cause=cause, left_s=left_s)
    if near:
        cause = min(near, key=lambda one: near[one])
        return Verdict(do=Do.WARN, cause=cause, left_s=max(near[cause], policy.warning.total_seconds()))
    return Verdict(do=Do.WITHDRAW) if facts.warned_for else NOTHING


def _left_s(cause: Cause, facts: Facts, policy: Policy, now: datetime) -> float | None:
    """Seconds until the cause itself has come; None while it is further away than its warning."""
    warning_s = policy.warning.total_seconds()
    if cause is Cause.LEASE:
        end = end_of(facts, policy, now=now)
        left_s = None if end is None else (end - now).total_seconds()
        return left_s if left_s is not None and left_s <= warning_s else None
    limit_s = policy.idle.total_seconds()
    if not limit_s or (facts.keep_until is not None and facts.keep_until > now):
        return None
    # With rules of two origins the warning may be as long as the period: half of it passes in silence all the same.
    if facts.idle_s < max(limit_s - warning_s, limit_s / 2):
        return None
    return limit_s - facts.idle_s


def end_of(facts: Facts, policy: Policy, *, now: datetime) -> datetime | None:
    """When the present launch ends: the owner's word, not later than the team's longest lease; *keep until* moves it.

    An end that lies before the launch was an earlier launch's.
    """
    ends = []
    if facts.ends_at is not None and (facts.started_at is None or facts.ends_at > facts.started_at):
        ends.append(facts.ends_at)
    if policy.longest_lease and facts.started_at is not None:
        ends.append(facts.started_at + policy.longest_lease)
    if not ends:
        return None
    end = min(ends)
    kept = facts.keep_until
    return kept if kept is not None and kept > now and kept > end else end


def pace_s(policy: Policy) -> float:
    """Seconds between two looks, where being idle can lead to something; 0: none are needed."""
    idle_s = policy.idle.total_seconds()
    if not idle_s:
        return 0.0
    shortest = min(idle_s, 2 * policy.warning.total_seconds())
    return min(LONGEST_PACE_S, max(SHORTEST_PACE_S, shortest / LOOKS_IN_A_PERIOD))


def counted(facts: Facts, *, quiet: bool, elapsed_s: float | None, pace: float) -> Facts:
    """The facts after one look. ``elapsed_s`` since the look before, of this launch and by this process; None: there
    is none, and what was counted before counts no more."""
    if not quiet or elapsed_s is None or elapsed_s > GAP_PACES * pace:
        return replace(facts, idle_s=0.0)
    warned = facts.warned_s + elapsed_s if facts.warned_for == Cause.IDLE else facts.warned_s
    return replace(facts, idle_s=facts.idle_s + elapsed_s, warned_s=warned)


def stops_in(verdict: Verdict, now: datetime) -> datetime | None:
    """The moment to tell people; the count itself does not depend on it."""
    return now + timedelta(seconds=max(0.0, verdict.left_s)) if verdict.cause is not None else None
