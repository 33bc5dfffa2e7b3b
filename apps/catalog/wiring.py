"""What the app registers with the layers below when Django starts."""

from __future__ import annotations

from apps.catalog.models import Image, Purpose
from apps.clusters import checks


def _task_image() -> str:
    """The reference of the first image for tasks, with which a cluster is tried out; empty when there is none."""
    found = Image.objects.as_system().filter(purpose=Purpose.TASK, retired=False).order_by("position", "name").first()
    return str(found.reference) if found is not None else ""


def register() -> None:
    """Called once from ``AppConfig.ready``."""
    checks.register_image(_task_image)
