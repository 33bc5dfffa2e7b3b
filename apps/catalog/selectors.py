"""Images and sizes as lists show them, and what of them can be chosen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from django.db.models import Q, QuerySet

from apps.catalog.models import Image, ImageTeam, Purpose
from apps.core.actors import Actor
from apps.core.listing import ListSpec

LONGEST_CHAIN = 50

_COMMON = {
    "name": lambda text: Q(name__icontains=text),
    "retired": lambda text: Q(retired=text == "yes"),
}
_SORTS = {"position": "position", "name": "name", "created": "created_at"}
IMAGE_LIST = ListSpec(
    filters={
        **_COMMON,
        "purpose": lambda text: Q(purpose=text),
        "hidden": lambda text: Q(hidden=text == "yes"),
    },
    sorts=_SORTS,
    default_sort="position",
)
SIZE_LIST = ListSpec(
    filters=_COMMON,
    sorts={**_SORTS, "cpu": "cpu_millis", "memory": "memory_bytes"},
    default_sort="position",
)


def every() -> QuerySet[Image]:
    """The whole catalogue, for administrators and the portal itself; without what teams brought along."""
    return Image.objects.as_system().filter(team__isnull=True)


def catalogue(actor: Actor) -> QuerySet[Image]:
    """The entries of the catalogue that this person may know of, retired ones too."""
    return Image.objects.for_actor(actor).filter(team__isnull=True).select_related("replaced_by")


def offered(actor: Actor, purpose: Purpose | None = None) -> QuerySet[Image]:
    """What this person can choose for something new, in the catalogue's order."""
    rows = catalogue(actor).filter(retired=False).order_by("position", "name")
    return rows if purpose is None else rows.filter(purpose=purpose)


def chain(image: Image | None) -> Iterator[Image]:
    """The image, what to use instead of it, what to use instead of that; each once."""
    met: set[object] = set()
    while image is not None and image.pk not in met and len(met) < LONGEST_CHAIN:
        met.add(image.pk)
        yield image
        image = image.replaced_by if image.replaced_by_id else None


def instead_of(actor: Actor, image: Image) -> Image | None:
    """What this person can choose in place of a retired image; None when nothing is said or offered."""
    good = next((one for one in chain(image) if not one.retired), None)
    return offered(actor).filter(pk=good.pk).first() if good is not None else None


def with_teams(rows: Sequence[Image]) -> None:
    """Put ``team_names`` on each row, in one statement."""
    found: dict[object, list[str]] = {}
    pairs = ImageTeam.objects.as_system().filter(image__in=rows).order_by("team__name")
    for pk, name in pairs.values_list("image_id", "team__name"):
        found.setdefault(pk, []).append(name)
    for row in rows:
        row.team_names = found.get(row.pk, [])  # type: ignore[attr-defined]
