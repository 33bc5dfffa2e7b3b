"""From what people write (names or ids) to rows that they may use, with the error beside the field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.utils.translation import gettext as _

from apps.catalog.models import Image, Purpose, Size
from apps.core import refs
from apps.core.actors import Actor
from apps.core.errors import Invalid
from apps.storage.models import Volume
from apps.storage.states import VolumeState
from apps.tenants import selectors
from apps.tenants.models import Queue
from kubekit.errors import SpecError
from kubekit.specs import HOME_PATH, Mount

Reference = str | UUID


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A volume at a path, resolved."""

    volume: Volume
    path: str
    read_only: bool


def queue(actor: Actor, reference: Reference) -> Queue:
    """A queue that the actor may know of and that is not being deleted. Raises ``Invalid``."""
    found = selectors.usable_queues(actor).filter(refs.named(str(reference))).first()
    if found is None:
        raise _unknown("queue", "queue_unknown", _("There is no queue “%(name)s”."), reference)
    return found


def image(actor: Actor, reference: Reference) -> Image:
    """A dev image of the catalogue. Raises ``Invalid``."""
    rows = images(actor)
    found = rows.filter(refs.named(str(reference))).first()
    if found is None:
        raise _unknown(
            "image",
            "image_unknown",
            _("There is no image “%(name)s” for dev instances."),
            reference,
            names=rows.values_list("name", flat=True),
        )
    return found


def size(actor: Actor, reference: Reference) -> Size:
    """A size of the catalogue. Raises ``Invalid``."""
    rows = sizes(actor)
    found = rows.filter(refs.named(str(reference))).first()
    if found is None:
        raise _unknown(
            "size",
            "size_unknown",
            _("There is no size “%(name)s”."),
            reference,
            names=rows.values_list("name", flat=True),
        )
    return found


def images(actor: Actor) -> QuerySet[Image]:
    """What can be chosen, in the catalogue's order."""
    return Image.objects.for_actor(actor).filter(purpose=Purpose.DEV, retired=False).order_by("position", "name")


def sizes(actor: Actor) -> QuerySet[Size]:
    """What can be chosen, in the catalogue's order."""
    return Size.objects.for_actor(actor).filter(retired=False).order_by("position", "name")


def volumes(actor: Actor, home_queue: Queue, wishes: Sequence[Mapping[str, Any]]) -> list[Wanted]:
    """Volumes of the same queue at proper, distinct paths. Raises ``Invalid`` with errors like ``volumes.0.path``."""
    rows = Volume.objects.for_actor(actor).filter(queue=home_queue)
    rows = rows.exclude(state__in=[VolumeState.DELETING, VolumeState.DELETED])
    found: list[Wanted] = []
    errors: dict[str, Any] = {}
    taken = {HOME_PATH}
    for position, wish in enumerate(wishes):
        where = f"volumes.{position}"
        volume = rows.filter(refs.named(str(wish["volume"]))).first()
        path = str(wish["path"])
        if volume is None:
            errors[f"{where}.volume"] = _("There is no volume “%(name)s” in the queue “%(queue)s”.") % {
                "name": wish["volume"],
                "queue": home_queue.name,
            }
            continue
        try:
            Mount(claim=volume.claim, path=path)
        except SpecError as error:
            errors[f"{where}.path"] = error.message
            continue
        if path in taken:
            errors[f"{where}.path"] = _("Something else is mounted at %(path)s already.") % {"path": path}
            continue
        taken.add(path)
        found.append(Wanted(volume=volume, path=path, read_only=bool(wish.get("read_only", False))))
    if errors:
        raise Invalid(
            _("The volumes cannot be mounted like this."),
            code="volumes_invalid",
            next=_("Correct what is said beside each volume."),
            errors=errors,
        )
    return found


def _unknown(field: str, code: str, sentence: str, reference: Reference, *, names: Any = ()) -> Invalid:
    detail = sentence % {"name": str(reference)[:100]}
    known = ", ".join(names)
    return Invalid(
        detail,
        code=code,
        next=_("Choose one of: %(names)s.") % {"names": known} if known else _("Choose another one."),
        errors={field: detail},
    )
