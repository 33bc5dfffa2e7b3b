"""Why something is not as wanted: a code with parameters in the row, a sentence on the screen.

Rows store ``Reason`` values (code, params, evidence); the sentences live in tables that every app fills
with ``register``, so that each language has its own and a changed wording needs no migration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Text = Any  # str or a lazy translation


@dataclass(frozen=True, kw_only=True)
class Reason:
    """A cause found: ``params`` fill the sentence, ``evidence`` are the raw lines that show it."""

    code: str
    params: Mapping[str, Any] = field(default_factory=dict)
    evidence: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Wording:
    """How a reason reads: a sentence, what to do, and optionally the action that does it.

    ``action`` names a verb of the object's page (``start``, ``resize`` ...), which becomes the banner's
    button; ``tone`` is ``info``, ``waiting`` or ``danger``.
    """

    sentence: Text
    next: Text = ""
    action: str = ""
    tone: str = "danger"


class _Blank(dict[str, Any]):
    def __missing__(self, key: str) -> str:
        return "?"


_WORDINGS: dict[str, Wording] = {}


def register(table: Mapping[str, Wording]) -> None:
    """Add wordings; a code has one owner, so a second registration of it is an error."""
    for code, wording in table.items():
        if _WORDINGS.get(code, wording) is not wording:
            raise ValueError(f"the reason {code!r} has two wordings")
        _WORDINGS[code] = wording


def known() -> frozenset[str]:
    """All codes with a wording (tests compare it with what diagnose can find)."""
    return frozenset(_WORDINGS)


@dataclass(frozen=True, kw_only=True)
class Explained:
    """A reason in the reader's language, ready for a page or the API."""

    code: str
    sentence: str
    evidence: tuple[str, ...]
    next: str
    action: str
    tone: str

    def as_dict(self) -> dict[str, Any]:
        """The ``reason`` object of the API."""
        return {"code": self.code, "sentence": self.sentence, "evidence": list(self.evidence), "next": self.next}


def explain(code: str, params: Mapping[str, Any], evidence: Sequence[str]) -> Explained | None:
    """The stored reason in the active language; None when there is none."""
    if not code:
        return None
    wording = _WORDINGS.get(code)
    if wording is None:
        return Explained(code=code, sentence=code, evidence=tuple(evidence), next="", action="", tone="danger")
    filled = _Blank(params)
    return Explained(
        code=code,
        sentence=str(wording.sentence).format_map(filled),
        evidence=tuple(evidence),
        next=str(wording.next).format_map(filled),
        action=wording.action,
        tone=wording.tone,
    )
