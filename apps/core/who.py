"""How the portal's own parts are called where people read who did something: ``reconciler`` is a contract for scripts.

``actors.system(part)`` gives the name that is stored; REST answers it as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

PARTS: Mapping[str, Any] = {
    "reconciler": gettext_lazy("Portal (background work)"),
    "scheduler": gettext_lazy("Portal (schedules)"),
    "lifetime": gettext_lazy("Portal (idle instances and leases)"),
    "watcher": gettext_lazy("Portal (watching clusters)"),
    "cluster watcher": gettext_lazy("Portal (watching clusters)"),
    "cluster check": gettext_lazy("Portal (checking clusters)"),
    "check_cluster": gettext_lazy("Command on the portal's machine"),
    "bootstrap": gettext_lazy("Portal (first start)"),
}


def words(name: str) -> str:
    """The name of a part of the portal in the reader's language."""
    return str(PARTS[name]) if name in PARTS else _("Portal (%(part)s)") % {"part": name}


def stored(text: str) -> list[str]:
    """The stored names of the parts whose shown name has ``text`` in it, for a search by what is shown."""
    wanted = text.casefold()
    return [name for name, shown in PARTS.items() if wanted in str(shown).casefold()]
