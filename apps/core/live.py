"""Live updates: after commit, "this row changed" goes to whoever looks at its queue; nothing else does.

The message is ``{kind, pk}`` alone. The browser fetches the row again through its ordinary view, so
permission is checked where it always is. A lost message costs seconds: pages poll as a fall-back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
from django.db import transaction
from redis.exceptions import RedisError

from apps.core.actors import Actor
from apps.core.models import Record

log = logging.getLogger(__name__)

ADMINS = "live.admins"
GroupFinder = Callable[[Actor], set[str]]
_finders: list[GroupFinder] = []


def group(scope: str) -> str:
    """The channel-layer group of a scope (a queue's id in hex, say)."""
    return f"live.{scope}"


def register_groups(finder: GroupFinder) -> None:
    """Add a function that names the groups an actor may hear."""
    _finders.append(finder)


def groups_for(actor: Actor) -> set[str]:
    """All groups that this actor may hear now; asked again every half minute per connection (F45)."""
    found = {ADMINS} if actor.is_admin else set()
    for finder in _finders:
        found |= finder(actor)
    return found


def announce(obj: Record) -> None:
    """Tell watchers after commit that ``obj`` changed."""
    kind, pk, scope = obj._meta.model_name or "", str(obj.pk), obj.live_scope()
    transaction.on_commit(lambda: _send(kind, pk, scope))


def _send(kind: str, pk: str, scope: str) -> None:
    layer = get_channel_layer()
    if layer is None:
        return
    message = {"type": "changed", "kind": kind, "pk": pk}
    try:
        async_to_sync(layer.group_send)(group(scope) if scope else ADMINS, message)
    except (OSError, RuntimeError, RedisError) as error:
        # Redis carries hints only: its absence must not fail the change that was just committed.
        log.warning("live update for %s %s was not sent: %s", kind, pk, error)
