"""Services for people: accounts, passwords, the one global role."""

from __future__ import annotations

import secrets
from typing import Any
from uuid import UUID, uuid4

from django.contrib.auth.password_validation import validate_password
from django.contrib.auth.validators import UnicodeUsernameValidator
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from apps.clusters.services import require_admin
from apps.core import audit, live
from apps.core.actors import Actor
from apps.core.errors import Conflict, Invalid
from apps.core.names import MAX_LENGTH
from apps.tenants import departures
from apps.tenants.models import ApiToken, User

_is_username = UnicodeUsernameValidator()


def create(
    *,
    actor: Actor,
    id: UUID | None = None,  # noqa: A002 - the field's name in the API
    username: str,
    email: str = "",
    password: str = "",
    is_platform_admin: bool = False,
) -> tuple[User, str]:
    """A new account and, when no password was given, the one that was made for it: shown once, changed at sign-in.

    The same ``id`` again (a double click, a lost answer) answers the first account, with a new password while nobody
    has signed in: the one that was made first may never have been seen.
    """
    require_admin(actor)
    username = check_username(username)
    check_email(email)
    pk = id or uuid4()
    if (known := _made_before(actor, pk, password)) is not None:
        return known
    made = "" if password else new_password()
    if password:
        check_password(password, User(username=username, email=email))
    try:
        with transaction.atomic():
            user = User.objects.create_user(
                id=pk,
                username=username,
                email=email,
                password=password or made,
                is_platform_admin=is_platform_admin,
                must_change_password=bool(made),
            )
            _audit(actor, "user.create", user, {"is_platform_admin": is_platform_admin})
    except IntegrityError as error:
        if (known := _made_before(actor, pk, password)) is not None:  # the same request twice in one instant
            return known
        raise Conflict(
            _("There is a user named “%(name)s” already.") % {"name": username},
            code="name_taken",
            next=_("Choose another name."),
            errors={"username": _("taken")},
        ) from error
    return user, made


def deactivate(*, actor: Actor, user: User) -> None:
    """The person can no longer sign in: sessions and tokens are refused at once, pages end within half a minute.

    What people enter with keys of their own (dev instances) is stopped; tasks go on.
    """
    require_admin(actor)
    with transaction.atomic():
        row = _locked(user)
        if not row.is_active:
            return
        _keep_one_admin(row)
        row.is_active = False
        row.save(update_fields=["is_active"])
        _audit(actor, "user.deactivate", row, {"tokens_revoked": _revoke_tokens(row)})
        departures.end(user_id=row.pk, queue_ids=None, actor=actor)
    user.refresh_from_db()


def activate(*, actor: Actor, user: User) -> None:
    """The person can sign in again; revoked tokens stay revoked."""
    require_admin(actor)
    with transaction.atomic():
        row = _locked(user)
        if row.is_active:
            return
        row.is_active = True
        row.save(update_fields=["is_active"])
        _audit(actor, "user.activate", row)
    user.refresh_from_db()


def set_admin(*, actor: Actor, user: User, is_platform_admin: bool) -> None:
    """Give or take the role of platform administrator; one always remains.

    Who loses it loses the queues of teams that they are not in, and what they had running there is stopped.
    """
    require_admin(actor)
    with transaction.atomic():
        row = _locked(user)
        if row.is_platform_admin == is_platform_admin:
            return
        if not is_platform_admin:
            _keep_one_admin(row)
        row.is_platform_admin = is_platform_admin
        row.save(update_fields=["is_platform_admin"])
        _audit(actor, "user.admin", row, {"is_platform_admin": is_platform_admin})
        if not is_platform_admin:
            departures.end(user_id=row.pk, queue_ids=departures.queues_of_no_team(row.pk), actor=actor)
    user.refresh_from_db()


def reset_password(*, actor: Actor, user: User) -> str:
    """A new password, shown once to the administrator; all sessions and tokens of the person end."""
    require_admin(actor)
    made = new_password()
    with transaction.atomic():
        row = _locked(user)
        row.set_password(made)
        row.must_change_password = True
        row.save(update_fields=["password", "must_change_password"])
        _audit(actor, "user.reset-password", row, {"tokens_revoked": _revoke_tokens(row)})
    user.refresh_from_db()
    return made


def new_password() -> str:
    """72 random bits."""
    return secrets.token_urlsafe(9)


def check_username(username: str) -> str:
    """1 to 63 letters and digits of any script and ``@ . + - _``. Raises `Invalid`."""
    username = User.normalize_username(username)
    try:
        _is_username(username)
    except ValidationError as error:
        raise _bad_username(str(error.messages[0])) from error
    if not 1 <= len(username) <= MAX_LENGTH:
        raise _bad_username(_("A user's name has from 1 to %(max)d characters.") % {"max": MAX_LENGTH})
    return username


def check_email(email: str) -> None:
    """Empty or an address. Raises `Invalid`."""
    if email:
        try:
            validate_email(email)
        except ValidationError as error:
            text = str(error.messages[0])
            raise Invalid(text, code="email_invalid", errors={"email": text}) from error


def check_password(password: str, user: User, *, field: str = "password") -> None:
    """What ``AUTH_PASSWORD_VALIDATORS`` say. Raises `Invalid`."""
    try:
        validate_password(password, user)
    except ValidationError as error:
        text = " ".join(error.messages)
        raise Invalid(
            text, code="password_weak", next=_("Choose a longer one, of several words say."), errors={field: text}
        ) from error


def _bad_username(text: str) -> Invalid:
    return Invalid(text, code="name_invalid", errors={"username": text})


def _made_before(actor: Actor, pk: UUID, password: str) -> tuple[User, str] | None:
    known = User.objects.as_system().filter(pk=pk).first()
    if known is None:
        return None
    unseen = not password and known.must_change_password and known.last_login is None
    return known, reset_password(actor=actor, user=known) if unseen else ""


def _locked(user: User) -> User:
    """``no_key``: who writes an audit row needs the key to stay, and may hold what `departures` waits for."""
    return User.objects.as_system().select_for_update(no_key=True).get(pk=user.pk)


def _revoke_tokens(user: User) -> int:
    alive = ApiToken.objects.as_system().filter(user=user, revoked_at__isnull=True)
    return int(alive.update(revoked_at=timezone.now()))


def _keep_one_admin(user: User) -> None:
    """Called with the row locked; the others are locked too, so that two at once cannot remove each other."""
    if not user.is_platform_admin:
        return
    rows = User.objects.as_system().select_for_update(no_key=True)
    admins = rows.filter(is_platform_admin=True, is_active=True)
    if [row.pk for row in admins] == [user.pk]:
        raise Conflict(
            _("“%(name)s” is the only platform administrator.") % {"name": user.username},
            code="last_admin",
            next=_("Make somebody else a platform administrator first."),
        )


def _audit(actor: Actor, verb: str, user: User, detail: dict[str, Any] | None = None) -> None:
    audit.record(actor=actor, verb=verb, obj=user, detail=detail)  # type: ignore[arg-type] # has what it asks for
    live.announce(user)  # type: ignore[arg-type]
