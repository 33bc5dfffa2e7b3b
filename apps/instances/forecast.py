"""Will it run? The answer before anything is made: from the quota ledger and the nodes' room as last seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from django.utils.translation import gettext as _

from apps.catalog.models import Size
from apps.clusters import room
from apps.clusters.room import RoomAnswer, Verdict
from apps.clusters.states import ClusterState
from apps.core.actors import Actor
from apps.instances import changes, choices
from apps.instances.models import Instance
from apps.instances.spec import KIND
from apps.tenants import amounts, ledger
from apps.tenants.ledger import Amount
from apps.tenants.models import Queue

Answer = Literal["now", "queued", "never"]


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """``now``, ``queued`` (accepted, waits for room) or ``never`` (as things are), why, and what would fit."""

    answer: Answer
    code: str
    sentence: str
    change: str = ""
    size_that_fits: str = ""

    def as_dict(self) -> dict[str, Any]:
        """For the API."""
        return {
            "answer": self.answer,
            "code": self.code,
            "sentence": self.sentence,
            "change": self.change,
            "size_that_fits": self.size_that_fits or None,
        }


def will_it_run(*, actor: Actor, queue: Queue, size: Size, instead_of: Instance | None = None) -> Forecast:
    """Compare the size with quota and room. The ledger and the scheduler decide when it comes to it.

    ``instead_of`` is what would be started with this size: what it holds now it gives back before.
    """
    amount = size.amount
    if instead_of is not None and _has_room_for(instead_of, amount):
        return Forecast(answer="now", code="fits", sentence=_("It needs no more than what it has now."))
    fit = ledger.would_fit(queue, amount, except_for=None if instead_of is None else (KIND, instead_of.pk))
    if not fit.fits:
        smaller = size_that_fits(actor, queue, below=size)
        return Forecast(
            answer="never",
            code="over_quota",
            sentence=fit.sentence,
            change=_choose(smaller, queue) if smaller else fit.next,
            size_that_fits=smaller.name if smaller else "",
        )
    answer = room.will_fit(queue.cluster, amount)
    if answer.verdict is Verdict.NEVER:
        smaller = size_that_fits(actor, queue, below=size)
        return Forecast(
            answer="never",
            code="fits_no_node",
            sentence=never_sentence(answer),
            change=_choose(smaller, queue) if smaller else _("Choose another queue, or tell an administrator."),
            size_that_fits=smaller.name if smaller else "",
        )
    if queue.cluster.state == ClusterState.UNREACHABLE:
        return Forecast(
            answer="queued",
            code="cluster_unreachable",
            sentence=_("The cluster does not answer now; it starts when the cluster is back."),
        )
    if answer.verdict is Verdict.LATER:
        smaller = size_that_fits(actor, queue, below=size, now=True)
        return Forecast(
            answer="queued",
            code="no_room_now",
            sentence=_(
                "No node has room now: %(asked)s asked, at most %(free)s free on one of them. It starts when there is."
            )
            % {
                "asked": amounts.show(answer.resource, answer.asked),
                "free": amounts.show(answer.resource, answer.available),
            },
            change=_("The size “%(size)s” would start now.") % {"size": smaller.name} if smaller else "",
            size_that_fits=smaller.name if smaller else "",
        )
    if answer.verdict is Verdict.UNKNOWN:
        return Forecast(
            answer="queued",
            code="room_unknown",
            sentence=_("The quota allows it; no node of the cluster has been seen yet, so it may have to wait."),
        )
    return Forecast(answer="now", code="fits", sentence=_("Quota and nodes have room for it."))


def _has_room_for(instance: Instance, amount: Amount) -> bool:
    """Whether what it holds on a node at this moment is enough."""
    return bool(instance.node) and changes.largest(instance.size.amount, amount) == instance.size.amount


def never_sentence(answer: RoomAnswer) -> str:
    """No node is large enough, with the figures."""
    return _("No node is large enough: %(asked)s asked, the closest has %(has)s.") % {
        "asked": amounts.show(answer.resource, answer.asked),
        "has": amounts.show(answer.resource, answer.available),
    }


def size_that_fits(actor: Actor, queue: Queue, *, below: Size, now: bool = False) -> Size | None:
    """The largest size of the catalogue that is no larger than ``below`` in anything and fits."""
    good = {Verdict.NOW} if now else {Verdict.NOW, Verdict.LATER, Verdict.UNKNOWN}
    smaller = [
        size
        for size in choices.sizes(actor)
        if size.pk != below.pk
        and size.cpu_millis <= below.cpu_millis
        and size.memory_bytes <= below.memory_bytes
        and size.gpus <= below.gpus
        and (not size.gpus or size.gpu_resource == below.gpu_resource)
    ]
    for size in sorted(smaller, key=lambda size: (size.gpus, size.memory_bytes, size.cpu_millis), reverse=True):
        amount = size.amount
        if ledger.would_fit(queue, amount).fits and room.will_fit(queue.cluster, amount).verdict in good:
            return size
    return None


def _choose(size: Size, queue: Queue) -> str:
    return _("The size “%(size)s” fits into the queue “%(queue)s”.") % {"size": size.name, "queue": queue.name}
