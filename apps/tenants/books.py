"""The three books of every queue compared without being asked, by the control process (failure F13).

What differs at two looks in a row has lasted: administrators see it on their home page and are told once.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

from apps.clusters.states import ClusterState
from apps.core import control, standing
from apps.core.models import Trouble
from apps.tenants import checker
from apps.tenants.models import Queue
from apps.tenants.states import QueueState

log = logging.getLogger(__name__)

CODE = "books_differ"
EVERY = timedelta(minutes=5)


async def loop(stop: asyncio.Event) -> None:
    """The control loop."""
    while not await control.sleep(stop, EVERY.total_seconds()):
        await control.in_thread(check_all)


def check_all() -> None:
    """One look at every queue whose cluster answers. Level-triggered: safe at any time."""
    ready = Queue.objects.as_system().filter(state=QueueState.READY, cluster__state=ClusterState.CONNECTED)
    seen = []
    for queue in ready.select_related("cluster").order_by("name"):
        seen.append(str(queue.pk))
        check(queue)
    for row in Trouble.objects.as_system().filter(code=CODE).exclude(subject__in=seen):
        if not Queue.objects.as_system().filter(pk=row.subject, state=QueueState.READY).exists():
            standing.over(CODE, row.subject)  # the queue went, and its books with it


def check(queue: Queue) -> None:
    """Note what differs; another difference than at the last look begins anew. A cluster's silence says nothing."""
    report = checker.check(queue)
    if report.error:
        log.info("the books of %s cannot be compared now: %s", queue.name, report.error)
        return
    wrong = [row for row in report.rows if row.fault]
    if not wrong:
        standing.over(CODE, str(queue.pk))
        return
    names = sorted(row.resource for row in wrong)

    def is_another(before: Trouble) -> bool:
        return not set(before.params.get("resources", ())) & set(names)

    standing.note(
        CODE,
        str(queue.pk),
        params={"queue": queue.name, "resources": names, "url": queue.get_absolute_url()},
        evidence=[f"{row.resource}: {row.ledger} / {row.limits} / {row.quota} / {row.pods}" for row in wrong],
        lasting=EVERY,
        anew=is_another,
    )
