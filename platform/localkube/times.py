"""Times of objects: RFC 3339, with a zone."""

from __future__ import annotations

from datetime import datetime


def parse_time(text: str) -> datetime:
    """A `metav1.Time` or `MicroTime`. Raises ValueError."""
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def is_time(text: str) -> bool:
    """Whether a text is RFC 3339, with a zone."""
    try:
        return parse_time(text).tzinfo is not None
    except ValueError:
        return False
