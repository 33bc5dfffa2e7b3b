"""People's public keys for SSH: read, kept, handed to the entrance and to the instances.

A key opens nothing by itself: the entrance looks it up under the user name that is given with it, so it does no harm
when somebody registers a key that belongs to another person.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID, uuid4

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from django.db import IntegrityError, transaction
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext as _

from apps.core import audit, names
from apps.core.actors import Actor
from apps.core.errors import Conflict, Forbidden, Invalid
from apps.tenants.models import SshKey

#: The longest line that is read. An RSA key of 16,384 bits, the largest that OpenSSH takes, has 2,800 characters.
LONGEST = 8192
MOST_KEYS = 50
LEAST_RSA_BITS = 2048
KINDS = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "ssh-rsa",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
)
_PRIVATE = ("PRIVATE KEY-----", "PuTTY-User-Key-File", "SSH PRIVATE KEY FILE FORMAT")
USE_NOTED_EVERY = timedelta(minutes=1)

_on_change: list[Callable[[UUID], None]] = []


@dataclass(frozen=True, kw_only=True)
class PublicKey:
    """A line of a ``.pub`` file, understood. ``text`` is the kind and the key, without the comment."""

    kind: str
    text: str
    fingerprint: str
    comment: str


def on_change(handler: Callable[[UUID], None]) -> None:
    """Let ``handler`` hear, inside the transaction, whose keys have changed."""
    if handler not in _on_change:
        _on_change.append(handler)


def fingerprint(text: str) -> str:
    """``SHA256:…`` of a key's text, as ``ssh-keygen -l`` writes it. Raises ValueError for what is no base64."""
    digest = hashes.Hash(hashes.SHA256())
    digest.update(base64.b64decode(text.split()[1], validate=True))
    return "SHA256:" + base64.b64encode(digest.finalize()).decode().rstrip("=")


def parse(given: str) -> PublicKey:
    """One public key in OpenSSH's form. Raises `Invalid`, each refusal with its own code and what to do."""
    if any(mark in given for mark in _PRIVATE):
        raise _refused(
            "key_private",
            _("This is the private half of a key. It was not kept, but it belongs to nobody but you."),
            _("Send the other file, whose name ends in .pub."),
        )
    line = given.strip()
    if not line:
        raise _refused("key_empty", _("There is no key."), _("Paste the one line of a file such as id_ed25519.pub."))
    if len(given) > LONGEST:
        raise _refused(
            "key_too_long",
            _("This is longer than any public key (%(max)d characters at most).") % {"max": LONGEST},
            _("Paste the one line of a file such as id_ed25519.pub."),
        )
    if len(line.splitlines()) > 1:
        raise _refused(
            "key_several_lines",
            _("These are several lines, and a public key is one."),
            _("Add one key at a time; a line that was broken when it was copied has to be joined again."),
        )
    words = line.split(None, 2)
    kind = words[0]
    if kind not in KINDS:
        raise _not_a_kind(kind, words)
    if len(words) < 2:
        raise _unreadable()
    return _understood(kind, words[1], words[2].strip() if len(words) > 2 else "")


def _understood(kind: str, encoded: str, comment: str) -> PublicKey:
    text = f"{kind} {encoded}"
    try:
        key = load_ssh_public_key(text.encode())
        found = fingerprint(text)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise _unreadable() from error
    if isinstance(key, RSAPublicKey) and key.key_size < LEAST_RSA_BITS:
        raise _refused(
            "key_too_weak",
            _("An RSA key of %(bits)d bits can be broken; at least %(least)d are needed.")
            % {"bits": key.key_size, "least": LEAST_RSA_BITS},
            _("Make a new one: ssh-keygen -t ed25519"),
        )
    return PublicKey(kind=kind, text=text, fingerprint=found, comment=comment)


def _not_a_kind(kind: str, words: list[str]) -> Invalid:
    if any(word in KINDS for word in " ".join(words).split()[1:]):
        return _refused(
            "key_options",
            _("Something stands before the key: “%(text)s”. Options in front of a key are not taken.")
            % {"text": kind[:40]},
            _("Paste the line from the kind of the key on, such as ssh-ed25519 AAAA…"),
        )
    if kind.startswith(("ssh-", "ecdsa-", "sk-")):
        return _refused(
            "key_kind",
            _("Keys of the kind “%(kind)s” are not taken.") % {"kind": kind[:60]},
            _("Make a new one: ssh-keygen -t ed25519"),
        )
    return _unreadable()


def _unreadable() -> Invalid:
    return _refused(
        "key_unreadable",
        _("This is no public key as OpenSSH writes it, or a part of it is missing."),
        _("Paste the whole line of a file such as id_ed25519.pub; it begins with the kind: ssh-ed25519 AAAA…"),
    )


def _refused(code: str, sentence: str, then: str) -> Invalid:
    return Invalid(sentence, code=code, next=then, errors={"key": sentence})


def add(*, actor: Actor, id: UUID | None = None, key: str, name: str = "") -> SshKey:  # noqa: A002 - the API's name
    """Register a public key of the actor. Without a name it gets the key's comment.

    The same ``id`` again (a double click) is the same key. Raises `Invalid`, `Conflict` or `Forbidden`.
    """
    if actor.user_id is None or actor.scopes:
        raise Forbidden(
            _("A token with limited scopes cannot add keys for SSH."),
            code="scope_missing",
            next=_("Sign in with your password and add the key under Account."),
        )
    found = parse(key)
    chosen = names.check(name.strip() or _proposed(found))
    mine = SshKey.objects.as_system().filter(user_id=actor.user_id)
    known: SshKey | None = mine.filter(fingerprint=found.fingerprint).first()
    if known is not None:
        if id is not None and known.pk == id:
            return known
        raise _known_already(known.name)
    if mine.count() >= MOST_KEYS:
        raise Conflict(
            _("You have %(count)d keys, and more are not kept.") % {"count": MOST_KEYS},
            code="key_limit",
            next=_("Delete one that you no longer use."),
        )
    taken = id is None or SshKey.objects.as_system().filter(pk=id).exists()
    try:
        with transaction.atomic():
            row: SshKey = SshKey.objects.create(
                pk=uuid4() if taken else id,
                user_id=actor.user_id,
                name=chosen,
                kind=found.kind,
                public=found.text,
                fingerprint=found.fingerprint,
            )
            audit.record(actor=actor, verb="ssh-key.add", obj=row, detail={"fingerprint": row.fingerprint})
            _changed(actor.user_id)
    except IntegrityError:  # the same key at the same moment
        raise _known_already(chosen) from None
    return row


def _proposed(key: PublicKey) -> str:
    """A name from the comment, which is mostly ``person@machine``."""
    kept = re.sub(r"[^\w.-]+", "-", key.comment).strip("-_.")[: names.MAX_LENGTH]
    return kept if names.is_name(kept) else key.kind.partition("@")[0]


def _known_already(name: str) -> Conflict:
    sentence = _("This key is registered already, as “%(name)s”.") % {"name": name}
    return Conflict(sentence, code="key_known", next=_("Nothing needs to be done."), errors={"key": sentence})


def delete(*, actor: Actor, key: SshKey) -> None:
    """Take a key away: it opens nothing from now on, and what it has open is closed within seconds."""
    with transaction.atomic():
        audit.record(actor=actor, verb="ssh-key.delete", obj=key, detail={"fingerprint": key.fingerprint})
        SshKey.objects.as_system().filter(pk=key.pk).delete()
        _changed(key.user_id)


def _changed(user_id: UUID) -> None:
    for handler in _on_change:
        handler(user_id)


def texts_of(user_id: UUID) -> list[str]:
    """The keys of a person, one text each, in an order that does not change by itself."""
    rows = SshKey.objects.as_system().filter(user_id=user_id).order_by("created_at", "pk")
    return list(rows.values_list("public", flat=True))


def find(*, username: str, fingerprint: str) -> SshKey | None:
    """The key under this user name, with its user; None unless the account may sign in."""
    rows = SshKey.objects.as_system().select_related("user")
    return rows.filter(user__username=username, user__is_active=True, fingerprint=fingerprint).first()


def still_good(ids: Iterable[UUID]) -> set[UUID]:
    """Those among the keys that are still registered, by people who may still sign in."""
    rows = SshKey.objects.as_system().filter(pk__in=list(ids), user__is_active=True)
    return set(rows.values_list("pk", flat=True))


def note_use(pk: UUID) -> None:
    """Remember that a key was used, to the minute."""
    now = timezone.now()
    long_ago = Q(last_used_at__isnull=True) | Q(last_used_at__lt=now - USE_NOTED_EVERY)
    SshKey.objects.as_system().filter(long_ago, pk=pk).update(last_used_at=now)
