"""How audit entries read: ``queue.create`` is a contract for scripts, people read "created"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from apps.core import links

ACTIONS: Mapping[str, Any] = {
    "create": _("created"),
    "register": _("registered"),
    "update": _("changed"),
    "change": _("changed"),
    "quota": _("changed the quota"),
    "lifetime": _("changed how long instances run"),
    "own-images": _("changed whose images its members may use"),
    "recalculate": _("had the quota counted anew"),
    "expand": _("enlarged"),
    "keep-size": _("could not be enlarged and kept its size"),
    "stray-pod": _("removed a pod that should not have been there"),
    "credentials": _("replaced the credentials"),
    "rename": _("renamed"),
    "transfer": _("gave to somebody else"),
    "share": _("let somebody look"),
    "unshare": _("ended somebody's look"),
    "retire": _("retired"),
    "restore": _("offered again"),
    "start": _("asked to start"),
    "stop": _("asked to stop"),
    "restart": _("asked to restart"),
    "check": _("asked for a check"),
    "add": _("added"),
    "enter": _("entered"),
    "ssh": _("entered by SSH"),
    "ssh-end": _("left an SSH connection"),
    "port-open": _("opened a port"),
    "port-close": _("closed a port"),
    "port-share": _("shared a port"),
    "port-unshare": _("ended the share of a port"),
    "port-enter": _("entered a port"),
    "warn": _("warned of a stop"),
    "keep": _("said until when it is kept"),
    "end": _("set when it ends"),
    "key": _("looked at the key"),
    "run": _("asked to run"),
    "rerun": _("asked to run again"),
    "cancel": _("asked to cancel"),
    "give-up": _("gave up waiting for the node"),
    "pause": _("paused"),
    "resume": _("resumed"),
    "rotate-key": _("asked for a new key"),
    "rotate-secret": _("made a new secret"),
    "member.add": _("added a member"),
    "member.remove": _("removed a member"),
    "password": _("changed the password"),
    "deactivate": _("deactivated"),
    "activate": _("activated"),
    "revoke": _("revoked"),
    "remove": _("removed"),
    "abandon": _("gave up as lost"),
    "delete": _("asked to delete"),
}
"""The part of a verb after its kind -> words. A verb that is not here is shown as it is."""


def words(verb: str) -> str:
    """What was done, in the reader's language."""
    _kind, _dot, action = verb.partition(".")
    return str(ACTIONS.get(action, verb))


def matching(text: str) -> Q:
    """Entries whose verb, or whose words for it in the reader's language, have ``text`` in them."""
    wanted, found = text.casefold(), Q(verb__icontains=text)
    for action, shown in ACTIONS.items():
        if wanted in str(shown).casefold():
            found |= Q(verb__endswith=f".{action}")
    return found


def step(kind: str, detail: Any) -> tuple[str, str] | None:
    """For a change of state its two labels; None for any other entry."""
    if not isinstance(detail, Mapping) or not detail.get("from") or not detail.get("to"):
        return None
    labels = links.state_labels(kind)
    before, after = str(detail["from"]), str(detail["to"])
    return str(labels.get(before, before)), str(labels.get(after, after))
