"""Personal tokens: made, shown once, found again by their digest alone."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Mapping, Sequence
from datetime import timedelta
from uuid import UUID, uuid4

from django.db import transaction
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext as _

from apps.core import audit, names
from apps.core.actors import Actor
from apps.core.errors import Conflict, Forbidden, Invalid
from apps.tenants.models import ApiToken

PREFIX = "mlp_"
DEFAULT_DAYS = 90
MAX_DAYS = 366
SCOPE = re.compile(r"[a-z][a-z-]{0,39}:[a-z][a-z-]{0,39}(:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})?", re.ASCII)
"""``kind:action`` or ``kind:action:id``; ``read`` is the action of lists and details.

Some actions bring along that the token may look at what they make: `PortalViewSet.followed_with`.
"""
USE_NOTED_EVERY = timedelta(minutes=1)


def create(
    *,
    actor: Actor,
    id: UUID | None = None,  # noqa: A002 - the field's name in the API
    name: str,
    days: int = DEFAULT_DAYS,
    scopes: Sequence[str] = (),
) -> tuple[ApiToken, str]:
    """A new token of the actor and its text, which nobody can see again.

    The same ``id`` with the same name and scopes again (a double click) is the same token, with a new text: the one
    that was made first may never have been seen. Once it has been used it raises `Conflict` ``token_made``.

    A scoped token cannot make tokens: it would hand out more than it has. Raises `Invalid` or `Forbidden`.
    """
    if actor.user_id is None or actor.scopes:
        raise Forbidden(
            _("A token with limited scopes cannot make tokens."),
            code="scope_missing",
            next=_("Sign in with your password and make the token under Account."),
        )
    name = names.check(name)
    errors: dict[str, str] = {}
    if not 1 <= days <= MAX_DAYS:
        errors["days"] = _("A token lasts from 1 to %(max)d days.") % {"max": MAX_DAYS}
    wrong = [scope for scope in scopes if not SCOPE.fullmatch(scope)]
    if wrong:
        errors["scopes"] = _("“%(scope)s” is not a scope such as flow:run or flow:run:<id>.") % {"scope": wrong[0]}
    if errors:
        raise Invalid(_("The token cannot be made like this."), errors=errors)
    text = PREFIX + secrets.token_urlsafe(32)
    kept = {"digest": digest(text), "prefix": text[:8]}
    same = id is not None and not _is_another(id, actor.user_id, name, scopes)
    with transaction.atomic():
        token, new = (
            ApiToken.objects.as_system()
            .select_for_update()
            .get_or_create(
                id=id if same else uuid4(),
                user_id=actor.user_id,
                defaults={
                    **kept,
                    "name": name,
                    "scopes": list(scopes),
                    "expires_at": timezone.now() + timedelta(days=days),
                },
            )
        )
        if not new:
            _put_text(token, kept)
            return token, text
        audit.record(actor=actor, verb="token.create", obj=token, detail={"days": days, "scopes": list(scopes)})
    return token, text


def _is_another(pk: UUID, user_id: UUID, name: str, scopes: Sequence[str]) -> bool:
    """The form was sent again after a step back, for a second token: the first must go on."""
    known = ApiToken.objects.as_system().filter(pk=pk).first()
    return known is not None and (known.user_id, known.name, known.scopes) != (user_id, name, list(scopes))


def _put_text(token: ApiToken, kept: Mapping[str, str]) -> None:
    if token.last_used_at is not None or token.revoked_at is not None:
        raise Conflict(
            _("This token is made already, and it has been used or revoked."),
            code="token_made",
            next=_("Open the page anew to make another one."),
        )
    for name, value in kept.items():
        setattr(token, name, value)
    token.save(update_fields=[*kept, "updated_at"])


def revoke(*, actor: Actor, token: ApiToken) -> None:
    """The token is refused from now on; again is harmless."""
    with transaction.atomic():
        done = (
            ApiToken.objects.as_system().filter(pk=token.pk, revoked_at__isnull=True).update(revoked_at=timezone.now())
        )
        if done:
            audit.record(actor=actor, verb="token.revoke", obj=token)
    token.refresh_from_db()


def find(text: str) -> ApiToken | None:
    """The token with its user, whatever its condition. The lookup is by digest, so its time says nothing about it."""
    return ApiToken.objects.as_system().select_related("user").filter(digest=digest(text)).first()


def note_use(token: ApiToken) -> None:
    """Remember that the token was used, at most once a minute."""
    now = timezone.now()
    stale = Q(last_used_at__isnull=True) | Q(last_used_at__lt=now - USE_NOTED_EVERY)
    if token.last_used_at is None or token.last_used_at < now - USE_NOTED_EVERY:
        ApiToken.objects.as_system().filter(stale, pk=token.pk).update(last_used_at=now)


def digest(text: str) -> str:
    """What the database keeps. The text has 256 random bits, so a plain hash is enough."""
    return hashlib.sha256(text.encode()).hexdigest()
