"""Events in plain words, and the stages of a start with their times."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from kubekit.events import observe_event, observe_events, stages
from kubekit.observe import observe_pod
from tests.kubekit.samples import container_status, raw_event, raw_pod


@pytest.mark.parametrize(
    ("reason", "message", "sentence"),
    [
        ("Scheduled", "Successfully assigned ns/p to node-1", "A place was found on node-1."),
        ("Pulling", 'Pulling image "team/x:1"', "Pulling the image team/x:1."),
        (
            "Pulled",
            'Successfully pulled image "team/x:1" in 2.351s (2.351s including waiting). Image size: 5 bytes.',
            "The image team/x:1 was pulled in 2.351s.",
        ),
        (
            "Pulled",
            'Container image "team/x:1" already present on machine',
            "The image is already on the node: team/x:1.",
        ),
        ("Started", "Started container main", "The program was started."),
        ("BackOff", 'Back-off pulling image "team/x:1"', "Waiting before the image team/x:1 is pulled again."),
        (
            "BackOff",
            "Back-off restarting failed container main in pod p",
            "The program keeps ending; waiting before it is started again.",
        ),
        ("Failed", 'Failed to pull image "x:1": not found', "The image x:1 could not be pulled."),
        (
            "Failed",
            'Error: failed to create containerd task: exec: "nope": executable file not found in $PATH',
            "The command does not exist in the image.",
        ),
        ("SomethingNew", "the cluster's own words", "the cluster's own words"),
        ("Bare", "", "Bare"),
    ],
)
def test_sentences(reason: str, message: str, sentence: str) -> None:
    assert observe_event(raw_event(reason, message)).sentence == sentence


def test_an_old_event_and_a_new_one_are_read_alike() -> None:
    old = observe_event(raw_event("X", "m", count=7))
    new = observe_event(
        {
            "regarding": {"kind": "Pod", "name": "p", "uid": "u"},
            "reason": "X",
            "note": "m",
            "type": "Normal",
            "eventTime": "2026-11-30T15:00:02.123456Z",
            "series": {"count": 3, "lastObservedTime": "2026-11-30T15:00:09.5Z"},
        }
    )
    assert (old.count, old.message, old.warning, old.object_uid) == (7, "m", True, "uid-1")
    assert (new.count, new.message, new.warning, new.object_uid) == (3, "m", False, "u")
    assert new.time == datetime(2026, 11, 30, 15, 0, 9, 500000, tzinfo=UTC)


def test_an_event_without_any_time_comes_first() -> None:
    bare = {"reason": "A", "metadata": {}}
    assert [note.reason for note in observe_events([raw_event("B", ""), bare])] == ["A", "B"]


def test_events_of_one_second_keep_the_order_in_which_they_were_stored() -> None:
    rows = [
        {**raw_event(reason, ""), "metadata": {"name": name, "resourceVersion": version}}
        for reason, name, version in (("Started", "a", "12"), ("Created", "b", "9"), ("Pulled", "c", "8"))
    ]
    assert [note.reason for note in observe_events(rows)] == ["Pulled", "Created", "Started"]


def seconds(pod: dict[str, Any], *events: dict[str, Any]) -> list[int | None]:
    return [row.at.second if row.at else None for row in stages(observe_pod(pod), observe_events(events))]


def at(second: int, reason: str, **changes: Any) -> dict[str, Any]:
    return raw_event(reason, "", lastTimestamp=f"2026-11-30T15:00:{second:02}Z", **changes)


def test_the_stages_of_a_start_are_all_there_and_in_order() -> None:
    rows = stages(observe_pod(raw_pod()), observe_events([at(3, "Pulling"), at(5, "Pulled")]))
    assert [row.name for row in rows] == ["scheduled", "volume", "image", "started", "ready"]
    assert [row.at.second for row in rows if row.at] == [1, 3, 5, 6, 9]


def test_a_stage_that_is_not_done_has_no_time() -> None:
    pod = raw_pod(
        conditions=[{"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-30T15:00:01Z"}],
        containerStatuses=container_status(waiting={"reason": "ContainerCreating"}),
    )
    assert seconds(pod) == [1, None, None, None, None]
    assert seconds(pod, at(4, "Pulling")) == [1, 4, None, None, None]


def test_a_later_stage_proves_the_earlier_ones() -> None:
    pod = raw_pod(conditions=[{"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-30T15:00:01Z"}])
    assert seconds(pod) == [1, 1, 1, 6, None]


def test_events_of_an_earlier_pod_of_the_same_name_do_not_count() -> None:
    pod = raw_pod(conditions=[], containerStatuses=[])
    other = {"involvedObject": {"kind": "Pod", "name": "nightly-train-2-abc", "uid": "another"}}
    assert seconds(pod, at(4, "Pulled", **other)) == [None] * 5


def test_times_never_run_backwards() -> None:
    found = [value for value in seconds(raw_pod(), at(2, "Pulled")) if value is not None]
    assert found == sorted(found)
