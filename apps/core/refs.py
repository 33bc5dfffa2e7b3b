"""References in requests: a name or an id, always within what the actor may see."""

from __future__ import annotations

import uuid
from typing import Any

from django.db.models import Q, QuerySet
from django.utils.translation import gettext as _

from apps.core.errors import Invalid


def named(text: str, column: str = "") -> Q:
    """Rows with this name or id; ``column`` is the relation to them (``queue`` for ``queue__name``)."""
    prefix = f"{column}__" if column else ""
    by_name = Q(**{f"{prefix}name": text})
    try:
        return by_name | Q(**{f"{prefix}pk": uuid.UUID(text)})
    except ValueError:
        return by_name


def find(rows: QuerySet[Any], text: str, *, field: str) -> Any:
    """The visible row of this name or id.

    Raises `Invalid` at ``field``, alike for what does not exist and for what the actor may not see.
    """
    found = rows.filter(named(text)).first()
    if found is None:
        message = _("There is no %(kind)s “%(name)s”, or you may not use it.") % {
            "kind": rows.model._meta.verbose_name,
            "name": text,
        }
        raise Invalid(message, code=f"{field}_unknown", errors={field: message})
    return found
