"""The key of a launch kept out of what its programs print: whoever reads a log or a reason need not be its owner."""

from __future__ import annotations

from dataclasses import replace

from apps.core.reasons import Reason
from apps.core.secret import MASK, Secret
from apps.instances.models import Instance


def without_key(instance: Instance, text: str) -> str:
    """The text with each key of the present launch replaced."""
    for secret in (instance.key, instance.next_key):
        if secret:
            text = text.replace(secret.reveal() if isinstance(secret, Secret) else secret, MASK)
    return text


def told(instance: Instance, reason: Reason | None) -> Reason | None:
    """The reason with its evidence so."""
    if reason is None or not reason.evidence:
        return reason
    return replace(reason, evidence=tuple(without_key(instance, line) for line in reason.evidence))
