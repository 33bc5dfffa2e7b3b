"""Services for volumes. A volume holds its storage in the quota ledger from its making until its claim is gone."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from apps.core import audit, live, names, quantities, reconciling
from apps.core.actors import Actor
from apps.core.errors import Conflict, Invalid
from apps.core.quantities import size as size_text
from apps.core.transitions import transition
from apps.storage import uses
from apps.storage.models import Volume, VolumeKind
from apps.storage.states import VolumeState
from apps.tenants import access, ledger
from apps.tenants.ledger import Amount
from apps.tenants.models import Queue, Role, User
from kubekit import names as kube_names

KIND = "volume"
SMALLEST_BYTES = 1 << 20
LARGEST_BYTES = 1 << 50


def ensure_home(*, actor: Actor, queue: Queue) -> Volume:
    """The home of the actor in this queue, made at first use.

    Raises `OverQuota` when the queue has no storage left, `Conflict` while the old home is being deleted.
    """
    owner = actor.user_id
    if owner is None:
        raise Invalid(_("A home belongs to a person."), code="home_without_owner")
    homes = Volume.objects.as_system().filter(queue=queue, owner_id=owner, kind=VolumeKind.HOME)
    alive = homes.exclude(state=VolumeState.DELETED)
    found: Volume | None = alive.first()
    if found is None:
        person = User.objects.as_system().get(pk=owner)
        try:
            return _make(
                actor=actor,
                pk=uuid4(),
                queue=queue,
                owner_id=owner,
                name=_home_name(queue, person.get_username()),
                kind=VolumeKind.HOME,
                size_bytes=settings.DEFAULT_HOME_BYTES,
            )
        except IntegrityError:
            # Two first instances at once: the other request has just made it.
            found = alive.get()
    if found.state == VolumeState.DELETING:
        raise Conflict(
            _("Your home in the queue “%(queue)s” is being deleted.") % {"queue": queue.name},
            code="home_deleting",
            next=_("Try again when it is gone; a new, empty one is made then."),
        )
    return found


def create(
    *,
    actor: Actor,
    id: UUID | None = None,  # noqa: A002 - the field's name in the API
    queue: Queue,
    name: str,
    size_bytes: int,
) -> Volume:
    """A data volume of the actor. The same ``id`` again answers the volume that it made."""
    access.require(actor, queue, Role.MEMBER)
    name = names.check(name)
    _check_size(size_bytes)
    pk = id or uuid4()
    mine = Volume.objects.for_actor(actor).filter(pk=pk)
    known: Volume | None = mine.first()
    if known is not None:
        return known
    if actor.user_id is None:
        raise Invalid(_("A volume belongs to a person."), code="volume_without_owner")
    try:
        return _make(
            actor=actor,
            pk=pk,
            queue=queue,
            owner_id=actor.user_id,
            name=name,
            kind=VolumeKind.DATA,
            size_bytes=size_bytes,
        )
    except IntegrityError as error:
        again: Volume | None = mine.first()
        if again is not None:  # the same request twice in one instant
            return again
        raise Conflict(
            _("The queue “%(queue)s” has a volume named “%(name)s” already.") % {"queue": queue.name, "name": name},
            code="name_taken",
            next=_("Choose another name."),
            errors={"name": _("taken")},
        ) from error


def expand(*, actor: Actor, volume: Volume, size_bytes: int) -> Volume:
    """Make the volume larger; storage never shrinks."""
    access.require_act_on(actor, volume.queue, volume.owner_id)
    _check_size(size_bytes)
    with transaction.atomic():
        row = _locked(volume)
        if size_bytes == row.size_bytes:
            return volume
        if size_bytes < row.size_bytes:
            raise Invalid(
                _("A volume can only grow; it has %(size)s now.") % {"size": size_text(row.size_bytes)},
                code="volume_cannot_shrink",
                next=_("To have less, make a new volume and copy the files."),
                errors={"size_bytes": _("smaller than now")},
            )
        if row.state in {VolumeState.DELETING, VolumeState.DELETED}:
            raise _being_deleted(row)
        amount = Amount(storage_bytes=size_bytes)
        ledger.reserve(queue_id=row.queue_id, kind=KIND, object_id=row.pk, amount=amount)
        Volume.objects.as_system().filter(pk=row.pk).update(
            size_bytes=size_bytes,
            generation=row.generation + 1,
            updated_at=timezone.now(),
            **reconciling.look_now(row),
        )
        audit.record(actor=actor, verb="volume.expand", obj=row, detail={"size_bytes": [row.size_bytes, size_bytes]})
        live.announce(row)
        reconciling.hint(KIND, row.pk)
    volume.refresh_from_db()
    return volume


def delete(*, actor: Actor, volume: Volume) -> None:
    """Delete the volume and everything on it. Raises `Conflict` naming what mounts it."""
    access.require_act_on(actor, volume.queue, volume.owner_id)
    with transaction.atomic():
        row = _locked(volume)
        if row.state in {VolumeState.DELETING, VolumeState.DELETED}:
            return
        mounted = [use.label for use in uses.of(row.pk)]
        if mounted:
            raise Conflict(
                _("The volume “%(volume)s” is used by %(uses)s.")
                % {"volume": row.name, "uses": quantities.few(mounted)},
                code="volume_in_use",
                next=_("Delete these first, or take the volume out of them."),
            )
        transition(row, VolumeState.DELETING, actor=actor, verb="volume.delete", values=reconciling.look_now(row))
        reconciling.hint(KIND, row.pk)
    volume.refresh_from_db()


def _make(*, actor: Actor, pk: UUID, queue: Queue, owner_id: UUID, name: str, kind: str, size_bytes: int) -> Volume:
    with transaction.atomic():
        # The queue first, as everybody who reserves does: two at once then wait for each other in one order.
        Queue.objects.as_system().select_for_update(of=("self",)).filter(pk=queue.pk).first()
        volume: Volume = Volume.objects.create(
            pk=pk,
            name=name,
            queue=queue,
            owner_id=owner_id,
            kind=kind,
            size_bytes=size_bytes,
            claim=kube_names.claim_name(name, pk),
            state=VolumeState.CREATING,
            state_since=timezone.now(),
            due_at=timezone.now(),
        )
        amount = Amount(storage_bytes=size_bytes)
        ledger.reserve(queue_id=queue.pk, kind=KIND, object_id=pk, amount=amount)
        detail: dict[str, Any] = {"kind": str(kind), "size_bytes": size_bytes}
        audit.record(actor=actor, verb="volume.create", obj=volume, detail=detail)
        live.announce(volume)
        reconciling.hint(KIND, pk)
    return volume


def hand_over_home(*, actor: Actor, volume: Volume, to: User) -> Volume:
    """Make a home another person's, with all that is in it; the caller has asked whether its owner wants that.

    Raises ``Invalid`` when that person has a home in the queue already: there is one for each.
    """
    with transaction.atomic():
        row = _locked(volume)
        if row.state in {VolumeState.DELETING, VolumeState.DELETED}:
            raise _being_deleted(row)
        homes = Volume.objects.as_system().filter(queue_id=row.queue_id, owner=to, kind=VolumeKind.HOME)
        if homes.exclude(state=VolumeState.DELETED).exists():
            sentence = _("“%(name)s” has a home in this queue already, and a person has one.") % {"name": to.username}
            following = _("Leave the home with its owner, and copy the files.")
            raise Invalid(sentence, code="home_exists", next=following, errors={"home": sentence})
        before = row.owner.get_username()
        row.owner = to
        row.save(update_fields=["owner", "updated_at"])
        audit.record(actor=actor, verb="volume.transfer", obj=row, detail={"before": before, "after": to.username})
        live.announce(row)
    return row


def _home_name(queue: Queue, username: str) -> str:
    """``home-<user>``, with a number when somebody calls a volume that."""
    safe = "".join(char if names.is_name(f"x{char}x") and char != " " else "-" for char in username)
    wanted = f"home-{safe}"[:56].rstrip(" ")
    alive = Volume.objects.as_system().filter(queue=queue, name__startswith=wanted).exclude(state=VolumeState.DELETED)
    taken = set(alive.values_list("name", flat=True))
    return next(name for name in (wanted, *(f"{wanted}-{n}" for n in range(2, 1000))) if name not in taken)


def _locked(volume: Volume) -> Volume:
    row: Volume = Volume.objects.as_system().select_related("queue").select_for_update(of=("self",)).get(pk=volume.pk)
    return row


def _check_size(size_bytes: int) -> None:
    if not SMALLEST_BYTES <= size_bytes <= LARGEST_BYTES:
        text = _("A volume has from %(least)s to %(most)s.") % {
            "least": size_text(SMALLEST_BYTES),
            "most": size_text(LARGEST_BYTES),
        }
        raise Invalid(text, code="size_invalid", errors={"size_bytes": text})


def _being_deleted(volume: Volume) -> Conflict:
    return Conflict(
        _("The volume “%(volume)s” is being deleted.") % {"volume": volume.name},
        code="volume_deleted",
        next=_("Choose another volume."),
    )
