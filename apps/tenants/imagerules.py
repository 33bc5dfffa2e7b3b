"""Whether a team's members may bring images of their own, and from where."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import transaction
from django.utils.translation import gettext as _

from apps.clusters.services import require_admin
from apps.core import audit, live
from apps.core.actors import Actor
from apps.core.errors import Invalid
from apps.tenants.models import Team
from kubekit.errors import SpecError
from kubekit.reference import parse_prefix

MOST_PREFIXES = 50


def allow(
    *, actor: Actor, team: Team, own_images: bool | None = None, image_prefixes: Sequence[str] | None = None
) -> None:
    """Set the rule; platform administrators only, since an image can hold anything. It counts for what starts new.

    Raises ``Invalid`` with every prefix that is none.
    """
    require_admin(actor)
    with transaction.atomic():
        row: Team = Team.objects.as_system().select_for_update().get(pk=team.pk)
        wanted: dict[str, Any] = {
            "own_images": row.own_images if own_images is None else own_images,
            "image_prefixes": row.image_prefixes if image_prefixes is None else _prefixes(image_prefixes),
        }
        changed = {name: [getattr(row, name), value] for name, value in wanted.items() if getattr(row, name) != value}
        if changed:
            Team.objects.as_system().filter(pk=row.pk).update(**wanted)
            audit.record(actor=actor, verb="team.own-images", obj=row, detail=changed)
            live.announce(row)
    team.own_images, team.image_prefixes = wanted["own_images"], wanted["image_prefixes"]


def _prefixes(texts: Sequence[str]) -> list[str]:
    found: list[str] = []
    wrong: list[str] = []
    for text in texts:
        if not text.strip():
            continue
        try:
            found.append(parse_prefix(text))
        except SpecError:
            wrong.append(text.strip()[:80])
    if len(found) > MOST_PREFIXES:
        wrong = [_("more than %(most)d lines") % {"most": MOST_PREFIXES}]
    if wrong:
        sentence = _("This is no registry: %(lines)s.") % {"lines": ", ".join(f"“{line}”" for line in wrong[:5])}
        raise Invalid(
            sentence,
            code="prefix_invalid",
            next=_("Write a registry's host, or the beginning of a path in it, such as registry.example/team."),
            errors={"image_prefixes": sentence},
        )
    return sorted(set(found))
