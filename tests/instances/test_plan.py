"""Pure parts: the state table, the plan of writes, the stages."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from apps.clusters.models import Cluster
from apps.instances import stages
from apps.instances.models import Instance
from apps.instances.reconcile import DELETE, NEW, START, STOP, plan
from apps.instances.states import INSTANCE_STATES, LAUNCHED, InstanceState
from apps.tenants.models import Queue

S = InstanceState
T0 = datetime(2026, 1, 1, tzinfo=UTC)


def row(state: str, **columns: object) -> Instance:
    return Instance(
        **{"queue": Queue(cluster=Cluster()), "state": state, "generation": 2, "observed_generation": 1, **columns}
    )


def test_every_state_has_steps_and_a_word_and_only_deleted_is_the_end() -> None:
    assert set(INSTANCE_STATES.steps) == set(S) == set(INSTANCE_STATES.labels)
    assert INSTANCE_STATES.terminal == {S.DELETED}
    assert all(after in S for steps in INSTANCE_STATES.steps.values() for after in steps)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (S.STOPPED, S.RUNNING),  # never without a start
        (S.STOPPED, S.STOPPING),
        (S.STOPPING, S.RUNNING),  # never back to the old pod
        (S.FAILED, S.RUNNING),
        (S.DELETING, S.STARTING),
        (S.UNREACHABLE, S.STOPPED),  # silence proves nothing
        (S.RUNNING, S.STOPPED),  # never without a confirmed end
        (S.RUNNING, S.DELETED),
    ],
)
def test_steps_that_would_lie_are_not_in_the_table(before: str, after: str) -> None:
    assert not INSTANCE_STATES.allows(before, after)


def test_a_deletion_is_possible_from_everywhere() -> None:
    assert all(INSTANCE_STATES.allows(state, S.DELETING) for state in S if state != S.DELETED)


@pytest.mark.parametrize("state", sorted(LAUNCHED))
def test_a_launch_writes_all_four_once_and_three_later(state: str) -> None:
    assert plan(row(state)) == NEW
    assert plan(row(state, stateful_set_uid="u")) == START
    assert plan(row(state, stateful_set_uid="u", failures=1)) == NEW


def test_the_route_goes_first_at_a_stop_and_at_a_deletion() -> None:
    assert plan(row(S.STOPPING)) == STOP
    assert plan(row(S.FAILED)) == STOP
    assert plan(row(S.DELETING)) == DELETE
    assert STOP[0] == DELETE[0] == "delete route"


@pytest.mark.parametrize("state", list(S))
def test_nothing_is_written_twice(state: str) -> None:
    assert plan(row(state, observed_generation=2)) == ()


def at(seconds: float) -> str:
    return (T0 + timedelta(seconds=seconds)).isoformat()


def test_stages_show_seconds_after_the_one_before_and_count_the_present_one() -> None:
    instance = row(S.STARTING, start_requested_at=T0, stages={"scheduled": at(0.5), "volume": at(2)})
    found = stages.rows(instance, now=T0 + timedelta(seconds=5))
    assert [(one.name, one.seconds, one.current) for one in found] == [
        ("scheduled", 0.5, False),
        ("volume", 1.5, False),
        ("image", 3.0, True),
        ("started", None, False),
        ("ready", None, False),
    ]


def test_a_stopped_instance_counts_no_stage_on() -> None:
    instance = row(S.STOPPED, start_requested_at=T0, stages={"scheduled": at(1)})
    assert not any(one.current for one in stages.rows(instance, now=T0 + timedelta(hours=1)))
    assert stages.rows(row(S.STOPPED)) == []


def test_the_whole_start_is_the_time_to_ready() -> None:
    assert stages.total_s(row(S.RUNNING, start_requested_at=T0, stages={"ready": at(4.2)})) == 4.2
    assert stages.total_s(row(S.STARTING, start_requested_at=T0)) is None
