"""Who does something: a value that services, audit and scoping share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID


@dataclass(frozen=True, kw_only=True)
class Actor:
    """The person, token or part of the portal behind an action.

    ``scopes`` is empty for a browser session and for an unlimited token; otherwise it lists what the
    token may do. ``user_id`` is None only for the portal itself.
    """

    user_id: UUID | None
    name: str
    is_admin: bool = False
    token_id: UUID | None = None
    scopes: frozenset[str] = field(default_factory=frozenset)
    address: str | None = None


def system(part: str) -> Actor:
    """The portal itself; ``part`` names the loop in the audit log, e.g. ``scheduler``."""
    return Actor(user_id=None, name=part, is_admin=True)


def from_user(user: Any, *, token: Any = None, address: str | None = None) -> Actor:
    """The actor for a signed-in user, perhaps through an API token."""
    return Actor(
        user_id=user.pk,
        name=user.get_username(),
        is_admin=bool(user.is_platform_admin),
        token_id=token.pk if token is not None else None,
        scopes=frozenset(token.scopes) if token is not None else frozenset(),
        address=address,
    )
