"""Who mounts a volume. Apps above say so, and a volume that is mounted cannot be deleted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, kw_only=True)
class Use:
    """Something that mounts a volume: ``label`` as a person reads it, ``url`` of its page, ``path`` where."""

    label: str
    url: str = ""
    path: str = ""
    read_only: bool = False


Finder = Callable[[UUID], list[Use]]
_finders: list[Finder] = []


def register(finder: Finder) -> None:
    """Add a function that names what mounts a volume (by its id); called from ``AppConfig.ready``."""
    _finders.append(finder)


def of(volume_id: UUID) -> list[Use]:
    """Everything that mounts the volume, running or not."""
    return [use for finder in _finders for use in finder(volume_id)]
