"""The YAML tab of every object that stands for something in a cluster: what the portal writes there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import yaml
from django.utils.translation import gettext_lazy as _

from apps.core.pages import Tab
from kubekit.errors import SpecError

Objects = Callable[[Any], Sequence[Mapping[str, Any]]]
NOTE = _("What the portal writes to the cluster.")


def dump(objects: Sequence[Mapping[str, Any]]) -> str:
    """Several objects as one YAML text that ``kubectl apply`` takes."""
    return str(yaml.safe_dump_all(objects, sort_keys=False, allow_unicode=True, default_flow_style=False))


def text_of(objects: Objects, row: Any) -> str:
    """The objects of a row as text; a row that cannot be written says why in a comment."""
    try:
        return dump(objects(row))
    except SpecError as error:
        return f"# {error}\n"


def yaml_tab(objects: Objects, *, note: Any = NOTE) -> Tab:
    """A tab that shows what ``objects(row)`` renders; no secret may be in it."""
    return Tab(
        slug="yaml",
        label=_("YAML"),
        template="core/tab_yaml.html",
        context=lambda view, row: {"yaml": text_of(objects, row), "note": note},
    )
