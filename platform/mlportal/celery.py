"""The Celery application. Messages are hints: a row id and nothing else; losing all of them loses no work."""

from __future__ import annotations

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mlportal.settings")

app = Celery("mlportal")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
