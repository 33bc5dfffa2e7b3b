"""When a cron line fires: pure functions from (expression, time zone, instant) to UTC instants.

The rule for clocks that are put forward or back, which ``docs/flows.md`` tells to people:

* The hour field does not begin with ``*`` (a time of day): a time that the clock skips fires at the first instant
  after the gap, a time that comes twice fires the first time only.
* The hour field begins with ``*`` (every hour, every second hour): it fires at each real instant at which the clock
  on the wall matches, so a repeated hour fires again and a skipped one does not exist.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import takewhile
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from cronsim.cronsim import Field
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

MAX_LENGTH = 100
_EPOCH = datetime(2024, 1, 1)  # noqa: DTZ001 - the wall clock of no zone in particular
#: No clock is put back by more than this. (Samoa once skipped a whole day; that is a gap, which needs no bound.)
_NEAR = timedelta(hours=3)
_FIELDS = (
    gettext_lazy("minute"), gettext_lazy("hour"), gettext_lazy("day of the month"), gettext_lazy("month"),
    gettext_lazy("day of the week"),
)  # fmt: skip
_SHORT = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


class BadCron(ValueError):
    """The expression cannot be used; ``code`` is ``cron_invalid`` or ``cron_never_fires``."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code
        self.sentence = sentence


@lru_cache(maxsize=1024)
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)


def fields(cron: str) -> list[str]:
    """The five fields, short forms such as ``@daily`` written out. Raises ``BadCron``."""
    text = " ".join(cron.split())
    parts = _SHORT.get(text.lower(), text).split()
    if len(parts) != len(_FIELDS) or len(text) > MAX_LENGTH:
        raise BadCron(
            "cron_invalid",
            _("Five fields are expected: minute, hour, day of the month, month, day of the week."),
        )
    return parts


def check(cron: str) -> None:
    """Raise ``BadCron`` for what cannot be read or never fires; the sentence names the field."""
    _wall_clock(" ".join(fields(cron)))


@lru_cache(maxsize=8192)
def _wall_clock(cron: str) -> tuple[str, bool]:
    """A checked expression, and whether it fires by real hours (see the module's rule)."""
    parts = cron.split()
    for field, label, part in zip(list(Field)[1:], _FIELDS, parts, strict=True):
        try:
            field.parse(part.upper())
        except (CronSimError, ValueError, AssertionError) as error:
            raise BadCron(
                "cron_invalid", _("“%(part)s” is not a valid %(field)s.") % {"part": part, "field": label}
            ) from error
    never = BadCron("cron_never_fires", _("This never fires: there is no such date."))
    try:
        next(CronSim(cron, _EPOCH))
    except (StopIteration, CronSimError) as error:
        raise never from error
    return cron, parts[1].startswith("*")


def after(cron: str, zone: str, moment: datetime) -> datetime:
    """The first fire strictly after ``moment``, in UTC. Raises ``BadCron`` for a bad expression."""
    expression, by_real_hours = _wall_clock(" ".join(fields(cron)))
    tz = _zone(zone)
    find = _next_real if by_real_hours else _next_wall
    return find(expression, tz, moment.astimezone(UTC).replace(microsecond=0))


def fires(cron: str, zone: str, moment: datetime) -> Iterator[datetime]:
    """All fires after ``moment``, without end."""
    while True:
        moment = after(cron, zone, moment)
        yield moment


def missed(cron: str, zone: str, *, first: datetime, now: datetime, limit: int) -> list[datetime]:
    """The fires from ``first`` (itself one) up to ``now``; only the latest ``limit`` of them when there are more.

    It looks back from ``now`` over ever longer spans, so that a year without a scheduler costs no more than a day.
    """
    span = timedelta(minutes=limit)
    while True:
        start = max(first, now - span)
        found = [first] if start == first else []
        found += takewhile(lambda moment: moment <= now, fires(cron, zone, start))
        if start == first or len(found) >= limit:
            return found[-limit:]
        span *= 8


def _walls(expression: str, start: datetime) -> Iterator[datetime]:
    return iter(CronSim(expression, start))


def _instant(wall: datetime, tz: ZoneInfo, fold: int = 0) -> datetime:
    return wall.replace(tzinfo=tz, fold=fold).astimezone(UTC)


def _exists(wall: datetime, tz: ZoneInfo, instant: datetime) -> bool:
    return instant.astimezone(tz).replace(tzinfo=None, fold=0) == wall


def _next_wall(expression: str, tz: ZoneInfo, moment: datetime) -> datetime:
    """A time of day: the first wall time whose instant, by the rule, lies after ``moment``."""
    for wall in _walls(expression, moment.astimezone(tz).replace(tzinfo=None, fold=0)):
        instant = _instant(wall, tz)
        if not _exists(wall, tz, instant):
            instant = _end_of_gap(wall, tz)
        if instant > moment:
            return instant
    raise BadCron("cron_never_fires", _("This never fires: there is no such date."))


def _next_real(expression: str, tz: ZoneInfo, moment: datetime) -> datetime:
    """Real hours: the first instant after ``moment`` whose wall time matches."""
    local = moment.astimezone(tz)
    offset = local.utcoffset()
    wall = next(_walls(expression, local.replace(tzinfo=None, fold=0)))
    instant = (wall - (offset or timedelta())).replace(tzinfo=UTC)
    around = (instant, instant - _NEAR)
    if all(other.astimezone(tz).utcoffset() == offset for other in around):
        return instant
    return _next_real_near_change(expression, tz, moment)


def _next_real_near_change(expression: str, tz: ZoneInfo, moment: datetime) -> datetime:
    """The same where the clock changes: both readings of every wall time, until nothing earlier can come."""
    best: datetime | None = None
    start = moment.astimezone(tz).replace(tzinfo=None, fold=0) - _NEAR
    for wall in _walls(expression, start):
        for fold in (0, 1):
            instant = _instant(wall, tz, fold)
            if instant > moment and _exists(wall, tz, instant) and (best is None or instant < best):
                best = instant
        if best is not None and wall > best.astimezone(tz).replace(tzinfo=None) + _NEAR:
            return best
    raise BadCron("cron_never_fires", _("This never fires: there is no such date."))


def _end_of_gap(wall: datetime, tz: ZoneInfo) -> datetime:
    """The first instant whose wall time is at or after ``wall``, which the clock skips."""
    # Read with the offset of before the gap the time lies after the change, with the one of after it before.
    low, high = sorted((_instant(wall, tz, 0), _instant(wall, tz, 1)))
    offset = low.astimezone(tz).utcoffset()
    while high - low > timedelta(seconds=1):
        middle = low + (high - low) / 2
        if middle.astimezone(tz).utcoffset() == offset:
            low = middle
        else:
            high = middle
    return high.replace(microsecond=0)
