"""How states look: one vocabulary for all kinds of objects, each with a colour and a shape besides its word."""

from __future__ import annotations

from collections.abc import Mapping

_RUNNING, _MOVING, _QUEUED, _WAITING = (
    ("green", "filled/circle"),
    ("blue moving", "loader-2"),
    ("blue", "circle"),
    ("purple", "user-pause"),
)
_DONE, _FAILED, _AWAY = ("green", "check"), ("red", "x"), ("orange", "alert-triangle")
_STOPPED, _NONE, _LEAVING = ("secondary", "filled/square"), ("secondary", "minus"), ("secondary moving", "loader-2")
LOOKS: Mapping[str, tuple[str, str]] = {
    "running": _RUNNING,
    "ready": _RUNNING,
    "bound": _RUNNING,
    "connected": _RUNNING,
    "active": _RUNNING,
    "enabled": _RUNNING,
    "starting": _MOVING,
    "stopping": _MOVING,
    "cancelling": _MOVING,
    "creating": _MOVING,
    "pending": _MOVING,
    "queued": _QUEUED,
    "waiting": _WAITING,
    "succeeded": _DONE,
    "delivered": _DONE,
    "failed": _FAILED,
    "unreachable": _AWAY,
    "lost": _AWAY,
    "stopped": _STOPPED,
    "cancelled": _STOPPED,
    "paused": _STOPPED,
    "retired": _STOPPED,
    "disabled": _STOPPED,
    "skipped": _NONE,
    "deleted": _NONE,
    "removed": _NONE,
    "deleting": _LEAVING,
}
"""State -> colour and shape, one vocabulary for all kinds of objects."""
