"""Services for queues: who may make, change and delete them, and what a quota may be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from apps.clusters.models import Cluster
from apps.clusters.services import require_admin, require_new_enough
from apps.clusters.states import ClusterState
from apps.core import audit, live, names, quantities, reconciling
from apps.core.actors import Actor
from apps.core.errors import Conflict, Invalid, Unavailable
from apps.core.transitions import transition
from apps.tenants import checker, ledger, uses
from apps.tenants.models import Queue, Team
from apps.tenants.states import QueueState
from kubekit import names as kube_names
from kubekit.errors import KubeError, NotFound, SpecError
from kubekit.specs.checks import require_extended_resource

MOST = 1 << 62
"""No sum of amounts may leave PostgreSQL's bigint."""


@dataclass(frozen=True, kw_only=True)
class Quota:
    """A queue's bounds in base units. ``gpus``: extended resource -> count; oversell ratios from 1 to 100."""

    cpu_millis: int
    memory_bytes: int
    storage_bytes: int
    gpus: Mapping[str, int] = field(default_factory=dict)
    claims: int = 50
    pods: int = 200
    cpu_oversell: Decimal = Decimal(1)
    memory_oversell: Decimal = Decimal(1)

    def check(self) -> None:
        """Raise `Invalid` with an entry for each wrong field."""
        errors: dict[str, Any] = {}
        for name in ("cpu_millis", "memory_bytes", "storage_bytes", "claims", "pods"):
            if not 0 <= getattr(self, name) <= (MOST if name.endswith(("bytes", "millis")) else 100_000):
                errors[name] = _("This must be 0 or more, and not absurdly large.")
        for name in ("cpu_oversell", "memory_oversell"):
            if not 1 <= getattr(self, name) <= 100:
                errors[name] = _("The ratio must be from 1 to 100.")
        for resource, count in self.gpus.items():
            try:
                require_extended_resource(resource, "gpus")
            except SpecError as error:
                errors["gpus"] = str(error.message)
            if not isinstance(count, int) or not 0 <= count <= 100_000:
                errors["gpus"] = _("The count of %(resource)s must be a whole number, 0 or more.") % {
                    "resource": resource
                }
        if errors:
            raise Invalid(_("The quota cannot be like this."), code="quota_invalid", errors=errors)


def quota_of(queue: Queue) -> Quota:
    """The queue's present quota."""
    return Quota(**{name: getattr(queue, name) for name in Quota.__dataclass_fields__})


def create(
    *,
    actor: Actor,
    id: UUID | None = None,  # noqa: A002 - the field's name in the API
    name: str,
    team: Team,
    cluster: Cluster,
    quota: Quota,
) -> Queue:
    """A new queue; its namespace follows. The same ``id`` again answers the queue that it made."""
    require_admin(actor)
    name = names.check(name)
    quota.check()
    if cluster.state == ClusterState.REMOVED:
        raise Conflict(_("The cluster was removed."), code="cluster_removed", next=_("Choose another cluster."))
    require_new_enough(cluster)
    pk = id or uuid4()
    mine = Queue.objects.for_actor(actor).filter(pk=pk)
    known: Queue | None = mine.first()
    if known is not None:
        return known
    try:
        with transaction.atomic():
            queue: Queue = Queue.objects.create(
                pk=pk,
                name=name,
                team=team,
                cluster=cluster,
                namespace=kube_names.namespace_name(name, pk),
                state=QueueState.CREATING,
                state_since=timezone.now(),
                due_at=timezone.now(),
                **_columns(quota),
            )
            audit.record(actor=actor, verb="queue.create", obj=queue, detail=_shown(quota))
            live.announce(queue)
            reconciling.hint("queue", queue.pk)
    except IntegrityError as error:
        again: Queue | None = mine.first()
        if again is not None:  # the same request twice in one instant
            return again
        raise taken(name) from error
    return queue


def update(*, actor: Actor, queue: Queue, **changes: Any) -> Queue:
    """Change parts of the quota. Lowering it below what is used kills nothing: the queue is marked as over."""
    require_admin(actor)
    with transaction.atomic():
        row = Queue.objects.as_system().select_for_update(of=("self",)).get(pk=queue.pk)
        if row.state in {QueueState.DELETING, QueueState.DELETED}:
            raise Conflict(_("The queue is being deleted."), code="queue_deleted")
        before = quota_of(row)
        after = replace(before, **changes)
        after.check()
        if after == before:
            return queue
        Queue.objects.as_system().filter(pk=row.pk).update(
            **_columns(after),
            generation=row.generation + 1,
            updated_at=timezone.now(),
            **reconciling.look_now(row),
        )
        old, new = _shown(before), _shown(after)
        changed = {name: [old[name], new[name]] for name in new if old[name] != new[name]}
        audit.record(actor=actor, verb="queue.quota", obj=row, detail=changed)
        live.announce(row)
        ledger.announce_freed(row.pk)
        reconciling.hint("queue", row.pk)
    queue.refresh_from_db()
    return queue


def delete(*, actor: Actor, queue: Queue) -> None:
    """Delete an empty queue with its namespace. Raises `Conflict` naming what still lives in it."""
    require_admin(actor)
    with transaction.atomic():
        row = Queue.objects.as_system().select_for_update(of=("self",)).get(pk=queue.pk)
        if row.state in {QueueState.DELETING, QueueState.DELETED}:
            return
        living = uses.of(row.pk)
        if living:
            raise Conflict(
                _("The queue “%(queue)s” is not empty: %(living)s.")
                % {"queue": row.name, "living": quantities.few(living)},
                code="queue_not_empty",
                next=_("Delete these first, then the queue."),
            )
        transition(row, QueueState.DELETING, actor=actor, verb="queue.delete", values=reconciling.look_now(row))
        reconciling.hint("queue", row.pk)
    queue.refresh_from_db()


def recalculate(*, actor: Actor, queue: Queue) -> None:
    """Let the cluster count the queue's use anew (failure F13). Raises `Unavailable` when it does not answer."""
    require_admin(actor)
    try:
        checker.recalculate(queue)
    except NotFound:
        pass  # gone already; the reconciler makes it again
    except KubeError as error:
        raise Unavailable(
            _("The cluster did not carry it out: %(why)s") % {"why": error.message}, next=_("Try again in a minute.")
        ) from error
    with transaction.atomic():
        row = Queue.objects.as_system().select_for_update(of=("self",)).get(pk=queue.pk)
        Queue.objects.as_system().filter(pk=row.pk).update(**reconciling.look_now(row))
        audit.record(actor=actor, verb="queue.recalculate", obj=row)
        reconciling.hint("queue", queue.pk)


def taken(name: str) -> Conflict:
    """The answer to a name that another living queue has."""
    return Conflict(
        _("There is a queue named “%(name)s” already.") % {"name": name},
        code="name_taken",
        next=_("Choose another name."),
        errors={"name": _("taken")},
    )


def _columns(quota: Quota) -> dict[str, Any]:
    return {**asdict(quota), "gpus": {name: count for name, count in quota.gpus.items() if count}}


def _shown(quota: Quota) -> dict[str, Any]:
    return {name: str(value) if isinstance(value, Decimal) else value for name, value in _columns(quota).items()}
