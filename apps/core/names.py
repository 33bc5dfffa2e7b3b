"""What people may call their things: one rule for every name, told in full when it is broken."""

from __future__ import annotations

import unicodedata
from typing import Any

from django.utils.translation import gettext_lazy as _

from apps.core.errors import Invalid

MAX_LENGTH = 63
_PUNCTUATION = frozenset(" -_.")
RULE = _(
    "Use 1 to 63 letters and digits of any script, spaces, “-”, “_” and “.”; begin with a letter or digit and "
    "do not end with a space."
)


def is_name(text: str) -> bool:
    """True for what `RULE` says. No slash, quote or control character, so a name is safe in a path or a command."""
    if not 1 <= len(text) <= MAX_LENGTH or text[-1] == " " or not _is_letter_or_digit(text[0]):
        return False
    return all(char in _PUNCTUATION or _is_letter_or_digit(char) or _is_mark(char) for char in text)


def check(text: str, *, field: str = "name") -> str:
    """The name in Unicode's composed form (NFC), so that two spellings of one word meet.

    Raises `Invalid` with the code ``name_invalid`` and the rule as next step.
    """
    composed = unicodedata.normalize("NFC", text)
    if is_name(composed):
        return composed
    detail: Any
    wrong: Any = None
    if not composed:
        detail = _("A name is needed.")
    elif len(composed) > MAX_LENGTH:
        detail = _("The name has %(count)d characters; at most %(max)d are possible.") % {
            "count": len(composed),
            "max": MAX_LENGTH,
        }
    else:
        detail, wrong = _("The name contains something that names cannot have."), RULE
    raise Invalid(detail, code="name_invalid", next=RULE, errors={field: wrong or detail})


def _is_letter_or_digit(char: str) -> bool:
    return unicodedata.category(char)[0] in "LN"


def _is_mark(char: str) -> bool:
    """Vowel signs and accents that are characters of their own in many scripts."""
    return unicodedata.category(char)[0] == "M"
