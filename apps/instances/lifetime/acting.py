"""Warnings and stops: what the rounds found, done under the instance's lock and looked at once more there."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.utils import timezone, translation
from django.utils.translation import gettext as _

from apps.alerts import delivery
from apps.core import actors, audit, live, quantities
from apps.core.reasons import Reason
from apps.instances import services
from apps.instances.lifetime.judging import Do, Facts, Verdict, judge, stops_in
from apps.instances.lifetime.rows import Cause, Lifetime
from apps.instances.models import Instance
from apps.tenants import selectors as tenants
from apps.tenants.lifetimes import Policy

LIFETIME = actors.system("lifetime")
NO_WARNING = {"warned_for": "", "warned_at": None, "warned_s": 0, "stops_at": None}


def act(pk: UUID, launch: int, facts: Facts, policy: Policy) -> str | None:
    """Do what follows from the facts, unless the row says otherwise by now. The text of a warning that was given.

    What was counted is believed; what people set meanwhile is read anew.
    """
    with transaction.atomic():
        rows = Instance.objects.as_system().select_for_update(of=("self",)).select_related("owner", "queue__team")
        instance: Instance | None = rows.filter(pk=pk, launch=launch).first()
        if instance is None:
            return None
        life, _made = Lifetime.objects.as_system().get_or_create(pk=pk, defaults={"launch": launch})
        now = timezone.now()
        facts = replace(
            facts,
            state=instance.state,
            ends_at=life.ends_at,
            keep_until=life.keep_until,
            warned_for=life.warned_for if life.launch == launch else "",
        )
        verdict = judge(facts, policy, now=now)
        if verdict.do is Do.STOP:
            _stop(instance, verdict, policy)
        elif verdict.do is Do.WITHDRAW:
            withdraw(instance)
        elif verdict.do is Do.WARN:
            return _warn(instance, verdict, facts)
    return None


def withdraw(instance: Instance) -> None:
    """The warning counts no more; inside the caller's transaction."""
    own = Lifetime.objects.as_system().filter(pk=instance.pk).exclude(warned_for="")
    if own.update(**NO_WARNING):
        live.announce(instance)


def _stop(instance: Instance, verdict: Verdict, policy: Policy) -> None:
    if verdict.cause is Cause.IDLE:
        minutes = round(policy.idle.total_seconds() / 60)
        reason = Reason(code="stopped_idle", params={"minutes": minutes, "team": instance.queue.team.name})
    else:
        reason = Reason(code="stopped_at_end")
    Lifetime.objects.as_system().filter(pk=instance.pk).update(**NO_WARNING, idle_s=0)
    services.stop(actor=LIFETIME, instance=instance, reason=reason)


def _warn(instance: Instance, verdict: Verdict, facts: Facts) -> str:
    now = timezone.now()
    warned = {"warned_for": verdict.cause, "warned_at": now, "warned_s": 0, "stops_at": stops_in(verdict, now)}
    Lifetime.objects.as_system().filter(pk=instance.pk).update(**warned, launch=instance.launch)
    detail = {"for": verdict.cause, "in_s": round(verdict.left_s)}
    audit.record(actor=LIFETIME, verb="instance.warn", obj=instance, detail=detail)
    live.announce(instance)
    owner = instance.owner
    with translation.override(tenants.language_of(owner)):
        text = sentence(instance, verdict, facts)
        if owner.is_active and owner.email:
            _mail(instance, text, verdict, now)
    return text


def _mail(instance: Instance, text: str, verdict: Verdict, now: datetime) -> None:
    when = _("That is at %(at)s UTC.") % {"at": f"{now + timedelta(seconds=verdict.left_s):%Y-%m-%d %H:%M}"}
    how = _("To keep it running, use it, or say until when on its page:")
    delivery.put_mail(
        key=f"lifetime:{instance.pk}:{instance.launch}:{now:%Y%m%d%H%M%S}",
        to=[instance.owner.email],
        subject=_("“%(name)s” will be stopped") % {"name": instance.name},
        text="\n".join([text, when, "", how, f"{settings.PORTAL_ORIGIN}{instance.get_absolute_url()}"]),
        queue_id=instance.queue_id,
    )


def sentence(instance: Instance, verdict: Verdict, facts: Facts) -> str:
    """What a mail and a terminal say, in the active language."""
    left = quantities.about(60 * max(1, round(verdict.left_s / 60)))
    if verdict.cause is Cause.IDLE:
        quiet = quantities.about(60 * max(1, round(facts.idle_s / 60)))
        return _(
            "Nothing has happened in the instance “%(name)s” for %(quiet)s. It will be stopped in %(left)s unless "
            "something happens in it. What runs in it ends then; files stay."
        ) % {"name": instance.name, "quiet": quiet, "left": left}
    return _(
        "The time of the instance “%(name)s” is nearly over. It will be stopped in %(left)s. "
        "What runs in it ends then; files stay."
    ) % {"name": instance.name, "left": left}
