"""Extra ports of an instance that its owner opens: reached at a host of their own, through the portal's gateway.

They are private: the gateway lets in the owner and whom the owner names, each for a time, and tells what listens there
nothing of either (failures F40, F45). They are the instance's, not the launch's; a ticket is the launch's.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta

from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from apps.clusters.models import Cluster, Exposure
from apps.core import audit, live
from apps.core.actors import Actor
from apps.core.errors import Conflict, Forbidden, Invalid, NotFound
from apps.instances import entering, services
from apps.instances.entering import Entrance
from apps.instances.gateway import people
from apps.instances.models import Instance, OpenPort, PortGuest
from apps.instances.spec import public_host_of
from apps.instances.states import InstanceState
from apps.tenants.models import User

MOST, MOST_GUESTS = 10, 50
LEAST_NUMBER, MOST_NUMBER = 1024, 65_535
#: JupyterLab and sshd have their own entrances.
TAKEN = frozenset({8888, 2222})
LONGEST = timedelta(days=90)


def possible(cluster: Cluster) -> bool:
    """Whether the gateway leads to instances there. On one machine it stands behind the same front as everything."""
    return bool(cluster.exposure == Exposure.GATEWAY or cluster.embedded)


def of(instance: Instance) -> Sequence[OpenPort]:
    """The open ports with the guests that each has now."""
    rows = list(OpenPort.objects.as_system().filter(instance=instance))
    guests = PortGuest.objects.as_system().filter(port__in=rows, until__gt=timezone.now()).select_related("person")
    for row in rows:
        row.present = [guest for guest in guests if guest.port_id == row.pk]
        row.url = url_of(instance, row.number)
    return rows


def url_of(instance: Instance, number: int) -> str:
    """Where the port is."""
    return f"{instance.queue.cluster.apps_scheme}://p{number}--{public_host_of(instance)}/"


def open_port(*, actor: Actor, instance: Instance, number: int, label: str = "") -> OpenPort:
    """Open a port, for its owner alone. Raises ``Forbidden``, ``Conflict`` and ``Invalid``."""
    require_owner(actor, instance)
    if not possible(instance.queue.cluster):
        raise Conflict(
            _("Instances on “%(name)s” are not reached through the portal's gateway, and only that leads to ports.")
            % {"name": instance.queue.cluster.name},
            code="no_gateway",
            next=_("Ask an administrator, or use SSH: ssh -L."),
        )
    if not LEAST_NUMBER <= number <= MOST_NUMBER or number in TAKEN:
        sentence = _("Between %(least)d and %(most)d, without %(taken)s.") % {
            "least": LEAST_NUMBER, "most": MOST_NUMBER, "taken": ", ".join(map(str, sorted(TAKEN)))
        }  # fmt: skip
        raise Invalid(sentence, code="port_invalid", next=_("Choose another port."), errors={"number": sentence})
    with transaction.atomic():
        row = services.locked(actor, instance)
        services.refuse_when_going(row)
        known = OpenPort.objects.as_system().filter(instance=row)
        if known.exclude(number=number).count() >= MOST:
            sentence = _("%(count)d ports are open already.") % {"count": MOST}
            raise Invalid(sentence, code="too_many_ports", next=_("Close one first."), errors={"number": sentence})
        made: OpenPort
        made, _new = known.update_or_create(instance=row, number=number, defaults={"label": label.strip()[:40]})
        audit.record(actor=actor, verb="instance.port-open", obj=row, detail={"port": number})
        live.announce(row)
    return made


def close_port(*, actor: Actor, instance: Instance, number: int) -> None:
    """Nobody gets there any more; what is open ends. Raises ``Forbidden`` or ``NotFound``."""
    require_owner(actor, instance)
    with transaction.atomic():
        row = services.locked(actor, instance)
        _find(row, number).delete()
        audit.record(actor=actor, verb="instance.port-close", obj=row, detail={"port": number})
        live.announce(row)


def share_port(*, actor: Actor, instance: Instance, number: int, person: str, until: datetime) -> PortGuest:
    """Let somebody use an open port until then; again moves the end.

    Raises ``Invalid``, ``Forbidden`` and ``NotFound``."""
    require_owner(actor, instance)
    now = timezone.now()
    if not now < until <= now + LONGEST:
        sentence = _("The end is to come, and at most %(days)d days away.") % {"days": LONGEST.days}
        raise Invalid(sentence, code="end_invalid", next=_("Choose another end."), errors={"until": sentence})
    with transaction.atomic():
        row = services.locked(actor, instance)
        port = _find(row, number)
        guest = User.objects.as_system().filter(username=person.strip(), is_active=True).first()
        if guest is None:
            sentence = _("There is no user named “%(name)s”.") % {"name": person.strip()[:60]}
            raise Invalid(
                sentence, code="person_unknown", next=_("Ask them how they sign in."), errors={"person": sentence}
            )
        PortGuest.objects.as_system().filter(port=port, until__lte=now).delete()
        if PortGuest.objects.as_system().filter(port=port).exclude(person=guest).count() >= MOST_GUESTS:
            sentence = _("It is shared with %(count)d people already.") % {"count": MOST_GUESTS}
            raise Invalid(sentence, code="too_many_guests", next=_("End one of these first."))
        made: PortGuest
        made, _new = PortGuest.objects.as_system().update_or_create(port=port, person=guest, defaults={"until": until})
        told = {"port": number, "person": guest.username, "until": until.isoformat()}
        audit.record(actor=actor, verb="instance.port-share", obj=row, detail=told)
        live.announce(row)
    return made


def unshare_port(*, actor: Actor, instance: Instance, number: int, person: str) -> None:
    """They use it no more, at once. Raises ``Forbidden`` or ``NotFound``."""
    require_owner(actor, instance)
    with transaction.atomic():
        row = services.locked(actor, instance)
        gone, _kinds = PortGuest.objects.as_system().filter(port=_find(row, number), person__username=person).delete()
        if not gone:
            raise NotFound(_("It is not shared with “%(name)s”.") % {"name": person[:60]})
        audit.record(actor=actor, verb="instance.port-unshare", obj=row, detail={"port": number, "person": person})
        live.announce(row)


def ticket(*, actor: Actor, port: OpenPort) -> Entrance:
    """A one-time entrance to an open port for the owner and its guests; audited. Raises ``Forbidden``, ``Conflict``."""
    instance = port.instance
    now = timezone.now()
    guest = PortGuest.objects.as_system().filter(port=port, person_id=actor.user_id, until__gt=now).exists()
    if actor.user_id is None or not (guest or entering.may_enter(actor, instance)):
        raise Forbidden(
            _("Only its owner and the people whom it is shared with may use this port."),
            code="not_shared",
            next=_("Ask the owner to share it with you."),
        )
    if instance.state != InstanceState.RUNNING:
        raise Conflict(
            _("The instance “%(name)s” is %(state)s, so there is nothing to open.")
            % {"name": instance.name, "state": instance.state_label},
            code="not_running",
            next=_("It opens again while the instance runs."),
        )
    wanted = people.Pass(instance.pk.hex, instance.launch, port.number, actor.user_id.hex)
    audit.record(actor=actor, verb="instance.port-enter", obj=instance, detail={"port": port.number})
    return Entrance(
        url=f"{url_of(instance, port.number)}portal/enter",
        ticket=people.ticket(wanted, secrets.token_urlsafe(16)),
        expires_at=now + timedelta(seconds=people.TICKET_S),
    )


def require_known(actor: Actor, instance_id: object) -> None:
    """Raise ``NotFound`` unless the actor may know of an open port of the instance."""
    if not OpenPort.objects.for_actor(actor).filter(instance_id=instance_id).exists():
        raise NotFound()


def usable(actor: Actor, instance_id: object, number: int) -> OpenPort:
    """The open port if the actor may know of it. Raises ``NotFound``."""
    rows = OpenPort.objects.for_actor(actor).select_related("instance__queue__cluster", "instance__owner")
    found: OpenPort | None = rows.filter(instance_id=instance_id, number=number).first()
    if found is None:
        raise NotFound()
    return found


def _find(instance: Instance, number: int) -> OpenPort:
    found: OpenPort | None = OpenPort.objects.as_system().filter(instance=instance, number=number).first()
    if found is None:
        raise NotFound(_("Port %(number)d is not open.") % {"number": number})
    return found


def require_owner(actor: Actor, instance: Instance) -> None:
    """Raise ``Forbidden`` for everybody else."""
    if not entering.may_enter(actor, instance):
        raise Forbidden(
            _("Only its owner opens and shares ports of an instance."), code="not_owner", next=_("Ask the owner.")
        )
