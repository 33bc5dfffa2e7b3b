"""Which portal this is, as the label ``mlportal.io/install`` says it."""

from __future__ import annotations

import secrets
from functools import lru_cache

from apps.clusters.models import Installation


@lru_cache(maxsize=1)
def install_id() -> str:
    """A short random word made at the first call and the same ever after; read once per process."""
    row, _made = Installation.objects.as_system().get_or_create(pk=1, defaults={"install": f"p{secrets.token_hex(5)}"})
    return str(row.install)
