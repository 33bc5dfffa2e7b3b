"""The settings of this app, in one place with their units."""

from __future__ import annotations

from django.conf import settings


def start_timeout_s() -> int:
    """How long a pod may wait for its start (room on a node, image, volumes) before the attempt is given up."""
    return int(settings.PORTAL_TASK_START_TIMEOUT_S)


def grace_s() -> int:
    """How long a program that is ended has between SIGTERM and SIGKILL."""
    return int(settings.PORTAL_TASK_GRACE_S)


def log_cap_bytes() -> int:
    """How much of one attempt's log is kept."""
    return int(settings.PORTAL_LOG_CAP_BYTES)


def log_days() -> int:
    """For how many days logs are kept."""
    return int(settings.PORTAL_LOG_DAYS)
