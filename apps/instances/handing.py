"""Another name for an instance, another owner, another one like it. Each is one transaction.

A name is for people: host, objects in the cluster and files stay as they are. An owner is who may enter: with a new one
go the key (each start makes one), the SSH host key, which the old one may have read, and all who were shown it.
"""

from __future__ import annotations

from typing import Literal
from uuid import UUID

from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import translation
from django.utils.translation import gettext as _

from apps.alerts import delivery
from apps.core import actors, audit, live, names
from apps.core.actors import Actor
from apps.core.errors import Conflict, Invalid
from apps.instances import choices, pending, services, ssh
from apps.instances.models import Instance, InstanceViewer
from apps.storage import services as storage
from apps.storage import uses
from apps.tenants import access
from apps.tenants import selectors as tenants
from apps.tenants.models import Membership, Role, User

Home = Literal["stays", "goes"]
HOMES = ("stays", "goes")


def rename(*, actor: Actor, instance: Instance, name: str) -> Instance:
    """Give it another name. Raises ``Invalid`` (``name_invalid``, ``name_taken``)."""
    wanted = names.check(name.strip())
    try:
        with transaction.atomic():
            row = services.locked(actor, instance)
            services.refuse_when_going(row)
            if row.name == wanted:
                return row
            before, row.name = row.name, wanted
            row.named_after = row.named_after or before
            row.revision += 1
            row.save(update_fields=["name", "named_after", "revision", "updated_at"])
            audit.record(actor=actor, verb="instance.rename", obj=row, detail={"before": before, "after": wanted})
            live.announce(row)
    except IntegrityError:
        raise services.name_taken(wanted, instance.queue) from None
    return row


def clone(
    *,
    actor: Actor,
    instance: Instance,
    name: str = "",
    queue: choices.Reference = "",
    id: UUID | None = None,  # noqa: A002 - the field's name
) -> Instance:
    """Make and start one of the actor's own with the same image, size, volumes, variables, script and so on.

    Its home is the actor's in that queue: the same one for the owner in the same queue. Volumes of another queue cannot
    come along, and are refused as `services.create` refuses them.
    """
    like = pending.next_start(instance)
    own = instance.image.team_id is not None and like.image_id == instance.image_id
    return services.create(
        actor=actor,
        id=id,
        queue=queue or instance.queue_id,
        image="" if own else like.image_id,
        own_image=like.image if own else "",
        size=like.size_id,
        name=name,
        volumes=[
            {"volume": one.volume_id, "path": one.path, "read_only": one.read_only}
            for one in sorted(like.mounts, key=lambda mount: mount.path)
        ],
        more=like.options,
    )


def transfer(*, actor: Actor, instance: Instance, to: str, confirm: str, home: Home = "stays") -> Instance:
    """Make a colleague its owner; ``confirm`` is its name, typed. With ``home`` *goes* the home becomes theirs too.

    Raises ``Conflict`` while it runs, ``Invalid`` for whom it cannot be given to, or when the home cannot go along.
    """
    if confirm != instance.name:
        raise Invalid(
            _("Nothing was done: the name of the instance was not typed."),
            code="not_confirmed",
            errors={"confirm": _("Type “%(name)s”.") % {"name": instance.name}},
        )
    with transaction.atomic():
        access.require_act_on(actor, instance.queue, instance.owner_id)
        heir = _colleague(instance, to)
        theirs = actors.from_user(heir)
        for one in sorted((actor, theirs), key=lambda somebody: str(somebody.user_id)):
            access.hold(one, instance.queue)
        row = services.locked(actor, instance)
        services.refuse_when_going(row)
        if not row.at_rest:
            raise Conflict(
                _("The instance “%(name)s” is %(state)s; it can be given away when it is stopped.")
                % {"name": row.name, "state": row.state_label},
                code="not_stopped",
                next=_("Stop it first."),
            )
        before = row.owner
        access.require(theirs, row.queue)
        if home == "goes":
            _hand_over_home(actor, row, heir)
        else:
            row.home = storage.ensure_home(actor=theirs, queue=row.queue)
        row.owner = heir
        row.revision += 1
        for column, value in ssh.fresh_host_key().items():
            setattr(row, column, value)
        row.save(
            update_fields=["owner", "home", "revision", "ssh_host_key", "ssh_host_public", "updated_at"],
        )
        InstanceViewer.objects.as_system().filter(instance=row).delete()
        told = {"before": before.username, "after": heir.username, "home": home}
        audit.record(actor=actor, verb="instance.transfer", obj=row, detail=told)
        live.announce(row)
        _tell(actor, row, heir)
    return row


def _colleague(row: Instance, name: str) -> User:
    team = Membership.objects.as_system().filter(
        team_id=row.queue.team_id, user__username=name.strip(), user__is_active=True
    )
    found = team.exclude(role=Role.VIEWER).select_related("user").first()
    if found is None:
        sentence = _("“%(name)s” is no member of the team of the queue “%(queue)s” who may have instances.") % {
            "name": name.strip()[:60],
            "queue": row.queue.name,
        }
        raise Invalid(sentence, code="no_colleague", next=_("Name a member of the team."), errors={"to": sentence})
    if found.user_id == row.owner_id:
        sentence = _("“%(name)s” is its owner already.") % {"name": name.strip()}
        raise Invalid(sentence, code="owner_already", next=_("Name somebody else."), errors={"to": sentence})
    heir: User = found.user
    return heir


def _hand_over_home(actor: Actor, row: Instance, heir: User) -> None:
    """The home is a person's in a queue, so it can only go where none is, and from where nothing else needs it."""
    mine = row.get_absolute_url()
    others = [str(use.label) for use in uses.of(row.home_id) if use.url != mine]
    if others:
        sentence = _("The home “%(home)s” is used by %(others)s too.") % {
            "home": row.home.name,
            "others": ", ".join(others),
        }
        following = _("Delete those first, or leave the home with its owner and copy the files.")
        raise Invalid(sentence, code="home_in_use", next=following, errors={"home": sentence})
    storage.hand_over_home(actor=actor, volume=row.home, to=heir)


def _tell(actor: Actor, row: Instance, heir: User) -> None:
    if not heir.email or actor.user_id == heir.pk:
        return
    with translation.override(tenants.language_of(heir)):
        delivery.put_mail(
            key=f"transfer:{row.pk}:{row.revision}",
            to=[heir.email],
            subject=_("“%(name)s” is yours now") % {"name": row.name},
            text="\n".join(
                [
                    _("%(who)s made you the owner of the instance “%(name)s”. It is stopped; start it on its page:")
                    % {"who": actor.name, "name": row.name},
                    f"{settings.PORTAL_ORIGIN}{row.get_absolute_url()}",
                ]
            ),
            queue_id=row.queue_id,
        )
