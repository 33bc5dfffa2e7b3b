"""Time zones that people choose from: those of the IANA database, the same wherever the portal runs."""

from __future__ import annotations

from functools import lru_cache
from importlib import resources


@lru_cache(maxsize=1)
def _known() -> frozenset[str]:
    """The names that the package tzdata lists. What a machine's own files add, such as ``localtime``, differs from one
    to the next; ``Factory`` means that nobody has chosen.
    """
    return frozenset((resources.files("tzdata") / "zones").read_text(encoding="ascii").split()) - {"Factory"}


@lru_cache(maxsize=1)
def zones() -> tuple[str, ...]:
    """All IANA zones that people choose from, in order; ``UTC`` first."""
    return ("UTC", *sorted(zone for zone in _known() if "/" in zone and not zone.startswith("Etc/")))


def is_zone(name: str) -> bool:
    """Whether this is a time zone of the IANA database."""
    return name in _known()
