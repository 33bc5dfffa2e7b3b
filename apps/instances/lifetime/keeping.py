"""What people say of an instance's lifetime: when it ends, and until when it is kept whatever it does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from apps.core import audit, live, quantities, wake
from apps.core.actors import Actor
from apps.core.errors import Conflict, Invalid, NotFound
from apps.instances import services
from apps.instances.lifetime import acting
from apps.instances.lifetime.rows import Lifetime
from apps.instances.models import Instance
from apps.instances.states import LAUNCHED, InstanceState
from apps.tenants import access
from apps.tenants.lifetimes import Policies, Policy

#: What pages offer; the team's limit is added where it is another one.
OFFERED = tuple(timedelta(hours=hours) for hours in (2, 8, 24, 72, 168))
#: A form is read for a while before it is sent.
SLACK = timedelta(minutes=5)


def keep(*, actor: Actor, instance: Instance, until: datetime | None) -> Instance:
    """Neither idleness nor its end stops it before ``until``; None takes that back. A warning that stands is withdrawn.

    Raises ``Conflict`` when it does not run, ``Invalid`` for a time that is past or beyond the team's limit.
    """
    with transaction.atomic():
        row = _locked(actor, instance)
        if row.state not in LAUNCHED:
            raise Conflict(
                _("The instance “%(name)s” is %(state)s; it can be kept while it runs.")
                % {"name": row.name, "state": row.state_label},
                code="not_running",
                next=_("Start it; while it is stopped it holds nothing but its volumes."),
            )
        if until is not None:
            _check_keep(Policies().of(row.queue.team_id), until)
        _write(row, actor, "instance.keep", keep_until=until)
        acting.withdraw(row)
    return row


def set_end(*, actor: Actor, instance: Instance, at: datetime | None) -> Instance:
    """It is stopped at ``at``, after a warning; None: it has no end of its own. Raises as `keep`."""
    with transaction.atomic():
        row = _locked(actor, instance)
        if row.state in {InstanceState.DELETING, InstanceState.DELETED}:
            raise Conflict(
                _("The instance “%(name)s” is being deleted.") % {"name": row.name},
                code="being_deleted",
                next=_("Make a new instance; the home is still there."),
            )
        if at is not None:
            _check_end(Policies().of(row.queue.team_id), row, at)
        _write(row, actor, "instance.end", ends_at=at)
        acting.withdraw(row)
    return row


def create(*, actor: Actor, ends_at: datetime | None, **wanted: Any) -> Instance:
    """A new instance, perhaps one that ends; all or nothing."""
    if ends_at is None:
        return services.create(actor=actor, **wanted)
    with transaction.atomic():
        made = services.create(actor=actor, **wanted)
        known = Lifetime.objects.as_system().filter(pk=made.pk).exists()  # made by the same request, sent twice
        return made if known else set_end(actor=actor, instance=made, at=ends_at)


@dataclass(frozen=True, kw_only=True)
class Offer:
    """A choice of a form: so many seconds from now."""

    seconds: int
    label: str

    @property
    def words(self) -> str:
        """As an end is offered."""
        return _("ends in %(time)s") % {"time": self.label}


def offers(limit: timedelta = timedelta()) -> Sequence[Offer]:
    """What can be chosen up to a limit; zero: there is none."""
    spans = [one for one in OFFERED if not limit or one <= limit]
    if limit and limit not in spans and limit < OFFERED[-1]:
        spans.append(limit)
    return [Offer(seconds=round(one.total_seconds()), label=quantities.about(one.total_seconds())) for one in spans]


def moment(text: str) -> datetime:
    """``now`` and so many seconds, as forms send it. Raises ``Invalid``."""
    try:
        seconds = int(text)
        return timezone.now() + timedelta(seconds=seconds)
    except (ValueError, OverflowError):
        sentence = _("Choose for how long.")
        raise Invalid(sentence, code="until_invalid", errors={"until": sentence}) from None


def _locked(actor: Actor, instance: Instance) -> Instance:
    access.hold(actor, instance.queue)
    rows = Instance.objects.for_actor(actor).select_for_update(of=("self",)).select_related("queue")
    row: Instance | None = rows.filter(pk=instance.pk).first()
    if row is None:
        raise NotFound()
    access.require_act_on(actor, row.queue, row.owner_id)
    return row


def _check_keep(policy: Policy, until: datetime) -> None:
    _refuse_past(until, "until")
    if not policy.longest_keep:
        sentence = _("In this team nobody may keep an instance running by this.")
        raise Invalid(sentence, code="keep_not_allowed", next=_("Ask an administrator."), errors={"until": sentence})
    _refuse_beyond(
        until,
        timezone.now() + policy.longest_keep,
        field="until",
        code="keep_too_long",
        limit=policy.longest_keep,
        sentence=_("In this team an instance may be kept for at most %(limit)s at a time."),
        advice=_("Choose an earlier time; it can be kept again before that is over."),
    )


def _check_end(policy: Policy, row: Instance, at: datetime) -> None:
    _refuse_past(at, "at")
    if policy.longest_lease:
        begun = row.start_requested_at if row.state in LAUNCHED else None
        _refuse_beyond(
            at,
            (begun or timezone.now()) + policy.longest_lease,
            field="at",
            code="lease_too_long",
            limit=policy.longest_lease,
            sentence=_("In this team an instance runs for at most %(limit)s after a start."),
            advice=_("Choose an earlier time. “Keep until” can move the end later on, and a restart begins anew."),
        )


def _refuse_past(moment: datetime, field: str) -> None:
    if moment <= timezone.now():
        sentence = _("This time is past.")
        raise Invalid(
            sentence, code="time_past", next=_("Choose a time that is still to come."), errors={field: sentence}
        )


def _refuse_beyond(
    moment: datetime, latest: datetime, *, field: str, code: str, limit: timedelta, sentence: str, advice: str
) -> None:
    if moment <= latest + SLACK:
        return
    text = sentence % {"limit": quantities.about(limit.total_seconds())}
    data = {"latest": latest.isoformat(timespec="seconds")}
    raise Invalid(text, code=code, next=advice, errors={field: text}, data=data)


def _write(row: Instance, actor: Actor, verb: str, **values: datetime | None) -> None:
    own = Lifetime.objects.as_system()
    life, _made = own.get_or_create(pk=row.pk, defaults={"launch": row.launch})
    changed = {name: value for name, value in values.items() if getattr(life, name) != value}
    if not changed:
        return
    own.filter(pk=row.pk).update(**changed)
    wake.notify(wake.LIFETIMES)
    told = {name: value.isoformat(timespec="seconds") if value else None for name, value in changed.items()}
    audit.record(actor=actor, verb=verb, obj=row, detail=told)
    live.announce(row)
