"""Services for images and sizes; platform administrators only. Nothing is deleted: what is retired runs on."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

from django.db import IntegrityError, transaction
from django.utils.translation import gettext as _

from apps.catalog.models import Image, Purpose, Size
from apps.clusters.services import require_admin
from apps.core import audit, live, names
from apps.core.actors import Actor
from apps.core.errors import Conflict, Invalid
from kubekit.errors import SpecError
from kubekit.specs.checks import NVIDIA, check_image, require_extended_resource

IMAGE_FIELDS = ("name", "reference", "purpose", "description", "position", "retired")
SIZE_FIELDS = ("name", "cpu_millis", "memory_bytes", "gpus", "gpu_resource", "position", "retired")
MOST_CPU_MILLIS = 1_000_000
MOST_BYTES = 1 << 46


def save_image(*, actor: Actor, image: Image | None = None, id: UUID | None = None, **fields: Any) -> Image:  # noqa: A002
    """Make an image (``image`` None) or change parts of one. The same ``id`` again answers what it made."""
    found: Image = _save(Image, actor, image, id, fields, IMAGE_FIELDS)
    return found


def save_size(*, actor: Actor, size: Size | None = None, id: UUID | None = None, **fields: Any) -> Size:  # noqa: A002
    """Make a size or change parts of one. A change counts for what starts from now on."""
    found: Size = _save(Size, actor, size, id, fields, SIZE_FIELDS)
    return found


def _save(model: Any, actor: Actor, obj: Any, pk: UUID | None, fields: dict[str, Any], known: tuple[str, ...]) -> Any:
    require_admin(actor)
    unknown = set(fields) - set(known)
    if unknown:
        raise Invalid(_("Some fields are not known."), code="unknown_field", errors=dict.fromkeys(unknown, "unknown"))
    if obj is None and pk is not None and (made := model.objects.as_system().filter(pk=pk).first()) is not None:
        return made
    kind = model._meta.model_name
    try:
        with transaction.atomic():
            row = model(pk=pk or uuid4()) if obj is None else _locked(model, obj)
            before = {name: getattr(row, name) for name in known}
            for name, value in fields.items():
                setattr(row, name, value)
            _check(row)
            if obj is None:
                row.save(force_insert=True)
                audit.record(actor=actor, verb=f"{kind}.create", obj=row, detail={n: getattr(row, n) for n in known})
            else:
                changed = {n: [before[n], getattr(row, n)] for n in known if before[n] != getattr(row, n)}
                if not changed:
                    return row
                row.save()
                audit.record(actor=actor, verb=f"{kind}.update", obj=row, detail=changed)
            live.announce(row)
    except IntegrityError as error:
        if obj is None and (made := model.objects.as_system().filter(pk=pk).first()) is not None:
            return made  # the same request twice in one instant
        raise Conflict(
            _("There is one named “%(name)s” already.") % {"name": fields.get("name", "")},
            code="name_taken",
            next=_("Choose another name."),
            errors={"name": _("taken")},
        ) from error
    return row


def _locked(model: Any, obj: Any) -> Any:
    return model.objects.as_system().select_for_update().get(pk=obj.pk)


def _check(row: Image | Size) -> None:
    row.name = names.check(row.name or "")
    errors = _image_faults(row) if isinstance(row, Image) else _size_faults(row)
    if not 0 <= row.position <= 1_000_000:
        errors["position"] = _("This must be a number from 0 to 1000000.")
    if errors:
        raise Invalid(_("The entry cannot be like this."), errors=errors)


def _image_faults(image: Image) -> dict[str, str]:
    errors: dict[str, str] = {}
    try:
        check_image(image.reference or "", "IfNotPresent")
    except SpecError as error:
        errors["reference"] = error.message
    if image.purpose not in Purpose.values:
        errors["purpose"] = _("Choose one of: %(names)s.") % {"names": ", ".join(Purpose.values)}
    if len(image.description) > 300:
        errors["description"] = _("At most 300 characters.")
    return errors


def _size_faults(size: Size) -> dict[str, str]:
    errors: dict[str, str] = {}
    if not 1 <= (size.cpu_millis or 0) <= MOST_CPU_MILLIS:
        errors["cpu_millis"] = _("A size has from 0.001 to 1000 CPU.")
    if not 1 << 20 <= (size.memory_bytes or 0) <= MOST_BYTES:
        errors["memory_bytes"] = _("A size has from 1 MiB to 64 TiB of memory.")
    if not 0 <= size.gpus <= 1000:
        errors["gpus"] = _("A size has from 0 to 1000 GPUs.")
    try:
        require_extended_resource(size.gpu_resource or NVIDIA, "gpu_resource")
    except SpecError as error:
        errors["gpu_resource"] = error.message
    return errors
