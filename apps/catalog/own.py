"""Images that people name themselves, where their team may: checked, then kept as rows of the team."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from apps.catalog.models import Image, Purpose
from apps.core.errors import Invalid
from apps.tenants.models import Queue, Team
from kubekit.errors import SpecError
from kubekit.reference import Reference, allowed, parse

FIELD = "own_image"
_FAULTS: Mapping[str, Any] = {
    "empty": gettext_lazy("A reference is needed, such as registry.example/team/image:1."),
    "too_long": gettext_lazy("This is longer than a reference can be."),
    "scheme": gettext_lazy("A reference begins with the registry, without https:// in front."),
    "space": gettext_lazy("A reference has no spaces and only plain letters."),
    "upper_case": gettext_lazy("Registry and path of a reference are in lower case."),
    "bad_registry": gettext_lazy("The part before the first “/” is not a registry's host."),
    "bad_path": gettext_lazy(
        "The path is not that of an image: lower-case letters and digits, with “.”, “_” or “-” between."
    ),
    "bad_tag": gettext_lazy("Behind “:” stands a tag of 1 to 128 letters, digits, “_”, “.” and “-”."),
    "bad_digest": gettext_lazy("Behind “@” stands sha256: and 64 hexadecimal digits."),
}


def fault(error: SpecError) -> str:
    """What is wrong with a reference or a prefix, in words."""
    return str(_FAULTS.get(error.code, _FAULTS["bad_path"]))


def draft(*, queue: Queue, text: str) -> Image:
    """The row for what somebody typed, not stored yet. Raises ``Invalid`` with the error beside the field."""
    if queue.cluster.embedded:
        raise _refused(
            "own_images_embedded",
            _(
                "The cluster “%(cluster)s” runs programs of this machine in place of images, so it cannot run an image "
                "of your own."
            )
            % {"cluster": queue.cluster.name},
            _("Choose an image of the catalogue, or a queue of another cluster."),
        )
    if not queue.team.own_images:
        raise _refused(
            "own_images_off",
            _("The team “%(team)s” uses images of the catalogue alone.") % {"team": queue.team.name},
            _("Choose one of them, or ask a platform administrator to allow others to the team."),
        )
    try:
        reference = parse(text.strip())
    except SpecError as error:
        raise _refused(f"reference_{error.code}", fault(error), _("Write it as in “docker pull”.")) from error
    _require_allowed(reference, queue.team)
    return Image(
        name=reference.name[:63], reference=reference.text, purpose=Purpose.DEV, prepared=False, team=queue.team
    )


def keep(image: Image) -> Image:
    """The stored row of a draft: the team's own one of this reference. Inside the transaction that uses it."""
    if image.team is None or not image._state.adding:
        return image
    found: Image
    found, _made = Image.objects.as_system().get_or_create(
        team=image.team,
        reference=image.reference,
        defaults={"name": image.name, "purpose": image.purpose, "prepared": image.prepared},
    )
    return found


def _require_allowed(reference: Reference, team: Team) -> None:
    if team.image_prefixes and not allowed(reference, team.image_prefixes):
        known = ", ".join(team.image_prefixes)
        raise _refused(
            "registry_not_allowed",
            _("The team “%(team)s” may not use images from %(where)s.")
            % {"team": team.name, "where": reference.repository},
            _("Its own images come from: %(known)s.") % {"known": known},
        )


def _refused(code: str, sentence: str, following: str) -> Invalid:
    return Invalid(sentence, code=code, next=following, errors={FIELD: f"{sentence} {following}"})
