"""Answers before anything is made: when it would fire, and whether it would run."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from django.utils.translation import gettext as _

from apps.catalog.models import Size
from apps.clusters import room
from apps.clusters.room import Verdict
from apps.core import zones
from apps.core.errors import Invalid
from apps.flows import schedule
from apps.flows.models import Flow
from apps.flows.states import FlowState
from apps.tenants import amounts, ledger
from apps.tenants.models import Queue


def next_fires(flow: Flow, now: datetime, count: int = 5) -> list[datetime]:
    """The next fires of all schedules of the current version, from its document: no statement."""
    if flow.state != FlowState.ACTIVE or flow.version is None:
        return []
    rows = [entry for entry in flow.version.document["schedules"] if entry["enabled"]]
    found: list[datetime] = []
    for moment in heapq.merge(*(schedule.fires(row["cron"], row["timezone"], now) for row in rows)):
        if not found or moment != found[-1]:
            found.append(moment)
        if len(found) == count:
            break
    return found


def fires_of(cron: str, zone: str, now: datetime) -> list[datetime]:
    """The next five of one line. Raises ``Invalid`` with the field that is wrong."""
    if not zones.is_zone(zone):
        text = _("There is no time zone “%(zone)s”.") % {"zone": zone}
        raise Invalid(text, code="timezone_unknown", errors={"timezone": text})
    try:
        return list(islice(schedule.fires(cron, zone, now), 5))
    except schedule.BadCron as error:
        raise Invalid(error.sentence, code=error.code, errors={"cron": error.sentence}) from error


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """``now``, ``queued`` or ``never``; a sentence, and the change that would help."""

    answer: str
    sentence: str
    change: str = ""


def will_it_run(queue: Queue, size: Size) -> Forecast:
    """For a run that started now. A full queue lets it wait, so only what can never fit is ``never``."""
    whole = ledger.fit(queue_name=queue.name, asked=size.amount, used={}, limit=ledger.limits(queue))
    if not whole.fits:
        return Forecast(answer="never", sentence=whole.sentence, change=whole.next)
    answer = room.will_fit(queue.cluster, size.amount)
    if answer.verdict is Verdict.NEVER:
        sentence = _("No node is large enough: %(asked)s asked, the closest has %(has)s.") % {
            "asked": amounts.show(answer.resource, answer.asked),
            "has": amounts.show(answer.resource, answer.available),
        }
        return Forecast(answer="never", sentence=sentence, change=_("Choose a smaller size or another queue."))
    now = ledger.would_fit(queue, size.amount)
    if not now.fits:
        return Forecast(
            answer="queued", sentence=now.sentence, change=_("A run waits until something else in the queue ends.")
        )
    if answer.verdict is Verdict.NOW:
        return Forecast(answer="now", sentence=_("Quota and nodes have room for a run now."))
    return Forecast(answer="queued", sentence=_("The quota allows it; a run may have to wait for room on a node."))
