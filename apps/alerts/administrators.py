"""Mail to the administrators about what lasts and needs one of them (``apps.core.standing``)."""

from __future__ import annotations

from django.conf import settings
from django.utils import translation
from django.utils.translation import gettext as _

from apps.alerts import delivery
from apps.core.models import Trouble
from apps.tenants import selectors as tenants


def tell(trouble: Trouble) -> None:
    """One mail to each active administrator who has an address, in their language; inside the caller's transaction."""
    for person in tenants.administrators().exclude(email=""):
        with translation.override(tenants.language_of(person)):
            reason = trouble.reason
            if reason is None:
                continue
            url = f"{settings.PORTAL_ORIGIN}{trouble.params.get('url') or '/'}"
            delivery.put_mail(
                key=f"trouble:{trouble.pk}:{trouble.since:%Y%m%d%H%M%S}",
                to=[person.email],
                subject=_("The portal needs an administrator"),
                text="\n".join([reason.sentence, reason.next, "", *trouble.evidence, "", url]),
            )
