"""Secret columns: encrypted in the database, masked everywhere else.

The keys come from ``PORTAL_SECRET_FILE``, outside the database. A value read from a row is a ``Secret``:
printing, formatting or serializing it shows dots; only ``reveal()`` gives the text.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings
from django.db import models

MASK = "•••"


class Secret:
    """Text that does not show itself. One that comes from a row is decrypted when it is revealed, not before: a list
    of rows costs no decryption, and a key that does not fit fails where the secret is needed and nowhere else."""

    __slots__ = ("_stored", "_text")

    def __init__(self, text: str | None, *, stored: str = "") -> None:
        self._text = text
        self._stored = stored

    def reveal(self) -> str:
        """The text; every caller is a place where a secret leaves the portal. Raises ``Undecryptable``."""
        if self._text is None:
            self._text = decrypt(self._stored)
        return self._text

    @property
    def stored(self) -> str:
        """What the database holds, or is to hold."""
        if not self._stored and self._text:
            self._stored = encrypt(self._text)
        return self._stored

    def __repr__(self) -> str:
        return MASK

    __str__ = __repr__

    def __bool__(self) -> bool:
        return bool(self._stored or self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other.reveal() == self.reveal()

    def __hash__(self) -> int:
        return hash(self.reveal())


class Undecryptable(Exception):
    """The secret file holds none of the keys that this value was encrypted with."""


@lru_cache(maxsize=4)
def _box(keys: tuple[str, ...]) -> MultiFernet:
    return MultiFernet([Fernet(key) for key in keys])


def encrypt(text: str) -> str:
    """Text to what the database stores; the first key encrypts."""
    return _box(tuple(settings.PORTAL_ENCRYPTION_KEYS)).encrypt(text.encode()).decode()


def decrypt(stored: str) -> str:
    """The reverse. Raises ``Undecryptable``."""
    try:
        return _box(tuple(settings.PORTAL_ENCRYPTION_KEYS)).decrypt(stored.encode()).decode()
    except InvalidToken as error:
        raise Undecryptable("the key in PORTAL_SECRET_FILE does not fit the database") from error


class SecretField(models.TextField[Any, Any]):
    """A column of ``Secret`` values; empty stays empty. It cannot be searched."""

    def from_db_value(self, value: str | None, *args: Any) -> Secret | None:
        if value is None:
            return None
        return Secret(None, stored=value) if value else Secret("")

    def to_python(self, value: Any) -> Secret | None:
        if value is None or isinstance(value, Secret):
            return value
        return Secret(str(value))

    def get_prep_value(self, value: Any) -> str | None:
        if value is None:
            return None
        return (value if isinstance(value, Secret) else Secret(str(value))).stored

    def get_lookup(self, lookup_name: str) -> Any:
        if lookup_name != "isnull":
            raise TypeError("a secret column cannot be searched")
        return super().get_lookup(lookup_name)

    def value_to_string(self, obj: Any) -> str:
        return MASK
