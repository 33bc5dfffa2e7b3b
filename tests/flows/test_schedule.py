"""When cron lines fire, above all where clocks change."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.core import zones
from apps.flows import schedule


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def first(cron: str, zone: str, moment: str, count: int = 1) -> list[str]:
    fires = schedule.fires(cron, zone, at(moment))
    return [next(fires).strftime("%Y-%m-%dT%H:%M") for _ in range(count)]


def test_a_time_in_the_gap_fires_once_at_the_first_instant_after_it() -> None:
    # Berlin, 2026-03-29: 02:00 becomes 03:00 (01:00 UTC).
    assert first("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00", 2) == ["2026-03-29T01:00", "2026-03-30T00:30"]


def test_several_times_in_one_gap_fire_once() -> None:
    found = first("0,20,40 2 * * *", "Europe/Berlin", "2026-03-29T00:30", 2)
    assert found == ["2026-03-29T01:00", "2026-03-30T00:00"]


def test_a_time_that_comes_twice_fires_the_first_time_only() -> None:
    # Berlin, 2026-10-25: 03:00 summer time becomes 02:00 (01:00 UTC).
    assert first("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00", 2) == ["2026-10-25T00:30", "2026-10-26T01:30"]


def test_after_the_first_of_two_the_second_does_not_fire_even_when_asked_in_between() -> None:
    assert first("30 2 * * *", "Europe/Berlin", "2026-10-25T01:10") == ["2026-10-26T01:30"]


def test_every_hour_fires_each_real_hour_through_both_changes() -> None:
    for start in ("2026-03-28T22:00", "2026-10-24T22:00"):
        found = [at(text) for text in first("0 * * * *", "Europe/Berlin", start, 8)]
        assert [later - earlier for earlier, later in itertools.pairwise(found)] == [timedelta(hours=1)] * 7


def test_every_ten_minutes_fires_every_ten_real_minutes_where_the_clock_moves_by_half_an_hour() -> None:
    # Lord Howe Island goes back by 30 minutes on 2026-04-04 at 15:00 UTC.
    fires = schedule.fires("*/10 * * * *", "Australia/Lord_Howe", at("2026-04-04T13:00"))
    found = [next(fires) for _ in range(20)]
    assert [later - earlier for earlier, later in itertools.pairwise(found)] == [timedelta(minutes=10)] * 19


def test_midnight_that_does_not_exist_fires_at_the_first_instant_of_the_day() -> None:
    # Cairo, 2026-04-24: 00:00 becomes 01:00 (22:00 UTC the day before).
    assert first("0 0 * * *", "Africa/Cairo", "2026-04-23T12:00") == ["2026-04-23T22:00"]


@pytest.mark.parametrize(
    ("cron", "code"),
    [
        ("0 0 30 2 *", "cron_never_fires"),
        ("0 0 31 4,6 *", "cron_never_fires"),
        ("61 * * * *", "cron_invalid"),
        ("* * * *", "cron_invalid"),
        ("* * * * * *", "cron_invalid"),
        ("* 25 * * *", "cron_invalid"),
        ("", "cron_invalid"),
        ("a b c d e", "cron_invalid"),
        ("*/0 * * * *", "cron_invalid"),
    ],
)
def test_what_cannot_fire_is_refused_with_its_code(cron: str, code: str) -> None:
    with pytest.raises(schedule.BadCron) as caught:
        schedule.check(cron)
    assert caught.value.code == code


def test_the_sentence_names_the_field_that_is_wrong() -> None:
    with pytest.raises(schedule.BadCron, match="hour"):
        schedule.check("0 24 * * *")


def test_short_forms_are_read() -> None:
    assert first("@daily", "UTC", "2026-01-01T12:00") == ["2026-01-02T00:00"]


def test_missed_keeps_only_the_latest_when_there_are_too_many() -> None:
    found = schedule.missed("* * * * *", "UTC", first=at("2026-01-01T00:00"), now=at("2026-01-02T00:00"), limit=10)
    assert len(found) == 10
    assert found[-1] == at("2026-01-02T00:00")
    assert found[0] == at("2026-01-01T23:51")


@pytest.mark.parametrize(
    "name", ["localtime", "posixrules", "Factory", "posix/Europe/Berlin", "Europe/berlin", "", "/etc"]
)
def test_a_name_that_means_something_else_on_another_machine_is_no_zone(name: str) -> None:
    assert not zones.is_zone(name) and name not in zones.zones()


@pytest.mark.parametrize("name", ["UTC", "Asia/Shanghai", "Etc/GMT-8", "US/Pacific", "EST", "PRC"])
def test_every_name_of_the_database_is_a_zone(name: str) -> None:
    assert zones.is_zone(name)
    assert schedule.after("0 * * * *", name, at("2026-01-01T00:00")) == at("2026-01-01T01:00")


def test_every_zone_that_is_offered_can_be_read_here() -> None:
    assert len(zones.zones()) > 400
    assert {ZoneInfo(zone).key for zone in zones.zones()} == set(zones.zones())


CRONS = st.sampled_from([
    "* * * * *", "*/7 * * * *", "0 * * * *", "30 2 * * *", "0 0 * * *", "15 1,2,3 * * *", "0 */2 * * *",
    "0 0 1 * *", "0 12 * * MON", "59 23 L * *", "*/20 2 * * *", "0 3 29 2 *",
])  # fmt: skip
MOMENTS = st.datetimes(datetime(2024, 1, 1), datetime(2035, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001


@settings(max_examples=300, deadline=None)
@given(cron=CRONS, zone=st.sampled_from(zones.zones()), moment=MOMENTS)
def test_fires_come_later_one_after_the_other_and_are_whole_minutes(cron: str, zone: str, moment: datetime) -> None:
    fires = schedule.fires(cron, zone, moment)
    found = [next(fires) for _ in range(4)]
    assert moment < found[0] < found[1] < found[2] < found[3]
    assert all(fire.second == fire.microsecond == 0 for fire in found)


@settings(max_examples=200, deadline=None)
@given(cron=CRONS, zone=st.sampled_from(zones.zones()), moment=MOMENTS, later=st.integers(0, 100_000))
def test_asking_from_any_instant_before_a_fire_gives_the_same_fire(
    cron: str, zone: str, moment: datetime, later: int
) -> None:
    fire = schedule.after(cron, zone, moment)
    between = min(moment + timedelta(seconds=later), fire - timedelta(seconds=1))
    assert schedule.after(cron, zone, between) == fire


def brute(cron: str, zone: str, moment: datetime) -> datetime:
    """Every minute after the moment, by the written rule, the slow way."""
    minutes = {f"{n}" for n in range(60)}
    parts = cron.split()
    tz = ZoneInfo(zone)

    def wanted(part: str, value: int) -> bool:
        head, _slash, step = part.partition("/")
        if head == "*":
            return value % int(step or 1) == 0
        return str(value) in set(part.split(",")) <= minutes

    def matches(wall: datetime) -> bool:
        return wanted(parts[0], wall.minute) and wanted(parts[1], wall.hour)

    seen = moment
    while True:
        seen = (seen + timedelta(minutes=1)).replace(second=0, microsecond=0)
        local = seen.astimezone(tz)
        before = (seen - timedelta(minutes=1)).astimezone(tz).replace(tzinfo=None)
        wall = local.replace(tzinfo=None)
        if parts[1].startswith("*"):
            if matches(wall):
                return seen
            continue
        skipped = [before + timedelta(minutes=n) for n in range(1, int((wall - before).total_seconds() // 60) + 1)]
        if local.fold == 0 and any(matches(moment) for moment in skipped):
            return seen


CHANGES = [
    ("Europe/Berlin", "2026-03-29T01:00"), ("Europe/Berlin", "2026-10-25T01:00"),
    ("America/New_York", "2026-03-08T07:00"), ("America/New_York", "2026-11-01T06:00"),
    ("Australia/Lord_Howe", "2026-04-04T15:00"), ("Australia/Lord_Howe", "2026-10-03T15:30"),
    ("Africa/Cairo", "2026-04-23T22:00"), ("America/Santiago", "2026-09-06T04:00"),
]  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(
    cron=st.builds(
        lambda minute, hour: f"{minute} {hour} * * *",
        st.sampled_from(["0", "30", "15,45", "*/20", "59"]),
        st.sampled_from(["*", "0", "1", "2", "3", "1,2", "*/2", "23"]),
    ),
    change=st.sampled_from(CHANGES),
    offset=st.integers(-300, 120),
)
def test_near_a_change_the_fire_is_what_a_minute_by_minute_search_finds(
    cron: str, change: tuple[str, str], offset: int
) -> None:
    zone, moment = change[0], at(change[1]) + timedelta(minutes=offset)
    assert schedule.after(cron, zone, moment) == brute(cron, zone, moment)


@settings(max_examples=100, deadline=None)
@given(cron=CRONS, moment=MOMENTS, minutes=st.integers(0, 5000), limit=st.integers(1, 12))
def test_what_was_missed_is_the_latest_of_all_fires(cron: str, moment: datetime, minutes: int, limit: int) -> None:
    first = schedule.after(cron, "Europe/Berlin", moment)
    now = first + timedelta(minutes=minutes)
    every = [first, *itertools.takewhile(lambda fire: fire <= now, schedule.fires(cron, "Europe/Berlin", first))]
    assert schedule.missed(cron, "Europe/Berlin", first=first, now=now, limit=limit) == every[-limit:]


def test_a_year_without_a_scheduler_costs_no_more_than_the_fires_that_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[datetime] = []
    real = schedule.after
    monkeypatch.setattr(schedule, "after", lambda *given: asked.append(given[2]) or real(*given))
    now = at("2026-06-01T00:00")
    found = schedule.missed("* * * * *", "UTC", first=now - timedelta(days=365), now=now, limit=100)
    assert (len(found), found[-1]) == (100, now)
    assert len(asked) < 1000
