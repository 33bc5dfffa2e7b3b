"""Times of objects, and ages as kubectl prints them."""

from __future__ import annotations

from datetime import UTC, datetime


def duration(seconds: float) -> str:
    """An age as `duration.HumanDuration` prints it: 45s, 3m20s, 15m, 5h30m, 2d4h."""
    total = int(seconds)
    if total < 0:
        return "0s" if total > -2 else "<invalid>"
    if total < 120:
        return f"{total}s"
    minutes, hours, days = total // 60, total // 3600, total // 86400
    if minutes < 10:
        return f"{minutes}m{total % 60}s" if total % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    if days < 730:
        return f"{days}d"
    years = days // 365
    return f"{years}y{days % 365}d" if years < 8 and days % 365 else f"{years}y"


def parse_time(text: str) -> datetime:
    """A `metav1.Time` or `MicroTime`."""
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def since(text: str | None) -> str:
    """How long ago a time was."""
    if not text:
        return "<unknown>"
    return duration((datetime.now(UTC) - parse_time(text)).total_seconds())


def is_time(text: str) -> bool:
    """Whether a text is RFC 3339, with a zone."""
    try:
        return parse_time(text).tzinfo is not None
    except ValueError:
        return False
