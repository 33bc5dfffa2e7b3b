"""What a row keeps of the cluster's events, and in which order a page shows them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from apps.clusters import events
from kubekit.events import EventNote, observe_event

NOW = datetime(2026, 11, 30, 10, 0, tzinfo=UTC)


def note(reason: str, message: str = "m", *, at: datetime = NOW, count: int = 1, about: str = "pod") -> EventNote:
    raw: dict[str, Any] = {
        "reason": reason,
        "message": message,
        "count": count,
        "lastTimestamp": at.isoformat(),
        "involvedObject": {"kind": "Pod", "name": about},
    }
    return observe_event(raw)


def reasons(rows: list[events.Row]) -> list[str]:
    return [row["reason"] for row in rows]


def test_the_newest_stand_first_and_those_of_one_second_in_the_order_in_which_they_came() -> None:
    first = events.merge([], [note("Scheduled"), note("Pulled"), note("Created")])
    assert reasons(first) == ["Created", "Pulled", "Scheduled"]
    assert reasons(events.merge(first, [note("Started")])) == ["Started", "Created", "Pulled", "Scheduled"]
    late = events.merge(first, [note("Killing", at=NOW - timedelta(seconds=1))])
    assert reasons(late) == ["Created", "Pulled", "Scheduled", "Killing"]


def test_a_repeated_event_and_the_progress_of_a_pull_are_one_line() -> None:
    later = NOW + timedelta(seconds=9)
    rows = events.merge([], [note("BackOff", "again"), note("Pulling", "10 %")])
    rows = events.merge(rows, [note("BackOff", "again", at=later, count=7), note("Pulling", "90 %", at=later)])
    assert [(row["reason"], row["count"], row["message"]) for row in rows] == [
        ("Pulling", 1, "90 %"),
        ("BackOff", 7, "again"),
    ]


def test_a_row_keeps_so_many_and_of_each_message_so_much() -> None:
    rows = events.merge([], [note("Failed", f"{number} " + "x" * 900) for number in range(30)])
    assert len(rows) == events.MOST
    assert {len(row["message"]) for row in rows} == {events.MESSAGE_CHARACTERS}


def test_the_same_within_seconds_is_chatter_however_long_its_message_is() -> None:
    said = note("Unhealthy", "x" * 900)
    rows = events.merge([], [said])
    assert events.is_chatter(rows, note("Unhealthy", "x" * 900, at=NOW + timedelta(seconds=1)))
    assert not events.is_chatter(rows, note("Unhealthy", "x" * 900, at=NOW + timedelta(minutes=1)))
    assert not events.is_chatter(rows, note("Unhealthy", "another"))


def test_events_of_several_objects_are_shown_together_newest_first() -> None:
    one = events.shown(events.merge([], [note("Scheduled"), note("Pulled")]), about="one", url="/one")
    two = events.shown(events.merge([], [note("Started", at=NOW + timedelta(seconds=5))]))
    found = events.newest([*one, *two])
    assert [(row["reason"], row["about"], row["url"]) for row in found] == [
        ("Started", "pod", ""),
        ("Pulled", "one", "/one"),
        ("Scheduled", "one", "/one"),
    ]
