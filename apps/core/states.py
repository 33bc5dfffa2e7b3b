"""State machines as data: which state may follow which, and which end the story."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class StateTable:
    """Allowed steps of one kind of object.

    ``steps`` maps each state to the states that may follow it; ``labels`` gives the word shown.
    """

    kind: str
    steps: Mapping[str, frozenset[str]]
    labels: Mapping[str, Any]

    @property
    def terminal(self) -> frozenset[str]:
        """States with no way out."""
        return frozenset(state for state, after in self.steps.items() if not after)

    def allows(self, before: str, after: str) -> bool:
        """True when ``after`` may directly follow ``before``; staying put is always allowed."""
        return before == after or after in self.steps[before]


class IllegalStep(Exception):
    """A writer asked for a step that the table does not have: a fault in the program."""
