"""F48 in figures: when an instance is warned of and stopped, as functions of values, over many made-up lives."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.instances.lifetime.judging import (
    GAP_PACES,
    LONGEST_PACE_S,
    SHORTEST_PACE_S,
    Do,
    Facts,
    counted,
    end_of,
    judge,
    pace_s,
)
from apps.instances.lifetime.rows import Cause
from apps.instances.states import InstanceState
from apps.tenants.lifetimes import Policy

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
POLICY = Policy(idle=60 * MINUTE, warning=15 * MINUTE, longest_lease=timedelta())
RUNNING = Facts(state=InstanceState.RUNNING, started_at=NOW - timedelta(hours=5))


def test_f48_an_hour_of_quiet_looks_warns_a_quarter_before_and_then_stops() -> None:
    assert judge(replace(RUNNING, idle_s=44 * 60), POLICY, now=NOW).do is Do.NOTHING
    warned = judge(replace(RUNNING, idle_s=45 * 60), POLICY, now=NOW)
    assert (warned.do, warned.cause, warned.left_s) == (Do.WARN, Cause.IDLE, 15 * 60)
    later = replace(RUNNING, idle_s=59 * 60, warned_for=Cause.IDLE, warned_s=14 * 60)
    assert judge(later, POLICY, now=NOW).do is Do.NOTHING
    over = replace(RUNNING, idle_s=60 * 60, warned_for=Cause.IDLE, warned_s=15 * 60)
    assert judge(over, POLICY, now=NOW).do is Do.STOP


def test_f48_nothing_is_stopped_however_idle_before_its_warning_has_stood_for_its_time() -> None:
    long_idle = replace(RUNNING, idle_s=10 * 3600)
    assert judge(long_idle, POLICY, now=NOW).do is Do.WARN
    assert judge(replace(long_idle, warned_for=Cause.IDLE, warned_s=899), POLICY, now=NOW).do is Do.NOTHING
    assert judge(replace(long_idle, warned_for=Cause.LEASE, warned_s=9000), POLICY, now=NOW).do is Do.WARN


def test_f48_activity_withdraws_a_warning() -> None:
    warned = replace(RUNNING, idle_s=50 * 60, warned_for=Cause.IDLE, warned_s=300)
    again = counted(warned, quiet=False, elapsed_s=300, pace=300)
    assert again.idle_s == 0
    assert judge(again, POLICY, now=NOW).do is Do.WITHDRAW


@pytest.mark.parametrize("state", [state for state in InstanceState if state != InstanceState.RUNNING])
def test_what_does_not_run_is_neither_warned_of_nor_stopped(state: InstanceState) -> None:
    facts = Facts(state=state, idle_s=9e9, warned_for=Cause.IDLE, warned_s=9e9, ends_at=NOW - MINUTE)
    assert judge(facts, POLICY, now=NOW).do is Do.NOTHING


def test_without_a_rule_nothing_is_looked_at_and_nothing_follows() -> None:
    assert pace_s(Policy()) == 0
    assert judge(replace(RUNNING, idle_s=9e9), Policy(), now=NOW).do is Do.NOTHING


def test_keep_until_silences_idleness_and_moves_an_end_and_both_come_back_after_it() -> None:
    idle = replace(RUNNING, idle_s=3600, warned_for=Cause.IDLE, warned_s=900)
    assert judge(replace(idle, keep_until=NOW + MINUTE), POLICY, now=NOW).do is Do.WITHDRAW
    assert judge(replace(idle, keep_until=NOW), POLICY, now=NOW).do is Do.STOP
    ends = replace(RUNNING, ends_at=NOW + MINUTE)
    assert end_of(replace(ends, keep_until=NOW + 90 * MINUTE), POLICY, now=NOW) == NOW + 90 * MINUTE
    assert judge(replace(ends, keep_until=NOW + 90 * MINUTE), POLICY, now=NOW).do is Do.NOTHING
    assert judge(ends, POLICY, now=NOW).do is Do.WARN


def test_the_earlier_of_the_owners_end_and_the_longest_lease_counts() -> None:
    policy = replace(POLICY, longest_lease=timedelta(hours=6))
    assert end_of(RUNNING, policy, now=NOW) == NOW + timedelta(hours=1)
    assert end_of(replace(RUNNING, ends_at=NOW + MINUTE), policy, now=NOW) == NOW + MINUTE
    assert end_of(replace(RUNNING, ends_at=NOW + timedelta(days=9)), policy, now=NOW) == NOW + timedelta(hours=1)
    assert end_of(RUNNING, POLICY, now=NOW) is None


def test_an_end_of_an_earlier_launch_is_not_one_of_this_launch() -> None:
    assert end_of(replace(RUNNING, ends_at=NOW - timedelta(hours=6)), POLICY, now=NOW) is None


def test_an_end_that_is_nearer_than_its_warning_waits_for_the_warning() -> None:
    soon = replace(RUNNING, ends_at=NOW + MINUTE)
    assert judge(soon, POLICY, now=NOW).left_s == 15 * 60
    past = NOW + 5 * MINUTE
    assert judge(replace(soon, warned_for=Cause.LEASE, warned_s=300), POLICY, now=past).do is Do.NOTHING
    assert judge(replace(soon, warned_for=Cause.LEASE, warned_s=900), POLICY, now=past).do is Do.STOP


@pytest.mark.parametrize("elapsed_s", [None, GAP_PACES * 300 + 1])
def test_f48_a_look_without_one_before_or_after_a_gap_begins_the_count_anew(elapsed_s: float | None) -> None:
    facts = replace(RUNNING, idle_s=3000)
    assert counted(facts, quiet=True, elapsed_s=elapsed_s, pace=300).idle_s == 0


def test_a_warning_of_an_end_is_not_counted_by_looks() -> None:
    facts = replace(RUNNING, warned_for=Cause.LEASE, warned_s=10)
    assert counted(facts, quiet=True, elapsed_s=300, pace=300).warned_s == 10


@given(idle=st.integers(10, 5000), warning=st.integers(2, 3000))
def test_looks_are_minutes_apart_and_a_warning_has_several(idle: int, warning: int) -> None:
    policy = Policy(idle=idle * MINUTE, warning=warning * MINUTE)
    pace = pace_s(policy)
    assert SHORTEST_PACE_S <= pace <= LONGEST_PACE_S
    assert pace * 3 <= max(60, policy.warning.total_seconds())


#: One step of a made-up life: what the look says, and what else happens around it.
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["quiet"] * 8 + ["busy", "failed", "restart", "late", "forward", "back"]),
        st.floats(20, 400),
        st.sampled_from([None] * 12 + ["keep", "end"]),
    ),
    min_size=1,
    max_size=60,
)


@settings(max_examples=300, deadline=None)
@given(steps=STEPS, lease=st.sampled_from([timedelta(), timedelta(hours=1)]))
def test_f48_no_life_of_looks_failures_restarts_and_wrong_clocks_stops_what_was_used_or_not_warned_of(
    steps: list[tuple[str, float, str | None]], lease: timedelta
) -> None:
    policy = Policy(idle=30 * MINUTE, warning=8 * MINUTE, longest_lease=lease)
    pace, warning_s = pace_s(policy), policy.warning.total_seconds()
    facts = Facts(state=InstanceState.RUNNING, started_at=NOW)
    true_s, off = 0.0, timedelta()  # seconds by a clock nobody sets, and by how much the machine's is wrong
    quiet_since: float | None = None  # of looks in a row without any gap
    last_look: float | None = None
    warned_at: float | None = None
    for kind, seconds, wish in steps:
        true_s += seconds if kind != "late" else pace * GAP_PACES + 1 + seconds
        off += {"forward": timedelta(days=3), "back": -timedelta(days=3)}.get(kind, timedelta())
        now = NOW + timedelta(seconds=true_s) + off
        elapsed = None if last_look is None or kind in {"restart", "failed"} else true_s - last_look
        if facts.warned_for == Cause.LEASE and kind != "restart":
            facts = replace(facts, warned_s=facts.warned_s + seconds)
        quiet = kind not in {"busy", "failed"}
        facts = counted(facts, quiet=quiet, elapsed_s=elapsed, pace=pace)
        if not quiet or elapsed is None or elapsed > GAP_PACES * pace:
            quiet_since = true_s
        last_look = None if kind == "failed" else true_s
        if wish == "keep":
            facts = replace(facts, keep_until=now + timedelta(hours=1), warned_for="", warned_s=0)
            warned_at = None
        elif wish == "end":
            facts = replace(facts, ends_at=now + 20 * MINUTE, warned_for="", warned_s=0)
            warned_at = None
        verdict = judge(facts, policy, now=now)
        if verdict.do is Do.WARN:
            facts = replace(facts, warned_for=str(verdict.cause), warned_s=0)
            warned_at = true_s
        elif verdict.do is Do.WITHDRAW:
            facts, warned_at = replace(facts, warned_for="", warned_s=0), None
        elif verdict.do is Do.STOP:
            assert warned_at is not None
            assert true_s - warned_at >= warning_s - 1e-6
            assert facts.keep_until is None or facts.keep_until <= now
            if verdict.cause is Cause.IDLE:
                assert quiet_since is not None
                assert true_s - quiet_since >= policy.idle.total_seconds() - 1e-6
            return


def test_the_made_up_lives_would_find_a_stop_without_a_warning() -> None:
    """The property above is not empty: quiet lives do end."""
    policy = Policy(idle=30 * MINUTE, warning=8 * MINUTE)
    facts, did = Facts(state=InstanceState.RUNNING, started_at=NOW), []
    for step in range(60):
        facts = counted(facts, quiet=True, elapsed_s=60.0 if step else None, pace=pace_s(policy))
        verdict = judge(facts, policy, now=NOW + step * MINUTE)
        if verdict.do is not Do.NOTHING:
            did.append((step, verdict.do))
        if verdict.do is Do.WARN:
            facts = replace(facts, warned_for=str(verdict.cause), warned_s=0)
        if verdict.do is Do.STOP:
            break
    assert did == [(22, Do.WARN), (30, Do.STOP)]
