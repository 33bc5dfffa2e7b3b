"""What can be done to an instance. Each service is one transaction; the cluster is the reconciler's business.

Two tabs at once: each service locks the row and looks at what is so now. What is already as wanted is no error;
what makes no sense any more is a ``Conflict`` with a sentence.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from apps.catalog import own
from apps.catalog.models import Image, Size
from apps.clusters import room
from apps.clusters.room import Verdict
from apps.core import audit, crashpoints, live, names, reconciling
from apps.core.actors import Actor
from apps.core.errors import Conflict, Forbidden, Invalid, NotFound, OverQuota
from apps.core.reasons import Reason
from apps.core.transitions import transition
from apps.instances import choices, forecast, launching, options, pending, selectors, ssh
from apps.instances.models import Instance, InstanceMount
from apps.instances.options import Options
from apps.instances.spec import KIND
from apps.instances.states import ALIVE, LAUNCHED, Desired, InstanceState
from apps.storage import services as storage
from apps.tenants import access, ledger
from apps.tenants.ledger import Amount
from apps.tenants.models import Queue

S = InstanceState
NAME_TRIES = 20
"""How often a proposed name may be taken by somebody else in the same moment."""


def create(
    *,
    actor: Actor,
    queue: choices.Reference,
    image: choices.Reference = "",
    size: choices.Reference,
    name: str = "",
    own_image: str = "",
    volumes: Sequence[Mapping[str, Any]] = (),
    more: Options | None = None,
    id: UUID | None = None,  # noqa: A002 - the field's name
) -> Instance:
    """Make an instance and start it. Only queue, image and size are asked; the rest is proposed.

    ``own_image`` is a reference in place of ``image``, where the queue's team may bring its own.
    ``id`` given makes a repeat (double click, a lost answer) find the first one. Raises ``Invalid``, ``Forbidden``,
    ``OverQuota`` or ``Conflict`` before anything is made.
    """
    pk = id or uuid.uuid4()
    if id is not None and (made := _made_before(actor, pk)) is not None:
        return made
    in_queue = choices.queue(actor, queue)
    access.require(actor, in_queue)  # before all else that could be told; it counts below, where the right is held
    owner_id = actor.user_id
    if owner_id is None:
        raise Forbidden(_("An instance belongs to a person."), code="no_owner")
    with_image, with_size = choices.image_or_own(actor, in_queue, image, own_image), choices.size(actor, size)
    mounts = choices.volumes(actor, in_queue, volumes)
    set_up = options.check(more or Options(), memory_bytes=with_size.memory_bytes)
    chosen = names.check(name.strip()) if name.strip() else ""
    refuse_what_never_fits(actor, in_queue, with_size)
    for _attempt in range(NAME_TRIES):
        try:
            with transaction.atomic():
                access.require_role(access.hold(actor, in_queue), in_queue)
                proposed = chosen or propose_name(in_queue, with_image)
                instance = _insert(actor, owner_id, pk, proposed, in_queue, own.keep(with_image), with_size, set_up)
                _mount(instance, mounts)
                return instance
        except IntegrityError:
            if (made := _made_before(actor, pk)) is not None:
                return made
            if chosen:
                raise name_taken(chosen, in_queue) from None
    raise name_taken(propose_name(in_queue, with_image), in_queue)


def propose_name(queue: Queue, image: Image) -> str:
    """The image's name with the first number that is free in the queue: ``jupyter-1``."""
    stem = image.name[:50]
    taken = set(
        Instance.objects.as_system()
        .filter(queue=queue, state__in=ALIVE, name__startswith=f"{stem}-")
        .values_list("name", flat=True)
    )
    return next(name for number in itertools.count(1) if (name := f"{stem}-{number}") not in taken)


def start(*, actor: Actor, instance: Instance) -> Instance:
    """Start what is stopped or failed; one that is stopping starts again once it has stopped.

    Raises ``OverQuota`` before anything changes, ``Conflict`` when it is being deleted.
    """
    with transaction.atomic():
        row = locked(actor, instance)
        refuse_when_going(row)
        if row.state in LAUNCHED or (row.state == S.STOPPING and row.wants_to_run):
            return row
        hold_for_next_start(actor, row)
        if row.state == S.STOPPING:
            _again_after_stop(row, actor, verb="instance.start")
        elif row.state == S.FAILED and not row.at_rest:
            _to_stopping(row, actor, desired=Desired.RUNNING, verb="instance.start")
        else:
            refuse_what_never_fits(actor, row.queue, row.size)
            launching.begin(row, actor=actor)
        transaction.on_commit(lambda: crashpoints.reach("instance-start-committed"))
        reconciling.hint(KIND, row.pk)
    return row


def stop(*, actor: Actor, instance: Instance, reason: Reason | None = None) -> Instance:
    """Stop it: nobody new gets in from now on, the key is dead, the home stays. Stopped already is no error.

    ``reason`` is what its page says of a stop that no person asked for (`decide.OWN_ENDS`).
    """
    with transaction.atomic():
        row = locked(actor, instance)
        refuse_when_going(row)
        _stop(row, actor, reason)
    return row


def stop_those_of(user_id: UUID, queue_ids: Collection[UUID] | None, actor: Actor) -> None:
    """Stop what this person has running in these queues (None: in all); the caller has taken their right to it away.

    Who may do that was checked there: a person who leaves a team by themselves has no right left to check here.
    """
    with transaction.atomic():
        for row in selectors.running_of([user_id], queue_ids).select_for_update(of=("self",)):
            _stop(row, actor)


def restart(*, actor: Actor, instance: Instance) -> Instance:
    """Stop and start again with a new key; the quota is kept meanwhile. Of a stopped one it is a start."""
    with transaction.atomic():
        row = locked(actor, instance)
        if row.state not in LAUNCHED:
            return start(actor=actor, instance=row)
        if row.pending:
            hold_for_next_start(actor, row)
        _to_stopping(row, actor, desired=Desired.RUNNING, verb="instance.restart")
        reconciling.hint(KIND, row.pk)
    return row


def delete(*, actor: Actor, instance: Instance) -> Instance:
    """Take it away for good. Its home and other volumes stay; what lived in memory is lost."""
    with transaction.atomic():
        row = locked(actor, instance)
        if row.state in {S.DELETING, S.DELETED}:
            return row
        transition(
            row,
            S.DELETING,
            actor=actor,
            verb="instance.delete",
            values={
                "desired": Desired.DELETED,
                "generation": row.generation + 1,
                "key": "",
                "next_key": "",
                "start_deadline_at": None,
                **reconciling.look_now(row),
            },
        )
        transaction.on_commit(lambda: crashpoints.reach("instance-delete-committed"))
        reconciling.hint(KIND, row.pk)
    return row


# --- parts -------------------------------------------------------------------------------------------------------


def _made_before(actor: Actor, pk: UUID) -> Instance | None:
    """What an earlier request with the same id made; someone else's id is refused without saying whose."""
    found: Instance | None = Instance.objects.as_system().filter(pk=pk).first()
    if found is None:
        return None
    if found.owner_id != actor.user_id or found.state == S.DELETED:
        raise Conflict(_("This id is in use."), code="id_in_use", next=_("Send the request with another id."))
    return found


def _insert(
    actor: Actor, owner_id: UUID, pk: UUID, name: str, queue: Queue, image: Image, size: Size, set_up: Options
) -> Instance:
    home = storage.ensure_home(actor=actor, queue=queue)
    _reserve(actor, queue, size, pk)
    now = timezone.now()
    instance: Instance = Instance.objects.create(
        pk=pk,
        name=name,
        owner_id=owner_id,
        queue=queue,
        image=image,
        size=size,
        home=home,
        options=set_up.stored(),
        state=S.STARTING,
        state_since=now,
        launch=1,
        due_at=now + reconciling.UNDER_WAY,
        **launching.first_values(),
        **ssh.fresh_host_key(),
    )
    detail = {"image": image.name if image.team_id is None else image.reference, "size": size.name}
    audit.record(actor=actor, verb="instance.create", obj=instance, detail=detail)
    live.announce(instance)
    crashpoints.reach("instance-inserted")
    transaction.on_commit(lambda: crashpoints.reach("instance-committed"))
    reconciling.hint(KIND, pk)
    return instance


def _mount(instance: Instance, mounts: Sequence[choices.Wanted]) -> None:
    made = [
        InstanceMount(instance=instance, volume=wanted.volume, path=wanted.path, read_only=wanted.read_only)
        for wanted in sorted(mounts, key=lambda wanted: wanted.path)
    ]
    InstanceMount.objects.bulk_create(made)
    instance.mounted = made


def locked(actor: Actor, instance: Instance) -> Instance:
    """The row for the rest of the transaction. Raises ``NotFound`` and ``Forbidden`` for whoever may not act on it."""
    have = access.hold(actor, instance.queue)
    rows = Instance.objects.for_actor(actor).select_for_update(of=("self",))
    row: Instance | None = rows.select_related(*selectors.SHOWN).filter(pk=instance.pk).first()
    if row is None:
        raise NotFound()
    if row.queue_id == instance.queue_id:
        access.require_act_with(have, actor, row.owner_id)
    else:
        access.require_act_on(actor, row.queue, row.owner_id)
    return row


def _stop(row: Instance, actor: Actor, reason: Reason | None = None) -> None:
    """Of a locked row."""
    if row.state in LAUNCHED:
        _to_stopping(row, actor, desired=Desired.STOPPED, verb="instance.stop", reason=reason)
    elif row.state == S.STOPPING and row.wants_to_run:
        transition(row, S.STOPPING, actor=actor, values={"desired": Desired.STOPPED, **reconciling.look_now(row)})
        audit.record(actor=actor, verb="instance.stop", obj=row, detail={"while": S.STOPPING})
    else:
        return
    reconciling.hint(KIND, row.pk)


def _to_stopping(row: Instance, actor: Actor, *, desired: Desired, verb: str, reason: Reason | None = None) -> None:
    transition(
        row,
        S.STOPPING,
        actor=actor,
        verb=verb,
        reason=reason,
        values={
            "desired": desired,
            "generation": row.generation + 1,
            "key": "",
            "next_key": "",
            "ready_at": None,
            "start_deadline_at": None,
            **reconciling.look_now(row),
        },
    )
    transaction.on_commit(lambda: crashpoints.reach("instance-stop-committed"))


def _again_after_stop(row: Instance, actor: Actor, *, verb: str) -> None:
    transition(row, S.STOPPING, actor=actor, values={"desired": Desired.RUNNING, **reconciling.look_now(row)})
    audit.record(actor=actor, verb=verb, obj=row, detail={"while": S.STOPPING})


def hold_for_next_start(actor: Actor, row: Instance) -> None:
    """Hold the quota for the next launch of a locked row, and for what still runs of the present one."""
    _reserve(actor, row.queue, row.size, row.pk, amount=pending.to_hold(row))


def _reserve(actor: Actor, queue: Queue, size: Size, pk: UUID, *, amount: Amount | None = None) -> None:
    """Hold the quota; a refusal names the size that would fit, which is the smallest change of all."""
    try:
        ledger.reserve(queue_id=queue.pk, kind=KIND, object_id=pk, amount=amount or size.amount)
    except OverQuota as refusal:
        smaller = forecast.size_that_fits(actor, queue, below=size)
        if smaller is None:
            raise
        raise OverQuota(
            refusal.detail,
            next=_("Choose the size “%(size)s”, which fits. %(more)s") % {"size": smaller.name, "more": refusal.next},
            errors={"size": refusal.detail},
            data={"resources": refusal.data, "size_that_fits": smaller.name},
        ) from refusal


def refuse_what_never_fits(actor: Actor, queue: Queue, size: Size) -> None:
    """Raise ``Invalid`` when no node of the cluster is large enough."""
    answer = room.will_fit(queue.cluster, size.amount)
    if answer.verdict is not Verdict.NEVER:
        return
    smaller = forecast.size_that_fits(actor, queue, below=size)
    sentence = forecast.never_sentence(answer)
    raise Invalid(
        sentence,
        code="fits_no_node",
        next=_("Choose the size “%(size)s”.") % {"size": smaller.name}
        if smaller
        else _("Choose another queue, or tell an administrator."),
        errors={"size": sentence},
    )


def refuse_when_going(row: Instance) -> None:
    """Raise ``Conflict`` when it is being deleted."""
    if row.state in {S.DELETING, S.DELETED}:
        raise Conflict(
            _("The instance “%(name)s” is being deleted.") % {"name": row.name},
            code="being_deleted",
            next=_("Make a new instance; the home is still there."),
        )


def name_taken(name: str, queue: Queue) -> Invalid:
    """The refusal of a name that another one of the queue has."""
    sentence = _("There is already an instance “%(name)s” in the queue “%(queue)s”.") % {
        "name": name,
        "queue": queue.name,
    }
    return Invalid(sentence, code="name_taken", next=_("Choose another name."), errors={"name": sentence})
