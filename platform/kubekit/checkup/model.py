"""One line of a check, as it is stored and shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Result = Literal["good", "missing", "note", "unknown"]
"""``note`` is nothing to mend, ``unknown`` could not be found out."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """``topic`` says what was looked at, ``code`` what was found; ``params`` fill both sentences.

    ``command`` is what an administrator of the cluster can type to mend it. ``evidence`` is the cluster's own words.
    """

    topic: str
    code: str
    result: Result
    params: Mapping[str, Any] = field(default_factory=dict)
    command: str = ""
    evidence: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "topic": self.topic,
            "code": self.code,
            "result": self.result,
            "params": dict(self.params),
            "command": self.command,
            "evidence": list(self.evidence),
        }
