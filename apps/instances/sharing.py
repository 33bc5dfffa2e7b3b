"""Let somebody look at an instance for a time: its page, log, stages and events, as its team sees them.

Nobody enters what is another's, and nobody but its owner is shown the key, whatever they may look at.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from apps.core import audit, live
from apps.core.actors import Actor
from apps.core.errors import Invalid, NotFound
from apps.instances import services
from apps.instances.models import Instance, InstanceViewer
from apps.tenants.models import User

LONGEST = timedelta(days=90)
MOST_VIEWERS = 50


def share(*, actor: Actor, instance: Instance, person: str, until: datetime) -> InstanceViewer:
    """Let this person look until then; again moves the end. Raises ``Invalid`` with the place of what is wrong."""
    now = timezone.now()
    if not now < until <= now + LONGEST:
        sentence = _("The end is to come, and at most %(days)d days away.") % {"days": LONGEST.days}
        raise Invalid(sentence, code="end_invalid", next=_("Choose another end."), errors={"until": sentence})
    with transaction.atomic():
        row = services.locked(actor, instance)
        services.refuse_when_going(row)
        viewer = User.objects.as_system().filter(username=person.strip(), is_active=True).first()
        if viewer is None:
            sentence = _("There is no user named “%(name)s”.") % {"name": person.strip()[:60]}
            raise Invalid(
                sentence, code="person_unknown", next=_("Ask them how they sign in."), errors={"person": sentence}
            )
        InstanceViewer.objects.as_system().filter(instance=row, until__lte=now).delete()
        others = InstanceViewer.objects.as_system().filter(instance=row).exclude(person=viewer)
        if others.count() >= MOST_VIEWERS:
            sentence = _("It is shared with %(count)d people already.") % {"count": MOST_VIEWERS}
            raise Invalid(sentence, code="too_many_viewers", next=_("End one of these first."))
        made: InstanceViewer
        made, _new = InstanceViewer.objects.as_system().update_or_create(
            instance=row, person=viewer, defaults={"until": until}
        )
        told = {"person": viewer.username, "until": until.isoformat()}
        audit.record(actor=actor, verb="instance.share", obj=row, detail=told)
        live.announce(row)
    return made


def unshare(*, actor: Actor, instance: Instance, person: str) -> None:
    """They see it no more, from the next look on. Raises ``NotFound`` for whom it is not shared with."""
    with transaction.atomic():
        row = services.locked(actor, instance)
        gone, _kinds = InstanceViewer.objects.as_system().filter(instance=row, person__username=person).delete()
        if not gone:
            raise NotFound(_("It is not shared with “%(name)s”.") % {"name": person[:60]})
        audit.record(actor=actor, verb="instance.unshare", obj=row, detail={"person": person})
        live.announce(row)


def viewers(instance: Instance) -> Sequence[InstanceViewer]:
    """Whom it is shared with now."""
    rows = InstanceViewer.objects.as_system().filter(instance=instance, until__gt=timezone.now())
    return list(rows.select_related("person").order_by("until"))
