"""From what people write (names or ids) to rows that they may use, with the error beside the field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.utils.translation import gettext as _

from apps.catalog import own
from apps.catalog import selectors as catalog
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
    """A dev image of the catalogue. Raises ``Invalid``; of a retired one it says what to use instead."""
    rows = images(actor)
    found = rows.filter(refs.named(str(reference))).first()
    if found is None:
        retired = _find_retired(actor, reference)
        if retired is not None:
            raise _retired(actor, retired)
        raise _unknown(
            "image",
            "image_unknown",
            _("There is no image “%(name)s” for dev instances."),
            reference,
            names=rows.values_list("name", flat=True),
        )
    return found


def image_or_own(actor: Actor, in_queue: Queue, reference: Reference, own_image: str) -> Image:
    """One of the catalogue, or the draft of what the person named themselves. Raises ``Invalid``.

    An image that was not made for the portal needs a real cluster: the embedded one runs programs of this machine.
    """
    if own_image.strip():
        if reference:
            text = _("An image of the catalogue and one of your own are named; an instance has one.")
            raise Invalid(text, code="image_twice", next=_("Leave one of them out."), errors={own.FIELD: text})
        return own.draft(queue=in_queue, text=own_image)
    if not reference:
        text = _("An image is needed.")
        raise Invalid(text, code="required", next=_("Name one of the catalogue, or your own."), errors={"image": text})
    found = image(actor, reference)
    if in_queue.cluster.embedded and not found.prepared:
        text = _(
            "The image “%(image)s” was not made for the portal, and the cluster “%(cluster)s” runs programs of this "
            "machine in place of images."
        ) % {"image": found.name, "cluster": in_queue.cluster.name}
        raise Invalid(
            text,
            code="image_needs_cluster",
            next=_("Choose another image, or a queue of another cluster."),
            errors={"image": text},
        )
    return found


def instead_of_retired(actor: Actor, reference: str) -> str:
    """What to preselect for whom comes with a retired image's name or id: the one to use instead."""
    found = _find_retired(actor, reference)
    instead = catalog.instead_of(actor, found) if found is not None else None
    return str(instead.pk) if instead is not None else reference


def retired_notice(actor: Actor, reference: str) -> str:
    """The sentence for whom comes with a retired image; empty for others."""
    found = _find_retired(actor, reference)
    return str(_retired(actor, found).detail) if found is not None else ""


def _find_retired(actor: Actor, reference: Reference) -> Image | None:
    if not reference:
        return None
    found: Image | None = dev_images(actor).filter(refs.named(str(reference)), retired=True).first()
    return found


def _retired(actor: Actor, retired: Image) -> Invalid:
    instead = catalog.instead_of(actor, retired)
    name = {"name": retired.name, "other": instead.name if instead else ""}
    sentence = (
        _("The image “%(name)s” is retired: use “%(other)s”.") % name
        if instead
        else _("The image “%(name)s” is retired; nothing new starts from it.") % name
    )
    return Invalid(
        sentence,
        code="image_retired",
        next=_("Choose “%(other)s”. What uses “%(name)s” runs on.") % name if instead else _("Choose another one."),
        errors={"image": sentence},
        data={"use": name["other"] or None},
    )


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
    return catalog.offered(actor, Purpose.DEV)


def dev_images(actor: Actor) -> QuerySet[Image]:
    """Those that are retired, too."""
    return catalog.catalogue(actor).filter(purpose=Purpose.DEV)


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
