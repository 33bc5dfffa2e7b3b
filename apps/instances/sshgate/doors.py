"""Who is it, where may they go, and may they still: the entrance's questions to the database. All block."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from uuid import UUID

from django.db import transaction
from django.db.models import Q
from django.utils.translation import gettext as _

from apps.clusters import access
from apps.clusters.models import Cluster
from apps.core import actors, audit
from apps.core.actors import Actor
from apps.core.errors import Conflict, NotFound
from apps.instances import entering, selectors
from apps.instances.models import Instance
from apps.instances.states import LAUNCHED, InstanceState
from apps.tenants import sshkeys

MAX_NAME = 200


@dataclass(frozen=True, kw_only=True)
class Person:
    """Somebody who came in with a registered key."""

    actor: Actor
    key_id: UUID
    fingerprint: str


@dataclass(frozen=True, kw_only=True)
class Door:
    """One launch of one instance, open to whoever asked."""

    instance_id: UUID
    launch: int
    name: str
    cluster: Cluster
    namespace: str
    pod: str
    inside: bool
    """Whether the portal runs in that cluster, so that the pod's address can be dialled."""


def admit(username: str, fingerprint: str, address: str | None) -> Person | None:
    """The person of that name if this key is theirs and their account is open."""
    key = sshkeys.find(username=username, fingerprint=fingerprint)
    if key is None:
        return None
    actor = actors.from_user(key.user, address=address)
    return Person(actor=actor, key_id=key.pk, fingerprint=fingerprint)


def note_use(person: Person) -> None:
    """The person has come in."""
    sshkeys.note_use(person.key_id)


def open_to(person: Person, wanted: str) -> Door:
    """The way to a running instance of the person, by ``NAME``, ``queue/NAME`` or ``i-<id>``.

    Raises ``NotFound`` for what is not there and for what is another's, ``Conflict`` with the reason otherwise.
    """
    instance = _find(person.actor, wanted[:MAX_NAME])
    if instance is None or not entering.may_enter(person.actor, instance):
        raise NotFound(
            _("There is no instance “%(name)s” that you may enter.") % {"name": wanted[:MAX_NAME]},
            next=_("List yours: portalctl instance list"),
        )
    if instance.state != InstanceState.RUNNING:
        raise Conflict(
            _("The instance “%(name)s” is %(state)s, so there is nothing to open.")
            % {"name": instance.name, "state": instance.state_label},
            code="not_running",
            next=_("Start it, and open it when it is running."),
        )
    cluster = instance.queue.cluster
    return Door(
        instance_id=instance.pk,
        launch=instance.launch,
        name=instance.name,
        cluster=cluster,
        namespace=instance.queue.namespace,
        pod=instance.pod_name,
        inside=access.is_own(cluster),
    )


def _find(actor: Actor, wanted: str) -> Instance | None:
    """As `selectors.named`, but in any case, since ``ssh`` itself writes host names in small letters."""
    rows = selectors.visible(actor)
    plain = wanted.partition(".")[0]
    if plain.startswith("i-"):
        try:
            pk = UUID(plain.removeprefix("i-"))
        except ValueError:
            pass  # an instance may be called i-something
        else:
            found: Instance | None = rows.filter(pk=pk).first()
            return found
    queue, slash, name = wanted.rpartition("/")
    here = Q(queue__name__iexact=queue) if slash else Q()
    mine = list(rows.filter(here, owner_id=actor.user_id, name__iexact=name)[:3])
    exact = [row for row in mine if row.name == name] if len(mine) > 1 else mine
    if len(exact) == 1:
        return exact[0]
    if mine:
        places = ", ".join(f"{row.queue.name}/{row.name}" for row in mine)
        raise Conflict(
            _("“%(name)s” stands for several of your instances: %(places)s.") % {"name": wanted, "places": places},
            code="ambiguous",
            next=_("Say queue/NAME."),
        )
    return None


def entered(person: Person, door: Door) -> None:
    """Audit that a connection to the instance began."""
    _audit(person, door, "instance.ssh", {"key": person.fingerprint})


def left(person: Person, door: Door, *, seconds: float, sent: int, received: int, why: str) -> None:
    """Audit that it ended: its length, the bytes into the instance (``sent``) and out of it, and what ended it."""
    detail = {"seconds": round(seconds, 1), "sent": sent, "received": received, "why": why}
    _audit(person, door, "instance.ssh-end", {"key": person.fingerprint, **detail})


def _audit(person: Person, door: Door, verb: str, detail: dict[str, object]) -> None:
    instance = Instance.objects.as_system().select_related("queue").filter(pk=door.instance_id).first()
    if instance is not None:
        with transaction.atomic():
            audit.record(actor=person.actor, verb=verb, obj=instance, detail=detail)


#: States in which a launch goes on, or may: silence of a cluster ends nobody's connection.
GOES_ON = LAUNCHED | {InstanceState.UNREACHABLE}


def still_open(launches: Collection[tuple[UUID, int]]) -> set[tuple[UUID, int]]:
    """Those among the launches that have not been told to end."""
    rows = Instance.objects.as_system().filter(pk__in={pk for pk, _launch in launches}, state__in=GOES_ON)
    return set(rows.values_list("pk", "launch")) & set(launches)


def still_known(keys: Collection[UUID]) -> set[UUID]:
    """Those among the keys that are still registered, by people who may still sign in."""
    return sshkeys.still_good(keys)
