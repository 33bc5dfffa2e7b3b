"""The Celery application. Messages are hints: a row id and nothing else; losing all of them loses no work."""

from __future__ import annotations

import os
from typing import Any

from celery import Celery, bootsteps

from apps.core import wake

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mlportal.settings")

app = Celery("mlportal")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()


class RingSweep(bootsteps.StartStopStep):  # type: ignore[misc]
    """Each time the worker begins to listen, hints may be lost: with a dead worker, or with a Redis that restarted."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def start(self, parent: Any) -> None:
        """Called at the start and after each reconnection."""
        wake.ring_sweep()


app.steps["consumer"].add(RingSweep)
