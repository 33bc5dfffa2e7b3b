"""Services for images and sizes; platform administrators only. Nothing is deleted: what is retired runs on."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID, uuid4

from django.db import IntegrityError, transaction
from django.utils.translation import gettext as _

from apps.catalog import selectors
from apps.catalog.models import Architecture, Image, ImageTeam, Purpose, Size
from apps.clusters.services import require_admin
from apps.core import audit, live, names, refs
from apps.core.actors import Actor
from apps.core.errors import Conflict, Invalid
from apps.tenants.models import Team
from kubekit.errors import SpecError
from kubekit.specs.checks import NVIDIA, check_image, require_extended_resource

IMAGE_FIELDS = (
    *("name", "reference", "purpose", "description", "version", "architecture", "cuda", "prepared"),
    *("position", "retired", "replaced_by", "hidden"),
)
SIZE_FIELDS = ("name", "cpu_millis", "memory_bytes", "gpus", "gpu_resource", "position", "retired")
MOST_CPU_MILLIS = 1_000_000
MOST_BYTES = 1 << 46


CUDA = re.compile(r"[0-9]{1,2}(\.[0-9]{1,2}){0,2}", re.ASCII)
MOST_TEAMS = 1000


def save_image(
    *,
    actor: Actor,
    image: Image | None = None,
    id: UUID | None = None,  # noqa: A002 - the field's name in the API
    teams: Sequence[str] | None = None,
    **fields: Any,
) -> Image:
    """Make an image (``image`` None) or change parts of one. The same ``id`` again answers what it made.

    ``replaced_by`` is a name or id, empty for none; so are ``teams``, who see it when it is hidden. Raises ``Invalid``
    with the error beside the field, ``Conflict`` when the name is taken.
    """
    require_admin(actor)
    if "replaced_by" in fields:
        fields["replaced_by"] = _replacement(str(fields["replaced_by"] or ""))
    elif fields.get("retired") is False:
        fields["replaced_by"] = None
    shown_to = None if teams is None else _teams(teams)
    found: Image = _save(
        Image, actor, image, id, fields, IMAGE_FIELDS, lambda row: {} if shown_to is None else _show_to(row, shown_to)
    )
    return found


def _replacement(text: str) -> Image | None:
    found: Image | None = refs.find(selectors.every(), text, field="replaced_by") if text else None
    return found


def _teams(texts: Sequence[str]) -> list[Team]:
    found = [refs.find(Team.objects.as_system(), text, field="teams") for text in texts[:MOST_TEAMS] if text.strip()]
    return list({team.pk: team for team in found}.values())


def _show_to(image: Image, teams: list[Team]) -> dict[str, Any]:
    """Write the teams of a locked row; answers what changed."""
    rows = ImageTeam.objects.as_system().filter(image=image)
    before = dict(rows.values_list("team_id", "team__name"))
    after = {team.pk: team.name for team in teams}
    if before == after:
        return {}
    rows.exclude(team_id__in=after).delete()
    ImageTeam.objects.bulk_create(ImageTeam(image=image, team_id=pk) for pk in after if pk not in before)
    return {"teams": [sorted(before.values()), sorted(after.values())]}


def save_size(*, actor: Actor, size: Size | None = None, id: UUID | None = None, **fields: Any) -> Size:  # noqa: A002
    """Make a size or change parts of one. A change counts for what starts from now on."""
    found: Size = _save(Size, actor, size, id, fields, SIZE_FIELDS)
    return found


def _nothing_more(_row: Any) -> dict[str, Any]:
    return {}


def _save(
    model: Any,
    actor: Actor,
    obj: Any,
    pk: UUID | None,
    fields: dict[str, Any],
    known: tuple[str, ...],
    more: Callable[[Any], dict[str, Any]] = _nothing_more,
) -> Any:
    """``more`` writes what is no column of the row and answers what it changed."""
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
            before = {name: _told(row, name) for name in known}
            for name, value in fields.items():
                setattr(row, name, value)
            _check(row)
            if obj is None:
                row.save(force_insert=True)
                detail = {n: _told(row, n) for n in known} | {n: after for n, (_, after) in more(row).items()}
                audit.record(actor=actor, verb=f"{kind}.create", obj=row, detail=detail)
            else:
                changed = {n: [before[n], _told(row, n)] for n in known if before[n] != _told(row, n)} | more(row)
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


def _told(row: Any, name: str) -> Any:
    """A column's value as the audit log keeps it."""
    value = getattr(row, name)
    return value.name if isinstance(value, Image) else value


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
    if len(image.version) > 40:
        errors["version"] = _("At most 40 characters.")
    if image.architecture not in Architecture.values:
        known = ", ".join(filter(None, Architecture.values))
        errors["architecture"] = _("Choose one of: %(names)s.") % {"names": known}
    if image.cuda and CUDA.fullmatch(image.cuda) is None:
        errors["cuda"] = _("This is no version of CUDA, such as 12.4; leave it empty for an image without CUDA.")
    if image.replaced_by is not None and (fault := _replacement_fault(image, image.replaced_by)):
        errors["replaced_by"] = fault
    return errors


def _replacement_fault(image: Image, instead: Image) -> str:
    if not image.retired:
        return _("Only a retired image has another one to use instead.")
    if instead.purpose != image.purpose:
        return _("“%(name)s” is for another purpose.") % {"name": instead.name}
    if any(one.pk == image.pk for one in selectors.chain(instead)):
        return _("“%(name)s” leads back to this image.") % {"name": instead.name}
    return ""


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
