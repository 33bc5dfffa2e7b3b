"""How one gets in: the key, and the one-time ticket that keeps the key out of every address (failure F40)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from dataclasses import dataclass
from datetime import datetime

from django.utils import timezone
from django.utils.translation import gettext as _

from apps.core import audit
from apps.core.actors import Actor
from apps.core.errors import Conflict, Forbidden
from apps.core.secret import Secret
from apps.instances import entrances, rotating
from apps.instances.models import Instance
from apps.instances.spec import url_of
from apps.instances.states import LAUNCHED, InstanceState

TICKET_S = 60


@dataclass(frozen=True, kw_only=True)
class Entrance:
    """POST ``ticket`` as a form field to ``url``; good once, until ``expires_at``."""

    url: str
    ticket: str
    expires_at: datetime


def sign(*, key: str, instance_id: str, username: str, expires: int, nonce: str) -> str:
    """The ticket: what it says in base64url, a dot, and its HMAC-SHA256 under the launch's key. Pure."""
    body = json.dumps({"i": instance_id, "u": username, "exp": expires, "n": nonce}, separators=(",", ":"))
    said = _base64url(body.encode())
    return f"{said}.{_base64url(hmac.new(key.encode(), said.encode(), hashlib.sha256).digest())}"


def ticket(*, actor: Actor, instance: Instance) -> Entrance:
    """A ticket for the owner of a running instance; audited. Raises ``Forbidden`` or ``Conflict``."""
    require_owner(actor, instance)
    if instance.state != InstanceState.RUNNING or not instance.key:
        raise Conflict(
            _("The instance “%(name)s” is %(state)s, so there is nothing to open.")
            % {"name": instance.name, "state": instance.state_label},
            code="not_running",
            next=_("Start it, and open it when it is running."),
        )
    entrances.require_lab(instance)
    expires = int(timezone.now().timestamp()) + TICKET_S
    signed = sign(
        key=instance.key.reveal(),
        instance_id=str(instance.pk),
        username=actor.name,
        expires=expires,
        nonce=secrets.token_urlsafe(16),
    )
    audit.record(actor=actor, verb="instance.enter", obj=instance)
    return Entrance(
        url=f"{url_of(instance)}portal/enter",
        ticket=signed,
        expires_at=datetime.fromtimestamp(expires, tz=timezone.get_default_timezone()),
    )


def reveal_key(*, actor: Actor, instance: Instance) -> Secret:
    """The key of the present launch, for its owner alone; audited. Raises ``Forbidden`` or ``Conflict``."""
    require_owner(actor, instance)
    if instance.state not in LAUNCHED or not instance.key:
        raise Conflict(
            _("The instance “%(name)s” is %(state)s; it has a key only from a start to the next stop.")
            % {"name": instance.name, "state": instance.state_label},
            code="no_key",
            next=_("Start it; each start makes a new key."),
        )
    if rotating.is_on_its_way(instance):
        raise Conflict(
            _("The instance “%(name)s” is being given a new key at this moment.") % {"name": instance.name},
            code="key_on_its_way",
            next=_("Ask again in a second."),
        )
    audit.record(actor=actor, verb="instance.key", obj=instance)
    key: Secret = instance.key
    return key


def may_enter(actor: Actor, instance: Instance) -> bool:
    """Whether the entrance is theirs; not even administrators enter what belongs to another."""
    return actor.user_id is not None and instance.owner_id == actor.user_id


def require_owner(actor: Actor, instance: Instance) -> None:
    """Raise ``Forbidden`` for everybody else."""
    if not may_enter(actor, instance):
        raise Forbidden(
            _("Only its owner may enter an instance or read its key."),
            code="not_owner",
            next=_("Make an instance of your own, or ask the owner."),
        )


def _base64url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
