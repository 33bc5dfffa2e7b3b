"""The one place where a launch begins: a new number, a new key, new stages."""

from __future__ import annotations

import secrets
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.utils import timezone

from apps.core import reconciling
from apps.core.actors import Actor
from apps.core.claims import Claim
from apps.core.transitions import transition
from apps.instances import ssh
from apps.instances.models import Instance
from apps.instances.states import Desired, InstanceState

#: Bytes of randomness in a key: 256 bits, written with 43 characters.
KEY_BYTES = 32


def first_values() -> dict[str, Any]:
    """The columns of a fresh launch."""
    now = timezone.now()
    return {
        "key": secrets.token_urlsafe(KEY_BYTES),
        "next_key": "",
        "at_rest": False,
        "pod_uid": "",
        "node": "",
        "restarts": 0,
        "stages": {},
        "entrances": {},
        "last_events": [],
        "start_requested_at": now,
        "ready_at": None,
        "start_deadline_at": now + timedelta(seconds=settings.PORTAL_START_TIMEOUT_S),
        "desired": Desired.RUNNING,
    }


def begin(instance: Instance, *, actor: Actor, claim: Claim | None = None) -> None:
    """Move a row at rest to ``starting``. Call it inside the transaction that holds the quota."""
    transition(
        instance,
        InstanceState.STARTING,
        actor=actor,
        claim=claim,
        verb="instance.start",
        values={
            **first_values(),
            **({} if instance.ssh_host_key else ssh.fresh_host_key()),
            "generation": instance.generation + 1,
            "launch": instance.launch + 1,
            **reconciling.look_now(instance),
            "due_at": timezone.now() + reconciling.UNDER_WAY,
        },
    )
