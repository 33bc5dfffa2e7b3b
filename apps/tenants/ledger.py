"""The quota ledger: who holds what of a queue, answered at once and without asking the cluster.

A reservation counts what its object may *use* (limits). CPU and memory may be promised up to guaranteed x oversell,
GPUs and storage exactly. The queue's row is locked while the sums are read and the new line is written, so two
requests can never both take the last place (failure F11). The API server's ResourceQuota stays the judge.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from apps.core import live
from apps.core.errors import Conflict, NotFound, OverQuota
from apps.tenants import amounts
from apps.tenants.models import Queue, Reservation
from apps.tenants.states import QueueState
from kubekit.quantities import scale

CPU, MEMORY, STORAGE, VOLUMES, PODS = "cpu_millis", "memory_bytes", "storage_bytes", "volumes", "pods"


@dataclass(frozen=True, kw_only=True)
class Amount:
    """Thousandths of a CPU, bytes, GPUs by the name of their extended resource, bytes of volumes."""

    cpu_millis: int = 0
    memory_bytes: int = 0
    gpus: Mapping[str, int] = field(default_factory=dict)
    storage_bytes: int = 0

    def by_resource(self) -> dict[str, int]:
        """Resource name -> amount. An object with CPU counts as one pod, one with storage as one volume."""
        return {
            CPU: self.cpu_millis,
            MEMORY: self.memory_bytes,
            **self.gpus,
            STORAGE: self.storage_bytes,
            VOLUMES: 1 if self.storage_bytes else 0,
            PODS: 1 if self.cpu_millis else 0,
        }


@dataclass(frozen=True, kw_only=True)
class Share:
    """One resource of a queue: what is used of what there is."""

    resource: str
    used: int
    limit: int

    @property
    def free(self) -> int:
        """What can still be taken; never negative."""
        return max(0, self.limit - self.used)

    @property
    def is_over(self) -> bool:
        """True after the limit was lowered below use: nothing is killed, nothing new is let in."""
        return self.used > self.limit

    @property
    def label(self) -> str:
        """The resource's word in the active language."""
        return amounts.label(self.resource)

    @property
    def text(self) -> str:
        """Beside the resource's word: ``7.2 of 8``, ``29 GiB of 32 GiB``."""
        return amounts.of(self.resource, self.used, self.limit)

    @property
    def percent(self) -> int:
        """For a bar: 0 to 100, and 100 when over."""
        if self.limit == 0:
            return 100 if self.used else 0
        return min(100, round(100 * self.used / self.limit))


@dataclass(frozen=True, kw_only=True)
class Usage:
    """All resources of a queue."""

    shares: Mapping[str, Share]

    @property
    def main(self) -> list[Share]:
        """What bars show: CPU, memory, GPUs, storage."""
        return [share for name, share in self.shares.items() if name not in {VOLUMES, PODS}]

    @property
    def over(self) -> list[Share]:
        """The resources whose use is above the limit."""
        return [share for share in self.shares.values() if share.is_over]


@dataclass(frozen=True, kw_only=True)
class Shortage:
    """One resource that is missing, in its own unit."""

    resource: str
    asked: int
    used: int
    limit: int

    @property
    def missing(self) -> int:
        """By how much it does not fit."""
        return self.used + self.asked - self.limit

    @property
    def free(self) -> int:
        """What could be had."""
        return max(0, self.limit - self.used)


@dataclass(frozen=True, kw_only=True)
class Fit:
    """Whether an amount fits, and if not what is missing; ``sentence`` and ``next`` in the active language."""

    shortages: tuple[Shortage, ...] = ()
    sentence: str = ""
    next: str = ""

    @property
    def fits(self) -> bool:
        """True when nothing is missing."""
        return not self.shortages

    def data(self) -> dict[str, dict[str, int]]:
        """Resource -> asked, used, limit, missing; the ``data`` of the error."""
        return {
            short.resource: {
                "asked": short.asked,
                "used": short.used,
                "limit": short.limit,
                "missing": short.missing,
            }
            for short in self.shortages
        }


FreedHook = Callable[[UUID], None]
_freed_hooks: list[FreedHook] = []


def on_freed(hook: FreedHook) -> None:
    """Call ``hook(queue_id)`` after each commit that gave room back, so that what waits is looked at now."""
    _freed_hooks.append(hook)


def announce_freed(queue_id: UUID) -> None:
    """Tell the hooks after commit; also for a raised limit."""
    transaction.on_commit(lambda: [hook(queue_id) for hook in _freed_hooks])


def reserve(*, queue_id: UUID, kind: str, object_id: UUID, amount: Amount) -> None:
    """Hold ``amount`` for an object, or change what it holds to ``amount``; again with the same is harmless.

    To hold the same or less is never refused, not even above a quota that was lowered or in a queue that goes.
    Raises `OverQuota` (its ``data`` says per resource what was asked, used, the limit and what is missing),
    `NotFound` when there is no such queue and `Conflict` when the queue is being deleted.
    """
    with nullcontext() if connection.in_atomic_block else transaction.atomic():
        queue = Queue.objects.as_system().select_for_update(of=("self",)).filter(pk=queue_id).first()
        if queue is None:
            raise NotFound(_("There is no such queue."), code="queue_unknown")
        open_lines = Reservation.objects.as_system().filter(kind=kind, object_id=object_id, released_at__isnull=True)
        held = open_lines.first()
        here = _held(held) if held is not None and held.queue_id == queue_id else Amount()
        if held is not None and here == amount:
            return
        if held is None or not _covers(here, amount):
            _let_in(queue, kind, object_id, amount)
        if held is None:
            Reservation.objects.create(queue_id=queue_id, kind=kind, object_id=object_id, **_columns(amount))
        else:
            open_lines.update(queue_id=queue_id, **_columns(amount))
            announce_freed(held.queue_id)
        live.announce(queue)


def reserve_many(*, queue_id: UUID, kind: str, amounts: Mapping[UUID, Amount]) -> set[UUID]:
    """`reserve` for many in the given order: the ids of those that hold their amount now. Of the others it says why."""
    with transaction.atomic():
        queue = Queue.objects.as_system().select_for_update(of=("self",)).filter(pk=queue_id).first()
        if queue is None or queue.state in {QueueState.DELETING, QueueState.DELETED}:
            return set()
        lines = Reservation.objects.as_system().filter(kind=kind, object_id__in=[*amounts], released_at__isnull=True)
        held = {line.object_id: line for line in lines}
        done = {pk for pk, line in held.items() if line.queue_id == queue_id and _held(line) == amounts[pk]}
        used, limit, new = _sums([queue.pk]).get(queue.pk, {}), limits(queue), []
        for pk, amount in amounts.items():
            if pk in held or _shortages(amount, used, limit):
                continue
            for name, count in amount.by_resource().items():
                used[name] = used.get(name, 0) + count
            new.append(Reservation(queue_id=queue_id, kind=kind, object_id=pk, **_columns(amount)))
        if new:
            Reservation.objects.bulk_create(new)
            live.announce(queue)
    return done | {line.object_id for line in new}


def _columns(amount: Amount) -> dict[str, Any]:
    return {**vars(amount), "gpus": {name: count for name, count in amount.gpus.items() if count}}


def _covers(held: Amount, asked: Amount) -> bool:
    has = held.by_resource()
    return all(count <= has.get(name, 0) for name, count in asked.by_resource().items())


def _let_in(queue: Queue, kind: str, object_id: UUID, amount: Amount) -> None:
    """Raise what `reserve` raises unless the queue, whose row is locked, has room for this."""
    if queue.state in {QueueState.DELETING, QueueState.DELETED}:
        raise Conflict(
            _("The queue “%(queue)s” is being deleted.") % {"queue": queue.name},
            code="queue_deleted",
            next=_("Choose another queue."),
        )
    used = _sums([queue.pk], except_for=(kind, object_id)).get(queue.pk, {})
    answer = fit(queue_name=queue.name, asked=amount, used=used, limit=limits(queue))
    if not answer.fits:
        raise OverQuota(answer.sentence, next=answer.next, data=answer.data())


def release(*, kind: str, object_id: UUID) -> bool:
    """Give back what the object holds; False when it held nothing. Safe to repeat."""
    with transaction.atomic():
        lines = Reservation.objects.as_system().filter(kind=kind, object_id=object_id, released_at__isnull=True)
        queue_id = lines.select_for_update(of=("self",)).values_list("queue_id", flat=True).first()
        if queue_id is None:
            return False
        lines.update(released_at=timezone.now())
        live.announce(Queue(pk=queue_id))
        announce_freed(queue_id)
    return True


def held(*, kind: str, object_id: UUID) -> Amount | None:
    """What the object holds now."""
    line = Reservation.objects.as_system().filter(kind=kind, object_id=object_id, released_at__isnull=True).first()
    return None if line is None else _held(line)


def usage(queue: Queue) -> Usage:
    """What is used of the queue, in one statement."""
    return usages([queue])[queue.pk]


def usages(queues: Iterable[Queue]) -> dict[UUID, Usage]:
    """The same for many queues, still in one statement."""
    queues = list(queues)
    sums = _sums([queue.pk for queue in queues])
    return {queue.pk: _usage(sums.get(queue.pk, {}), limits(queue)) for queue in queues}


def would_fit(queue: Queue, amount: Amount, *, except_for: tuple[str, UUID] | None = None) -> Fit:
    """Whether ``amount`` would be let in now. An answer for people; `reserve` decides.

    ``except_for`` (kind and id) would give back what it holds.
    """
    used = _sums([queue.pk], except_for=except_for or _NOBODY).get(queue.pk, {})
    return fit(queue_name=queue.name, asked=amount, used=used, limit=limits(queue))


def limits(queue: Queue) -> dict[str, int]:
    """What all objects of the queue together may use, by resource."""
    return {
        CPU: scale(queue.cpu_millis, queue.cpu_oversell),
        MEMORY: scale(queue.memory_bytes, queue.memory_oversell),
        **{name: int(count) for name, count in sorted(queue.gpus.items())},
        STORAGE: queue.storage_bytes,
        VOLUMES: queue.claims,
        PODS: queue.pods,
    }


def guaranteed(queue: Queue, amount: Amount) -> tuple[int, int]:
    """CPU (thousandths) and memory (bytes) that a pod of this amount requests: its share of the guaranteed part.

    Rounded down, so that the requests of everything the ledger lets in never exceed the ResourceQuota's.
    """
    cpu = int(amount.cpu_millis / queue.cpu_oversell)
    memory = int(amount.memory_bytes / queue.memory_oversell)
    return max(cpu, min(1, amount.cpu_millis)), max(memory, min(1, amount.memory_bytes))


def fit(*, queue_name: str, asked: Amount, used: Mapping[str, int], limit: Mapping[str, int]) -> Fit:
    """Pure: compare sums with limits and say in one sentence what is missing and the smallest change that fits.

    A resource that is not asked for never stands in the way, even when its limit was lowered below use.
    """
    shortages = _shortages(asked, used, limit)
    if not shortages:
        return Fit()
    parts = [
        _("%(asked)s asked, %(free)s of %(limit)s free")
        % {
            "asked": amounts.show(short.resource, short.asked),
            "free": amounts.show(short.resource, short.free),
            "limit": amounts.show(short.resource, short.limit),
        }
        for short in shortages
    ]
    sentence = _("The queue “%(queue)s” has no room for this: %(parts)s.") % {
        "queue": queue_name,
        "parts": "; ".join(parts),
    }
    return Fit(shortages=shortages, sentence=sentence, next=_change_that_fits(shortages))


def _shortages(asked: Amount, used: Mapping[str, int], limit: Mapping[str, int]) -> tuple[Shortage, ...]:
    return tuple(
        Shortage(resource=name, asked=count, used=used.get(name, 0), limit=limit.get(name, 0))
        for name, count in asked.by_resource().items()
        if count > 0 and used.get(name, 0) + count > limit.get(name, 0)
    )


def _change_that_fits(shortages: tuple[Shortage, ...]) -> str:
    """Three ways, smallest first: ask for less, free something, raise the limit."""
    ways: list[str] = []
    if all(short.free > 0 for short in shortages):
        at_most = [amounts.show(short.resource, short.free) for short in shortages]
        ways.append(_("Ask for at most %(amounts)s.") % {"amounts": ", ".join(at_most)})
    if all(short.asked <= short.limit for short in shortages):
        missing = [amounts.show(short.resource, short.missing) for short in shortages]
        other = _("Or stop or delete what holds %(amounts)s.") if ways else _("Stop or delete what holds %(amounts)s.")
        ways.append(other % {"amounts": ", ".join(missing)})
    else:
        needed = [amounts.show(short.resource, short.used + short.asked) for short in shortages]
        other = (
            _("Or ask an administrator to raise the limit to %(amounts)s.")
            if ways
            else _("Ask an administrator to raise the limit to %(amounts)s.")
        )
        ways.append(other % {"amounts": ", ".join(needed)})
    return " ".join(ways)


def _usage(used: Mapping[str, int], limit: Mapping[str, int]) -> Usage:
    names = [*limit, *sorted(set(used) - set(limit))]
    return Usage(
        shares={name: Share(resource=name, used=used.get(name, 0), limit=limit.get(name, 0)) for name in names}
    )


def _held(line: Reservation) -> Amount:
    return Amount(
        cpu_millis=line.cpu_millis,
        memory_bytes=line.memory_bytes,
        gpus=dict(line.gpus),
        storage_bytes=line.storage_bytes,
    )


_SUMS = """
WITH lines AS (
    SELECT queue_id, cpu_millis, memory_bytes, storage_bytes, gpus
      FROM tenants_reservation
     WHERE queue_id = ANY(%(queues)s) AND released_at IS NULL
       AND NOT (kind = %(kind)s AND object_id = %(object_id)s)
), by_gpu AS (
    SELECT queue_id, gpu.key AS name, sum(gpu.value::bigint) AS count
      FROM lines, jsonb_each_text(gpus) AS gpu GROUP BY queue_id, gpu.key
)
SELECT queue_id, sum(cpu_millis), sum(memory_bytes), sum(storage_bytes),
       count(*) FILTER (WHERE storage_bytes > 0), count(*) FILTER (WHERE cpu_millis > 0),
       (SELECT coalesce(jsonb_object_agg(name, count), '{}') FROM by_gpu WHERE by_gpu.queue_id = lines.queue_id)::text
  FROM lines GROUP BY queue_id
"""
_NOBODY = ("", UUID(int=0))


def _sums(queue_ids: list[UUID], *, except_for: tuple[str, UUID] = _NOBODY) -> dict[UUID, dict[str, int]]:
    """Open reservations summed per queue and resource, in one statement."""
    with connection.cursor() as cursor:
        cursor.execute(_SUMS, {"queues": queue_ids, "kind": except_for[0], "object_id": except_for[1]})
        rows = cursor.fetchall()
    return {
        queue_id: {
            CPU: int(cpu),
            MEMORY: int(memory),
            STORAGE: int(storage),
            VOLUMES: volumes,
            PODS: pods,
            **{name: int(count) for name, count in json.loads(gpus).items()},
        }
        for queue_id, cpu, memory, storage, volumes, pods, gpus in rows
    }
